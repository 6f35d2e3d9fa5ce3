"""ResNet-18, 34 and 50, with the ImageNet stem or the one for 32 by 32 images.

    ImageNet stem: conv 7x7 stride 2, norm, relu, max-pool 3x3 stride 2      (224 -> 56)
    CIFAR stem:    conv 3x3 stride 1, norm, relu                             (32 -> 32)
    then four groups of residual blocks, width 64, 128, 256, 512; all but the first halve the size

Blocks of the sequence: the stem, each residual block (8 in ResNet-18, 16 in 34 and 50), the
classifier.

Parameters: ResNet-18 with CIFAR stem and 10 classes 11,173,962; with ImageNet stem and 1,000
classes 11,689,512 (18), 21,797,672 (34), 25,557,032 (50). Source: He et al. 2015, arXiv:1512.03385,
table 1.
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
    strided,
)
from .initialize import default_rule, initialize, uninitialized
from .layers import NORMS, check_choice, check_groups, check_positive, convolution, norm_layer
from .residual import (
    EXPANSION,
    Basic,
    Bottleneck,
    Classifier,
    basic_layers,
    bottleneck_layers,
    convolution_flops,
    convolution_parameters,
)

# depth: (residual blocks in each of the four groups, is it a bottleneck)
_GROUPS = {18: ((2, 2, 2, 2), False), 34: ((3, 4, 6, 3), False), 50: ((3, 4, 6, 3), True)}
_STEMS = {"cifar": (3, 1), "imagenet": (7, 2)}  # (kernel, stride)


@dataclass(frozen=True)
class ResNetConfig:
    """Which ResNet.

    Attributes:
        depth: 18, 34 or 50.
        classes: outputs.
        stem: "cifar" or "imagenet".
        norm: "batch" or "group".
        groups: of group norm.
        width: channels of the first group; 64 is the real network, less a thinner one.
        channels: of the input.

    Raises:
        ValueError: names the field and the value that does not fit.
    """

    depth: int = 18
    classes: int = 10
    stem: str = "cifar"
    norm: str = "batch"
    groups: int = 32
    width: int = 64
    channels: int = 3

    def __post_init__(self):
        check_choice(self, "depth", tuple(_GROUPS))
        check_positive(self, "classes", "width", "channels")
        check_choice(self, "stem", tuple(_STEMS))
        check_choice(self, "norm", NORMS)
        check_groups(self, (self.width,))  # all other widths are multiples of it

    @property
    def bottleneck(self):
        """Whether the residual blocks are bottlenecks."""
        return _GROUPS[self.depth][1]

    @property
    def residual(self):
        """(c_in, width, stride) of each residual block."""
        expansion = EXPANSION if self.bottleneck else 1
        sizes, c_in = [], self.width
        for group, count in enumerate(_GROUPS[self.depth][0]):
            width = self.width * 2**group
            for place in range(count):
                sizes.append((c_in, width, 2 if place == 0 and group > 0 else 1))
                c_in = width * expansion
        return sizes

    @property
    def features(self):
        """Channels that the classifier sees."""
        return self.width * 8 * (EXPANSION if self.bottleneck else 1)


class ResNet(BlockSequence):
    """The network of ``config``: (B, channels, h, w) -> logits (B, classes).

    Args:
        config: ``ResNetConfig``.
        seed: of the initial values.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(self, config, *, seed=0, device=None, dtype=None):
        with uninitialized(device):
            if config.bottleneck:
                middle = [Bottleneck(config, *sizes) for sizes in config.residual]
            else:
                middle = [Basic(config, 2, *sizes) for sizes in config.residual]
            super().__init__([_stem(config), *middle, Classifier(config.features, config.classes)])
        self.config = config
        initialize(self, default_rule, seed=seed, dtype=dtype)


def _stem(config):
    kernel, stride = _STEMS[config.stem]
    layers = [
        convolution(2, config.channels, config.width, kernel, stride),
        norm_layer(config, config.width, 2),
        nn.ReLU(),
    ]
    if config.stem == "imagenet":
        layers.append(nn.MaxPool2d(3, stride=2, padding=1))
    return nn.Sequential(*layers)


def _layers(config, lengths):
    """List the convolutions of the stem and of each residual block."""
    kernel, stride = _STEMS[config.stem]
    lengths = strided(lengths, stride)
    blocks = [[(config.channels, config.width, kernel, lengths)]]
    if config.stem == "imagenet":
        lengths = strided(lengths, 2)  # the pooling
    layers = bottleneck_layers if config.bottleneck else basic_layers
    for c_in, width, step in config.residual:
        blocks.append(layers(c_in, width, step, lengths))
        lengths = strided(lengths, step)
    return blocks


@block_parameters.register
def _(config: ResNetConfig):
    counts = [convolution_parameters(layers) for layers in _layers(config, (1, 1))]
    return [*counts, linear_parameters(config.features, config.classes)]


@block_flops.register
def _(config: ResNetConfig, input_shape) -> list[Flops]:
    batch, lengths = check_input(input_shape, config.channels, 2)
    blocks = _layers(config, lengths)
    flops = [
        convolution_flops(batch, layers, first=place == 0) for place, layers in enumerate(blocks)
    ]
    return [*flops, layer_flops(batch, config.features, config.classes)]
