"""Multi-layer perceptron: linear layers with ReLU between, optionally normalized.

    h_0 = flatten(x),   h_l = relu(norm(W_l h_{l-1} + b_l)),   logits = W_L h_{L-1} + b_L

Blocks: one a layer. Parameters: sum over layers of (d_in + 1) d_out, and 2 d_out for each norm.
FLOPs a sample: 2 sum d_in d_out forward.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import prod

from torch import nn

from .blocks import BlockSequence
from .counting import Flops, block_flops, block_parameters, layer_flops, linear_parameters
from .initialize import default_rule, initialize, uninitialized
from .layers import NORMS, check_choice, check_groups, check_positive, norm_layer


@dataclass(frozen=True)
class MLPConfig:
    """Sizes of an MLP.

    Attributes:
        inputs: numbers a sample, channels and positions multiplied (MNIST-1D: 40; digits: 64).
        hidden: widths of the hidden layers; ``()`` is a linear classifier.
        classes: outputs.
        norm: "none", "batch" or "group", before each ReLU.
        groups: of group norm; 1 is layer norm.

    Raises:
        ValueError: a size is not an integer above 0, or the groups do not divide a hidden width.
    """

    inputs: int = 40
    hidden: tuple[int, ...] = (128, 128)
    classes: int = 10
    norm: str = "none"
    groups: int = 1

    def __post_init__(self):
        check_positive(self, "inputs", "classes")
        check_choice(self, "norm", ("none", *NORMS))
        if not isinstance(self.hidden, tuple) or any(
            not isinstance(width, int) or width < 1 for width in self.hidden
        ):
            raise ValueError(
                f"MLPConfig.hidden is {self.hidden!r}; give a tuple of integers above 0"
            )
        check_groups(self, self.hidden)

    @property
    def widths(self):
        """All widths, input and output included."""
        return (self.inputs, *self.hidden, self.classes)


class MLP(BlockSequence):
    """The network of ``config``: (B, ...) with ``inputs`` numbers a sample -> logits (B, classes).

    Args:
        config: ``MLPConfig``.
        seed: of the initial values, torch's own rule for linear layers.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(self, config, *, seed=0, device=None, dtype=None):
        with uninitialized(device):
            pairs = list(pairwise(config.widths))
            layers = [_hidden(config, *pair) for pair in pairs[:-1]]
            layers.append([nn.Linear(*pairs[-1])])
            layers[0].insert(0, nn.Flatten())  # (B, C, ...) -> (B, inputs)
            super().__init__(nn.Sequential(*layer) for layer in layers)
        self.config = config
        initialize(self, default_rule, seed=seed, dtype=dtype)


def _hidden(config, d_in, d_out):
    norm = [] if config.norm == "none" else [norm_layer(config, d_out, 0)]
    return [nn.Linear(d_in, d_out), *norm, nn.ReLU()]


@block_parameters.register
def _(config: MLPConfig):
    per_norm = 0 if config.norm == "none" else 2
    counts = [linear_parameters(*pair) for pair in pairwise(config.widths)]
    return [count + per_norm * width for count, width in zip(counts, config.hidden)] + counts[-1:]


@block_flops.register
def _(config: MLPConfig, input_shape) -> list[Flops]:
    batch, *rest = input_shape
    if prod(rest) != config.inputs:
        raise ValueError(
            f"input shape {tuple(input_shape)} has {prod(rest)} numbers a sample, "
            f"not {config.inputs}"
        )
    pairs = pairwise(config.widths)
    return [layer_flops(batch, *pair, first=place == 0) for place, pair in enumerate(pairs)]
