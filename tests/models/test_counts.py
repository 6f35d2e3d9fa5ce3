"""Closed forms against the modules, torch's counter, and published counts."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from lsdl_lib.models import (
    GPT,
    MLP,
    ConvNet,
    ConvNetConfig,
    Flops,
    GPTConfig,
    MLPConfig,
    ResNet,
    ResNetConfig,
    block_flops,
    block_parameters,
    counted_flops,
    cut,
    flop_count,
    parameter_count,
)

CASES = [
    (MLP, MLPConfig(), (5, 40)),
    (MLP, MLPConfig(hidden=()), (5, 1, 40)),
    (MLP, MLPConfig(inputs=64, hidden=(30,), classes=7, norm="batch"), (3, 1, 8, 8)),
    (MLP, MLPConfig(hidden=(12, 20), norm="group", groups=4), (1, 40)),
    (ConvNet, ConvNetConfig(), (3, 1, 40)),
    (ConvNet, ConvNetConfig(kernel=5, widths=(8, 8, 16), classes=3, norm="group"), (2, 1, 37)),
    (ConvNet, ConvNetConfig(dims=2, channels=3, widths=(8, 16, 24)), (2, 3, 9, 7)),
    (ResNet, ResNetConfig(), (2, 3, 32, 32)),
    (ResNet, ResNetConfig(depth=34, stem="imagenet", norm="group", channels=1), (1, 1, 65, 64)),
    (ResNet, ResNetConfig(depth=50, stem="imagenet", width=8, classes=9), (2, 3, 64, 96)),
    (GPT, GPTConfig(), (3, 64)),
    (GPT, GPTConfig(vocabulary=50, context=32, layers=3, width=24, heads=3, tied=False), (2, 17)),
    (GPT, GPTConfig(layers=1, heads=1), (1, 1)),
]


def on_meta(model, config, **options):
    with torch.device("meta"):
        return model(config, **options)


def batch(model, shape):
    return torch.zeros(shape, dtype=torch.int64 if model is GPT else torch.float32, device="meta")


@pytest.mark.parametrize(("model", "config", "shape"), CASES)
def test_block_parameters_equal_the_modules(model, config, shape):
    seen, expected = set(), []
    for block in on_meta(model, config).blocks:
        fresh = [p for p in block.parameters() if id(p) not in seen]
        seen.update(map(id, fresh))
        expected.append(sum(p.numel() for p in fresh))
    assert block_parameters(config) == expected
    assert parameter_count(config) == sum(expected)


@pytest.mark.parametrize(("model", "config", "shape"), CASES)
def test_flops_equal_torchs_counter(model, config, shape):
    assert flop_count(config, shape) == counted_flops(on_meta(model, config), batch(model, shape))


@pytest.mark.parametrize(("model", "config", "shape"), [CASES[i] for i in (3, 5, 6, 7, 11)])
def test_block_flops_equal_torchs_counter_block_by_block(model, config, shape):
    x, counted = batch(model, shape), []
    for stage in cut(on_meta(model, config), range(1, len(block_flops(config, shape)))):
        with FlopCounterMode(display=False) as forward:
            y = stage(x)
        with FlopCounterMode(display=False) as backward:
            y.sum().backward()
        counted.append(Flops(forward.get_total_flops(), backward.get_total_flops()))
        x = y.detach().requires_grad_()
    assert block_flops(config, shape) == counted


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (ResNetConfig(), 11_173_962),
        (ResNetConfig(norm="group"), 11_173_962),
        (ResNetConfig(18, 1000, "imagenet"), 11_689_512),
        (ResNetConfig(34, 1000, "imagenet"), 21_797_672),
        (ResNetConfig(50, 1000, "imagenet"), 25_557_032),
        (GPTConfig(50_257, 1024, 12, 768, 12), 124_439_808),  # GPT-2 in its four sizes
        (GPTConfig(50_257, 1024, 24, 1024, 16), 354_823_168),
        (GPTConfig(50_257, 1024, 36, 1280, 20), 774_030_080),
        (GPTConfig(50_257, 1024, 48, 1600, 25), 1_557_611_200),
        (GPTConfig(50_257, 1024, 12, 768, 12, tied=False), 124_439_808 + 50_257 * 768),
        (MLPConfig(784, (300, 100), 10), 266_610),  # LeNet-300-100
    ],
)
def test_published_parameter_counts(config, count):
    model = {ResNetConfig: ResNet, GPTConfig: GPT, MLPConfig: MLP}[type(config)]
    assert parameter_count(config) == count
    assert sum(p.numel() for p in on_meta(model, config).parameters()) == count


@pytest.mark.parametrize(
    ("depth", "multiply_adds"), [(18, 1_814_073_344), (34, 3_663_761_408), (50, 4_089_184_256)]
)
def test_published_multiply_adds_of_one_imagenet_image(depth, multiply_adds):
    flops = flop_count(ResNetConfig(depth, 1000, "imagenet"), (1, 3, 224, 224))
    assert flops.forward == 2 * multiply_adds


def test_backward_is_twice_forward_less_the_first_input_gradient():
    config, shape = ResNetConfig(), (4, 3, 32, 32)
    flops, stem = flop_count(config, shape), 2 * 4 * 32 * 32 * 3 * 64 * 9
    assert flops.backward == 2 * flops.forward - stem
    assert flops.total == 3 * flops.forward - stem
    gpt = flop_count(GPTConfig(), (2, 64))
    assert gpt.backward == 2 * gpt.forward


def test_flops_grow_with_the_batch_and_attention_with_the_square_of_the_length():
    config = GPTConfig(vocabulary=10, context=64, layers=1, width=16, heads=2)
    one, two = (flop_count(config, (1, length)).forward for length in (16, 32))
    assert two - 2 * one == 4 * 16 * (32**2 - 2 * 16**2)
    assert flop_count(config, (5, 16)).forward == 5 * one


def test_attention_counts_as_torch_counts_it():
    shape = (2, 4, 64, 16)  # (B, heads, T, C / heads)
    config = GPTConfig(layers=1)
    attention = flop_count(config, (2, 64)).forward - 24 * 2 * 64 * 64**2 - 2 * 2 * 64 * 64 * 128
    assert attention == sdpa_flop_count(shape, shape, shape)
    # Fused kernels compute the scores, half of the forward, once more in the backward.
    fused = sdpa_backward_flop_count(shape, shape, shape, shape)
    assert fused == 2 * attention + attention // 2


def test_counter_on_real_tensors_with_plain_attention():
    config = GPTConfig(vocabulary=20, context=8, layers=2, width=16, heads=2)
    model, x = GPT(config), torch.zeros(2, 8, dtype=torch.int64)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    assert counter.get_total_flops() == flop_count(config, (2, 8)).total


def test_counted_flops_leaves_the_model_alone_and_sees_frozen_layers():
    config = MLPConfig()
    model = MLP(config)
    kept = [p.clone() for p in model.parameters()]
    x = torch.ones(2, 40)
    assert counted_flops(model, x) == flop_count(config, (2, 40))
    assert all(torch.equal(p, q) and p.grad is None for p, q in zip(model.parameters(), kept))
    for parameter in model.blocks[0].parameters():
        parameter.requires_grad_(False)
    saved = 2 * 2 * 40 * 128 + 2 * 2 * 128 * 128  # its weight's gradient, and its output's
    assert counted_flops(model, x).backward == flop_count(config, (2, 40)).backward - saved


@pytest.mark.parametrize("count", [block_parameters, parameter_count])
def test_parameter_count_of_no_config(count):
    with pytest.raises(TypeError, match="no parameter count for 18"):
        count(18)


def test_flop_count_of_no_config():
    with pytest.raises(TypeError, match="no FLOP count for 'resnet'"):
        flop_count("resnet", (1, 3, 32, 32))


@pytest.mark.parametrize(
    ("config", "shape", "message"),
    [
        (MLPConfig(), (2, 41), r"\(2, 41\) has 41 numbers a sample, not 40"),
        (ConvNetConfig(), (2, 3, 40), r"\(2, 3, 40\) does not fit; give \(batch, 1, length\)"),
        (ConvNetConfig(dims=2), (2, 1, 40), r"give \(batch, 1, length, length\)"),
        (ResNetConfig(), (3, 32, 32), r"\(3, 32, 32\) does not fit; give \(batch, 3,"),
        (ResNetConfig(), (0, 3, 32, 32), r"\(0, 3, 32, 32\) does not fit"),
        (GPTConfig(context=8), (2, 9), "9 tokens do not fit the context, 1 to 8"),
    ],
)
def test_shapes_that_do_not_fit(config, shape, message):
    with pytest.raises(ValueError, match=message):
        flop_count(config, shape)
