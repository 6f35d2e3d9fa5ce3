import copy

import pytest
import torch
from torch import nn

from lsdl_lib.models import (
    GPT,
    MLP,
    TOYS,
    BlockSequence,
    ConvNet,
    ConvNetConfig,
    GPTConfig,
    MLPConfig,
    ResNet,
    ResNetConfig,
    Toy,
    cut,
    shared_parameters,
)

TINY_GPT = GPTConfig(vocabulary=11, context=6, layers=2, width=8, heads=2)


def tokens(batch=3, length=6):
    return torch.arange(batch * length).view(batch, length) % 11


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


MODELS = {
    "mlp": (lambda: MLP(MLPConfig(hidden=(8, 6, 5)), dtype=torch.float64), numbers(3, 1, 40)),
    "conv 1d": (
        lambda: ConvNet(ConvNetConfig(widths=(8, 16), norm="group"), dtype=torch.float64),
        numbers(3, 1, 40),
    ),
    "conv 2d": (
        lambda: ConvNet(ConvNetConfig(dims=2, widths=(8, 16)), dtype=torch.float64),
        numbers(3, 1, 8, 8),
    ),
    "resnet 18": (
        lambda: ResNet(ResNetConfig(width=4, groups=2, norm="group"), dtype=torch.float64),
        numbers(2, 3, 16, 16),
    ),
    "resnet 50": (
        lambda: ResNet(ResNetConfig(depth=50, width=4, stem="imagenet"), dtype=torch.float64),
        numbers(2, 3, 32, 32),
    ),
    "gpt": (lambda: GPT(TINY_GPT, dtype=torch.float64), tokens()),
    **{
        f"toy {name}": (lambda name=name: Toy(name, dtype=torch.float64), numbers(5, 4))
        for name in TOYS
    },
}


def run(stages, x):
    for stage in stages:
        x = stage(x)
    return x


@pytest.mark.parametrize("name", MODELS)
def test_running_the_stages_is_running_the_model(name):
    make, x = MODELS[name]
    model = make().eval()
    whole, n = model(x), len(model)
    for before in ([], [1], [n // 2], [n - 1], [1, n // 2, n - 1], range(1, n)):
        assert torch.equal(run(cut(model, before), x), whole)


@pytest.mark.parametrize("name", MODELS)
def test_stages_hold_the_very_modules_and_names_of_the_model(name):
    model = MODELS[name][0]()
    stages = cut(model, [1, len(model) - 1])
    assert [len(stage) for stage in stages] == [1, len(model) - 2, 1]
    blocks = [block for stage in stages for block in stage.blocks]
    assert all(mine is theirs for mine, theirs in zip(blocks, model.blocks, strict=True))
    merged = {}
    for stage in stages:
        assert not merged.keys() & stage.state_dict().keys()
        merged |= stage.state_dict(keep_vars=True)
    whole = model.state_dict(keep_vars=True)
    assert merged.keys() == whole.keys()
    assert all(merged[key] is whole[key] for key in whole)


def test_a_stage_can_be_cut_again():
    model = BlockSequence(nn.Linear(2, 2) for _ in range(6))
    inner = cut(cut(model, [2])[1], [1, 3])
    assert [list(stage.blocks._modules) for stage in inner] == [["2"], ["3", "4"], ["5"]]


@pytest.mark.parametrize("training", [True, False])
def test_stages_keep_the_mode(training):
    model = MODELS["conv 2d"][0]().train(training)
    for stage in cut(model, [1, 2]):
        assert {module.training for module in stage.modules()} == {training}


@pytest.mark.parametrize("before", [[0], [4], [-1], [2, 2], [3, 1], [1, 2, 3, 4]])
def test_cuts_that_do_not_fit(before):
    model = MODELS["mlp"][0]()
    with pytest.raises(ValueError, match="from 1 to 3, for a model of 4 blocks") as error:
        cut(model, before)
    assert str(before) in str(error.value)


def gradients(model, x):
    model(x).square().sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def test_tied_embedding_in_one_process_is_one_parameter_with_one_gradient():
    make, x = MODELS["gpt"]
    expected = gradients(make(), x)["blocks.0.token.weight"]
    stages = cut(make(), [2])
    assert stages[0].blocks[0].token.weight is stages[1].blocks[-1].weight
    run(stages, x).square().sum().backward()
    gradient = stages[1].blocks[-1].weight.grad
    assert (gradient - expected).abs().max() <= 1e-12 * expected.abs().max()


def test_tied_embedding_in_two_processes_needs_the_sum_of_both_gradients():
    make, x = MODELS["gpt"]
    expected = gradients(make(), x)
    first, last = (copy.deepcopy(stage) for stage in cut(make(), [2]))
    sent = first(x)
    received = sent.detach().requires_grad_()
    last(received).square().sum().backward()
    sent.backward(received.grad)
    input_use, output_use = first.blocks[0].token.weight.grad, last.blocks[-1].weight.grad
    whole = expected["blocks.0.token.weight"]
    assert (input_use + output_use - whole).abs().max() <= 1e-12 * whole.abs().max()
    assert input_use.abs().max() > 1e-3 * whole.abs().max()
    assert output_use.abs().max() > 1e-3 * whole.abs().max()
    for stage in (first, last):
        for name, parameter in stage.named_parameters():
            if parameter is not last.blocks[-1].weight and name != "blocks.0.token.weight":
                scale = expected[name].abs().max()
                assert (parameter.grad - expected[name]).abs().max() <= 1e-12 * scale


def test_shared_parameters_are_those_whose_tie_crosses_a_cut():
    gpt = MODELS["gpt"][0]()
    tie = [(0, "blocks.0.token.weight"), (1, "blocks.3.weight")]
    assert shared_parameters(cut(gpt, [3])) == [tie]
    assert shared_parameters(cut(gpt, [])) == []
    assert shared_parameters(cut(MODELS["resnet 18"][0](), [2, 5])) == []
    toy = Toy("tied")
    assert shared_parameters(cut(toy, [1])) == []
    assert shared_parameters(cut(toy, [1, 2])) == [
        [(1, "blocks.1.linear.weight"), (2, "blocks.2.linear.weight")]
    ]


def emptied(model):
    return model.to("meta").to_empty(device=torch.get_default_device())


@pytest.mark.parametrize("name", ["gpt", "toy tied", "toy everything"])
@pytest.mark.parametrize(
    "change",
    [copy.deepcopy, lambda model: model.bfloat16(), lambda model: model.to("meta"), emptied],
    ids=["deepcopy", "cast", "meta", "to_empty"],
)
def test_ties_survive(name, change):
    model = change(MODELS[name][0]())
    ((first, second),) = model.ties
    assert model.get_parameter(first) is model.get_parameter(second)


def test_a_tie_inside_one_stage_survives_to_empty():
    stage = emptied(cut(Toy("tied"), [1])[1])
    assert stage.blocks[0].linear.weight is stage.blocks[1].linear.weight


def test_state_dict_round_trip_keeps_the_tie():
    make, x = MODELS["gpt"]
    model, other = make(), GPT(TINY_GPT, seed=5, dtype=torch.float64)
    other.load_state_dict(model.state_dict())
    assert other.blocks[0].token.weight is other.blocks[-1].weight
    assert torch.equal(other(x), model(x))
