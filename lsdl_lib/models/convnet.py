"""Small residual convolutional nets: one-dimensional for MNIST-1D, two-dimensional for the digits.

    stem: relu norm conv_k(x)  ->  a basic residual block for each entry of widths  ->  mean, linear

A block whose width differs from the one before it halves the length (stride 2). Blocks of the
sequence: the stem, each residual block, the classifier.
"""

from dataclasses import dataclass

from torch import nn

from .blocks import BlockSequence
from .counting import (
    Flops,
    block_flops,
    block_parameters,
    check_input,
    layer_flops,
    linear_parameters,
)
from .initialize import default_rule, initialize, uninitialized
from .layers import CONV, NORMS, check_choice, check_groups, check_positive, convolution, norm_layer
from .residual import Basic, Classifier, basic_layers, convolution_flops, convolution_parameters


@dataclass(frozen=True)
class ConvNetConfig:
    """Sizes of a small residual net; the defaults fit MNIST-1D, ``dims=2`` the digits.

    Attributes:
        dims: 1 for signals (B, channels, length), 2 for images (B, channels, height, width).
        channels: of the input.
        classes: outputs.
        widths: channels of each residual block.
        kernel: taps of a convolution in each dimension, odd.
        norm: "batch" or "group".
        groups: of group norm.

    Raises:
        ValueError: names the field and the value that does not fit.
    """

    dims: int = 1
    channels: int = 1
    classes: int = 10
    widths: tuple[int, ...] = (16, 32, 64)
    kernel: int = 3
    norm: str = "batch"
    groups: int = 8

    def __post_init__(self):
        check_choice(self, "dims", tuple(CONV))
        check_positive(self, "channels", "classes", "kernel")
        check_choice(self, "norm", NORMS)
        if self.kernel % 2 == 0:
            raise ValueError(f"ConvNetConfig.kernel is {self.kernel}; give an odd number")
        if (
            not isinstance(self.widths, tuple)
            or not self.widths
            or any(not isinstance(width, int) or width < 1 for width in self.widths)
        ):
            raise ValueError(
                f"ConvNetConfig.widths is {self.widths!r}; give a tuple of integers above 0"
            )
        check_groups(self, self.widths)

    @property
    def residual(self):
        """(c_in, c_out, stride) of each residual block."""
        before = (self.widths[0], *self.widths)
        return [
            (c_in, c_out, 1 if c_in == c_out else 2) for c_in, c_out in zip(before, self.widths)
        ]


class ConvNet(BlockSequence):
    """The network of ``config``: (B, channels, *lengths) -> logits (B, classes), any lengths.

    Args:
        config: ``ConvNetConfig``.
        seed: of the initial values.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(self, config, *, seed=0, device=None, dtype=None):
        with uninitialized(device):
            stem = nn.Sequential(
                convolution(config.dims, config.channels, config.widths[0], config.kernel),
                norm_layer(config, config.widths[0], config.dims),
                nn.ReLU(),
            )
            middle = [
                Basic(config, config.dims, *sizes, config.kernel) for sizes in config.residual
            ]
            super().__init__([stem, *middle, Classifier(config.widths[-1], config.classes)])
        self.config = config
        initialize(self, default_rule, seed=seed, dtype=dtype)


def _layers(config, lengths):
    """List the convolutions of the stem and of each residual block."""
    blocks = [[(config.channels, config.widths[0], config.kernel, lengths)]]
    for c_in, c_out, stride in config.residual:
        blocks.append(basic_layers(c_in, c_out, stride, lengths, config.kernel))
        lengths = blocks[-1][0][-1]
    return blocks


@block_parameters.register
def _(config: ConvNetConfig):
    counts = [convolution_parameters(layers) for layers in _layers(config, (1,) * config.dims)]
    return [*counts, linear_parameters(config.widths[-1], config.classes)]


@block_flops.register
def _(config: ConvNetConfig, input_shape) -> list[Flops]:
    batch, lengths = check_input(input_shape, config.channels, config.dims)
    blocks = _layers(config, lengths)
    flops = [
        convolution_flops(batch, layers, first=place == 0) for place, layers in enumerate(blocks)
    ]
    return [*flops, layer_flops(batch, config.widths[-1], config.classes)]
