import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from lsdl_lib.models import (
    GPT,
    MLP,
    TOYS,
    ConvNet,
    ConvNetConfig,
    GPTConfig,
    MLPConfig,
    ResNet,
    ResNetConfig,
    Toy,
)

MAKERS = {
    "mlp": lambda **options: MLP(MLPConfig(hidden=(50, 40), norm="batch"), **options),
    "conv": lambda **options: ConvNet(ConvNetConfig(), **options),
    "resnet 18": lambda **options: ResNet(
        ResNetConfig(width=16, norm="group", groups=4), **options
    ),
    "resnet 50": lambda **options: ResNet(ResNetConfig(depth=50, width=8), **options),
    "gpt": lambda **options: GPT(GPTConfig(layers=2), **options),
    **{f"toy {name}": lambda name=name, **options: Toy(name, **options) for name in TOYS},
}
DEVICES = [torch.get_default_device()]
if torch.accelerator.is_available():
    device = torch.accelerator.current_accelerator()
    DEVICES.append(pytest.param(device, marks=pytest.mark.gpu))


def values(model):
    return dict(model.state_dict())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MAKERS)
def test_same_seed_same_values_whatever_was_drawn_before(name, device):
    first = values(MAKERS[name](seed=3))
    torch.rand(17)  # another rank may have used the global generator
    second = values(MAKERS[name](seed=3, device=device))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key].to(first[key].device)) for key in first)


@pytest.mark.parametrize("name", MAKERS)
def test_float64_holds_the_float32_values(name):
    single, double = values(MAKERS[name]()), values(MAKERS[name](dtype=torch.float64))
    for key in single:
        assert torch.equal(single[key].to(double[key].dtype), double[key])
    floating = {v.dtype for v in double.values() if v.is_floating_point()}
    assert floating == {torch.float64}


@pytest.mark.parametrize("name", MAKERS)
def test_other_seed_other_weights(name):
    first, second = values(MAKERS[name](seed=0)), values(MAKERS[name](seed=1))
    for key in first:
        if first[key].dim() > 1:
            assert (first[key] != second[key]).double().mean() > 0.99


@pytest.mark.parametrize("name", MAKERS)
def test_parameters_of_one_model_are_drawn_independently(name):
    weights = [p for p in MAKERS[name]().parameters() if p.dim() > 1]
    starts = {tuple(p.flatten()[:4].tolist()) for p in weights}
    assert len(starts) == len(weights)


@pytest.mark.parametrize("name", MAKERS)
def test_global_random_state_is_kept(name):
    before = torch.get_rng_state()
    MAKERS[name]()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", MAKERS)
def test_nothing_is_left_uninitialized(name, monkeypatch):
    """Memory that ``empty`` returns is filled with NaN, so that a forgotten tensor shows."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()
        model = MAKERS[name]()
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(value.isfinite().all() for value in model.state_dict().values())


def test_scales():
    resnet = ResNet(ResNetConfig())
    conv = resnet.blocks[3].conv1.weight  # 64 -> 128, 3 x 3: He's rule, fan out
    assert conv.std().item() == pytest.approx((2 / (128 * 9)) ** 0.5, rel=0.02)
    linear = resnet.blocks[-1].linear
    for parameter in (linear.weight, linear.bias):
        bound = 512**-0.5
        assert parameter.abs().max() <= bound
        assert parameter.abs().max() > 0.5 * bound
    norm = resnet.blocks[1].norm1
    assert norm.weight.unique().tolist() == [1.0]
    assert norm.bias.unique().tolist() == [0.0]


def test_gpt_scales():
    gpt = GPT(GPTConfig(layers=8, width=128))
    block = gpt.blocks[4]
    for weight in (gpt.blocks[0].token.weight, block.attention.qkv.weight, block.expand.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    for weight in (block.attention.project.weight, block.project.weight):
        assert weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)  # sqrt(2 x 8) = 4
    assert block.attention.qkv.bias.unique().tolist() == [0.0]
    assert block.norm1.weight.unique().tolist() == [1.0]


@pytest.mark.parametrize("name", MAKERS)
def test_meta_and_fake_tensors_cost_nothing_and_have_the_right_shapes(name):
    shapes = {key: value.shape for key, value in MAKERS[name]().state_dict().items()}
    with torch.device("meta"):
        meta = MAKERS[name]()
    with FakeTensorMode():
        fake = MAKERS[name]()
    assert all(value.is_meta for value in meta.state_dict().values())
    for model in (meta, fake):
        assert {key: value.shape for key, value in model.state_dict().items()} == shapes
