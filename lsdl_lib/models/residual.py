"""Residual blocks, in one or two dimensions: basic (two 3-wide convolutions) and bottleneck.

    y = relu(x' + F(x)),    x' = x, or norm(conv_1(x)) where the shape changes
    basic:       F = norm conv_k relu norm conv_k                        (stride on the first)
    bottleneck:  F = norm conv_1 relu norm conv_3 relu norm conv_1       (stride on the middle one)

Source: He et al., "Deep Residual Learning for Image Recognition", 2015, arXiv:1512.03385, figures 2
and 5. The stride on the bottleneck's 3-wide convolution is torchvision's "v1.5".

Each ``*_layers`` function lists a block's convolutions as (c_in, c_out, kernel, output lengths);
the counts are sums over that list.
"""

from torch import nn
from torch.nn import functional as F

from .counting import Flops, layer_flops, strided
from .layers import convolution, norm_layer

EXPANSION = 4  # output channels of a bottleneck over its inner width


class Basic(nn.Module):
    """(B, c_in, *lengths) -> (B, c_out, *lengths / stride)."""

    def __init__(self, config, dims, c_in, c_out, stride, kernel=3):
        super().__init__()
        self.conv1 = convolution(dims, c_in, c_out, kernel, stride)
        self.norm1 = norm_layer(config, c_out, dims)
        self.conv2 = convolution(dims, c_out, c_out, kernel)
        self.norm2 = norm_layer(config, c_out, dims)
        self.shortcut = _shortcut(config, dims, c_in, c_out, stride)

    def forward(self, x):
        """Return the block's output; shapes as in the class."""
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.shortcut(x))


class Bottleneck(nn.Module):
    """(B, c_in, h, w) -> (B, 4 width, h / stride, w / stride)."""

    def __init__(self, config, c_in, width, stride):
        super().__init__()
        c_out = EXPANSION * width
        self.conv1 = convolution(2, c_in, width, 1)
        self.norm1 = norm_layer(config, width, 2)
        self.conv2 = convolution(2, width, width, 3, stride)
        self.norm2 = norm_layer(config, width, 2)
        self.conv3 = convolution(2, width, c_out, 1)
        self.norm3 = norm_layer(config, c_out, 2)
        self.shortcut = _shortcut(config, 2, c_in, c_out, stride)

    def forward(self, x):
        """Return the block's output; shapes as in the class."""
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        return F.relu(y + self.shortcut(x))


class Classifier(nn.Module):
    """Mean over all positions, then a linear layer: (B, c, *lengths) -> logits (B, classes)."""

    def __init__(self, channels, classes):
        super().__init__()
        self.linear = nn.Linear(channels, classes)

    def forward(self, x):
        """Return the logits; shapes as in the class."""
        return self.linear(x.flatten(2).mean(2))


def basic_layers(c_in, c_out, stride, lengths, kernel=3):
    """List the convolutions of ``Basic`` on inputs of these lengths."""
    out = strided(lengths, stride)
    main = [(c_in, c_out, kernel, out), (c_out, c_out, kernel, out)]
    return main + _shortcut_layers(c_in, c_out, stride, out)


def bottleneck_layers(c_in, width, stride, lengths):
    """List the convolutions of ``Bottleneck`` on inputs of these lengths."""
    out, c_out = strided(lengths, stride), EXPANSION * width
    main = [(c_in, width, 1, lengths), (width, width, 3, out), (width, c_out, 1, out)]
    return main + _shortcut_layers(c_in, c_out, stride, out)


def convolution_parameters(layers):
    """Count the parameters of listed convolutions, each followed by a norm: weights + 2 c_out."""
    return sum(
        c_in * c_out * kernel ** len(lengths) + 2 * c_out for c_in, c_out, kernel, lengths in layers
    )


def convolution_flops(batch, layers, *, first=False):
    """Count the FLOPs of listed convolutions; ``first``: the block's input needs no gradient."""
    total = Flops(0, 0)
    for c_in, c_out, kernel, lengths in layers:
        positions = batch
        for length in lengths:
            positions *= length
        total += layer_flops(positions, c_in, c_out, kernel ** len(lengths), first=first)
    return total


def _shortcut(config, dims, c_in, c_out, stride):
    if stride == 1 and c_in == c_out:
        return nn.Identity()
    return nn.Sequential(convolution(dims, c_in, c_out, 1, stride), norm_layer(config, c_out, dims))


def _shortcut_layers(c_in, c_out, stride, out):
    return [] if stride == 1 and c_in == c_out else [(c_in, c_out, 1, out)]
