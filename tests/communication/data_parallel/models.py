"""Models, batches and training for the tests of data parallelism."""

import torch
import torch.nn.functional as F

from lsdl_lib.models import (
    GPT,
    MLP,
    ConvNet,
    ConvNetConfig,
    GPTConfig,
    MLPConfig,
    Toy,
    toy_batch,
)

STEPS, SAMPLES = 20, 8


def models(dtype):
    """Return {name: (model, batches)}; a batch is (inputs, labels), SAMPLES of each."""
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    def labels(*shape):
        return torch.randint(10, shape, generator=generator)

    gpt = GPTConfig(vocabulary=10, context=6, layers=2, width=16, heads=2)
    conv = ConvNetConfig(dims=1, channels=1, widths=(8, 8), norm="group", groups=4)
    return {
        "MLP": (
            MLP(MLPConfig(hidden=(32, 32)), dtype=dtype),
            [(numbers(SAMPLES, 40), labels(SAMPLES)) for _ in range(STEPS)],
        ),
        "ConvNet": (
            ConvNet(conv, dtype=dtype),
            [(numbers(SAMPLES, 1, 40), labels(SAMPLES)) for _ in range(STEPS)],
        ),
        "GPT": (
            GPT(gpt, dtype=dtype),
            [(labels(SAMPLES, 6), labels(SAMPLES, 6)) for _ in range(STEPS)],
        ),
        **{
            name: (
                Toy(name, dtype=dtype),
                [toy_batch(SAMPLES, seed=k, dtype=dtype) for k in range(STEPS)],
            )
            for name in ("tied", "frozen", "scalar", "empty")
        },
    }


def loss_of(model, inputs, labels):
    """Return the mean cross entropy of one batch."""
    return F.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())


def train(model, batches, part=slice(None)):
    """Take a step on this rank's part of each batch; return the first step's gradients."""
    optimizer, first = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), None
    for inputs, labels in batches:
        optimizer.zero_grad()
        loss_of(model, inputs[part], labels[part]).backward()
        first = first or [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
    return first


def relative(one, two):
    """Largest difference beside the largest value."""
    return max(
        (a - b).abs().max().item() / max(b.abs().max().item(), 1e-30)
        for a, b in zip(one, two, strict=True)
        if a.numel()
    )
