"""Tiny models with the parameters that break data parallelism and sharding.

Each one maps (B, 4) to (B, 3) through tanh layers, and holds one difficulty; the last holds all:

    plain     none
    tied      one weight is used by two blocks: its gradient is the sum of both uses
    frozen    a whole block and a single bias require no gradient
    unused    a block never runs, so that its parameters get no gradient (None, not zero)
    scalar    a parameter without dimensions, ()
    empty     a parameter without elements, (0,); it gets a gradient of that shape
    everything

A hook that waits for all gradients never fires on ``frozen`` and ``unused``; a list of parameters
by name counts ``tied`` twice; a layout that cuts along the first dimension fails on ``scalar`` and
``empty``.
"""

import torch
from torch import nn

from .blocks import BlockSequence
from .initialize import Constant, default_rule, initialize, uninitialized

TOYS = ("plain", "tied", "frozen", "unused", "scalar", "empty", "everything")
INPUTS, HIDDEN, OUTPUTS = 4, 8, 3


class Layer(nn.Module):
    """Linear then tanh: (B, d_in) -> (B, d_out)."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.linear = nn.Linear(d_in, d_out)

    def forward(self, x):
        """Return tanh(W x + b)."""
        return torch.tanh(self.linear(x))


class Unused(nn.Module):
    """The identity, with a layer that it never calls."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x):
        """Return ``x``."""
        return x


class Scale(nn.Module):
    """Multiply by a parameter of shape ()."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(()))

    def forward(self, x):
        """Return ``scale * x``."""
        return self.scale * x


class Empty(nn.Module):
    """Add the sum of a parameter of shape (0,), which is 0."""

    def __init__(self):
        super().__init__()
        self.nothing = nn.Parameter(torch.empty(0))

    def forward(self, x):
        """Return ``x + sum(nothing)``."""
        return x + self.nothing.sum()


_TIES = (("blocks.1.linear.weight", "blocks.2.linear.weight"),)
_FROZEN = ("blocks.0.linear.weight", "blocks.0.linear.bias", "blocks.2.linear.bias")
_EXTRA = {"unused": Unused, "scalar": Scale, "empty": Empty}


class Toy(BlockSequence):
    """One of ``TOYS``, by name.

    Attributes:
        ties: groups of names of one and the same parameter.
        no_gradient: names of the parameters that never get a gradient, a frozenset.

    Args:
        name: of the toy.
        seed: of the initial values; the scalar starts at 1.5.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ValueError: there is no such toy.
    """

    def __init__(self, name, *, seed=0, device=None, dtype=None):
        if name not in TOYS:
            raise ValueError(f"there is no toy {name!r}; choose one of {', '.join(TOYS)}")
        has = set(TOYS) if name == "everything" else {name}
        with uninitialized(device):
            blocks = [Layer(INPUTS, HIDDEN), Layer(HIDDEN, HIDDEN), Layer(HIDDEN, HIDDEN)]
            blocks += [block() for difficulty, block in _EXTRA.items() if difficulty in has]
            super().__init__([*blocks, nn.Linear(HIDDEN, OUTPUTS)], _TIES if "tied" in has else ())
        frozen = _FROZEN if "frozen" in has else ()
        for path in frozen:
            self.get_parameter(path).requires_grad_(False)
        never_run = [
            f"{path}.{leaf}"
            for path, module in self.named_modules()
            for leaf, _ in module.named_parameters()
            if isinstance(module, Unused)
        ]
        self.no_gradient = frozenset([*frozen, *never_run])
        initialize(self, _rule, seed=seed, dtype=dtype)


def toy_batch(samples, *, seed=0, device=None, dtype=None):
    """Return inputs (samples, 4) and labels (samples,), int64 in 0..2; every value is distinct.

    Args:
        samples: B.
        seed: of the inputs; labels go round 0, 1, 2.
        device: of both.
        dtype: of the inputs; float32 when left out.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, INPUTS, generator=generator, dtype=torch.float64)
    y = torch.arange(samples) % OUTPUTS
    return x.to(device=device, dtype=dtype or torch.float32), y.to(device=device)


def _rule(module, name, parameter):
    if name in ("scale", "nothing"):
        return Constant(1.5)
    return default_rule(module, name, parameter)
