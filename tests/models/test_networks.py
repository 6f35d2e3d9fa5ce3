"""What the networks compute, against plain formulas."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lsdl_lib.models import (
    GPT,
    MLP,
    ConvNet,
    ConvNetConfig,
    GPTConfig,
    MLPConfig,
    ResNet,
    ResNetConfig,
)


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def test_mlp_is_its_formula():
    mlp = MLP(MLPConfig(inputs=6, hidden=(5, 4), classes=3), dtype=torch.float64)
    x = numbers(2, 2, 3)
    h = x.numpy().reshape(2, 6)
    layers = [module for module in mlp.modules() if isinstance(module, nn.Linear)]
    for place, layer in enumerate(layers):
        weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        h = h @ weight.T + bias
        h = np.maximum(h, 0) if place < len(layers) - 1 else h
    assert mlp(x).detach().numpy() == pytest.approx(h, abs=1e-12)


def test_mlp_norm_comes_before_the_relu():
    mlp = MLP(MLPConfig(inputs=6, hidden=(8,), norm="group", groups=2), dtype=torch.float64)
    hidden = mlp.blocks[0](numbers(3, 6))
    pre = F.group_norm(mlp.blocks[0][1](numbers(3, 6)), 2)
    assert torch.allclose(hidden, pre.clamp(min=0), atol=1e-12)


def padded(x, weight, stride):
    """A convolution by its definition: pad, slide, multiply, sum; one dimension."""
    taps = weight.shape[2]
    x = np.pad(x, ((0, 0), (0, 0), (taps // 2, taps // 2)))
    places = range(0, x.shape[2] - taps + 1, stride)
    return np.stack(
        [np.einsum("bct,oct->bo", x[:, :, place : place + taps], weight) for place in places],
        axis=2,
    )


def group_normed(x, groups):
    shaped = x.reshape(x.shape[0], groups, -1)
    centred = shaped - shaped.mean(axis=2, keepdims=True)
    return (centred / np.sqrt(shaped.var(axis=2, keepdims=True) + 1e-5)).reshape(x.shape)


def test_conv_net_is_its_formula():
    config = ConvNetConfig(widths=(4, 6), kernel=3, norm="group", groups=2)
    net = ConvNet(config, dtype=torch.float64)
    w = {name: p.detach().numpy() for name, p in net.named_parameters()}

    def conv(x, name, stride=1):
        return group_normed(padded(x, w[f"{name}.weight"], stride), 2)

    x = numbers(2, 1, 11).numpy()
    h = np.maximum(conv(x, "blocks.0.0"), 0)
    for block, stride in ((1, 1), (2, 2)):
        y = np.maximum(conv(h, f"blocks.{block}.conv1", stride), 0)
        y = conv(y, f"blocks.{block}.conv2")
        h = np.maximum(y + (conv(h, f"blocks.{block}.shortcut.0", 2) if block == 2 else h), 0)
    logits = h.mean(axis=2) @ w["blocks.3.linear.weight"].T + w["blocks.3.linear.bias"]
    assert net(numbers(2, 1, 11)).detach().numpy() == pytest.approx(logits, abs=1e-10)


@pytest.mark.parametrize(
    ("config", "size", "shapes"),
    [
        (ResNetConfig(18), 32, [(64, 32)] * 3 + [(128, 16)] * 2 + [(256, 8)] * 2 + [(512, 4)] * 2),
        (
            ResNetConfig(34, 1000, "imagenet"),
            224,
            [(64, 56)] * 4 + [(128, 28)] * 4 + [(256, 14)] * 6 + [(512, 7)] * 3,
        ),
        (
            ResNetConfig(50, 1000, "imagenet"),
            224,
            [(64, 56)] + [(256, 56)] * 3 + [(512, 28)] * 4 + [(1024, 14)] * 6 + [(2048, 7)] * 3,
        ),
    ],
    ids=["18", "34", "50"],
)
def test_resnet_shapes_block_by_block(config, size, shapes):
    with torch.device("meta"):
        net, x = ResNet(config), torch.empty(2, 3, size, size)
    seen = []
    for block in net.blocks:
        x = block(x)
        seen.append(tuple(x.shape))
    assert seen == [(2, c, s, s) for c, s in shapes] + [(2, config.classes)]


@pytest.mark.parametrize(("depth", "last"), [(18, "norm2"), (50, "norm3")])
def test_residual_block_with_a_silent_branch_is_a_relu(depth, last):
    block = ResNet(ResNetConfig(depth, width=8), dtype=torch.float64).blocks[2]
    nn.init.zeros_(getattr(block, last).weight)
    x = numbers(2, 8 if depth == 18 else 32, 5, 5)
    assert torch.equal(block(x), x.clamp(min=0))


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("kind", ["mlp", "conv", "resnet"])
def test_only_group_norm_treats_samples_independently(kind, norm):
    net, x = {
        "mlp": lambda: (MLPConfig(hidden=(8,), norm=norm, groups=2), numbers(4, 40)),
        "conv": lambda: (ConvNetConfig(norm=norm), numbers(4, 1, 40)),
        "resnet": lambda: (ResNetConfig(width=8, norm=norm, groups=4), numbers(4, 3, 16, 16)),
    }[kind]()
    model = {"mlp": MLP, "conv": ConvNet, "resnet": ResNet}[kind](net, dtype=torch.float64)
    halves = torch.cat([model(x[:2]), model(x[2:])])
    difference = (model(x) - halves).abs().max()
    assert difference <= 1e-12 if norm == "group" else difference > 1e-3


TINY = GPTConfig(vocabulary=13, context=7, layers=2, width=12, heads=3)


def layer_normed(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def test_gpt_is_its_formula():
    gpt = GPT(TINY, dtype=torch.float64)
    with torch.no_grad():  # initial biases and norms are 0 and 1: make them count
        for name, parameter in gpt.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(numbers(*parameter.shape) * 0.1 + (len(name) % 5) * 0.01)
    w = {name: p.detach().numpy() for name, p in gpt.named_parameters()}
    tokens = torch.arange(2 * 5).view(2, 5) * 3 % 13

    def norm(x, name):
        return layer_normed(x) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    h = w["blocks.0.token.weight"][tokens] + w["blocks.0.position.weight"][:5]
    for block in ("blocks.1", "blocks.2"):
        query, key, value = np.split(
            linear(norm(h, f"{block}.norm1"), f"{block}.attention.qkv"), 3, 2
        )
        y = np.zeros_like(h)
        for head in range(3):
            part = slice(4 * head, 4 * head + 4)
            for t in range(5):  # position t sees positions 0..t
                seen = slice(0, t + 1)
                scores = np.einsum("bc,bsc->bs", query[:, t, part], key[:, seen, part]) / 2
                chance = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
                y[:, t, part] = np.einsum("bs,bsc->bc", chance, value[:, seen, part])
        h = h + linear(y, f"{block}.attention.project")
        z = linear(norm(h, f"{block}.norm2"), f"{block}.expand")
        gelu = 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
        h = h + linear(gelu, f"{block}.project")
    logits = norm(h, "blocks.3.norm") @ w["blocks.0.token.weight"].T
    assert gpt(tokens).detach().numpy() == pytest.approx(logits, abs=1e-10)


def test_gpt_is_causal():
    gpt, tokens = GPT(TINY, dtype=torch.float64), torch.arange(7).unsqueeze(0)
    changed = tokens.clone()
    changed[0, 4] = 12
    before, after = gpt(tokens), gpt(changed)
    assert torch.equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] - after[:, 4:]).abs().amax(dim=2).min() > 1e-6


def test_untied_head_has_a_weight_of_its_own():
    tied, untied = GPT(TINY), GPT(GPTConfig(**{**vars(TINY), "tied": False}))
    assert tied.blocks[0].token.weight is tied.blocks[-1].weight
    assert untied.blocks[0].token.weight is not untied.blocks[-1].weight
    assert not torch.equal(untied.blocks[0].token.weight, untied.blocks[-1].weight)
    assert len(list(untied.parameters())) == len(list(tied.parameters())) + 1


def test_sequence_longer_than_the_context():
    with pytest.raises(ValueError, match="a sequence of 8 tokens is longer than the context, 7"):
        GPT(TINY)(torch.zeros(1, 8, dtype=torch.int64))
