"""Exact parameter and FLOP counts, in closed form from a model's config and the shape of its input.

Convention (that of torch's ``FlopCounterMode``): matrix products, convolutions and attention count,
two FLOPs a multiply-add; biases, norms, activations, pooling and embeddings count nothing; padding
and the causal mask save nothing. For a layer with c_in inputs and c_out outputs at m positions::

    forward = 2 m c_in c_out k^d        (k^d = 1 for a linear layer)
    backward = forward (gradient of the weight) + forward (gradient of the input)

The first layer of a model needs no gradient of its input, so that its backward is one forward.
Attention's backward is counted as twice its forward, the products that the mathematics needs. Fused
kernels compute the scores once more in the backward: torch's counter adds that on CUDA, and misses
the CPU's fused kernel altogether (it counts 0 for it), forward and backward.
"""

import copy
from dataclasses import dataclass
from functools import singledispatch
from math import prod

import torch
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of one pass over one batch."""

    forward: int
    backward: int

    @property
    def total(self):
        """Forward and backward together: a training step without its optimizer."""
        return self.forward + self.backward

    def __add__(self, other):
        return Flops(self.forward + other.forward, self.backward + other.backward)


@singledispatch
def block_parameters(config):
    """Return the number of parameters of each block, a list of int.

    A tied parameter counts in the first block that has it, so that the sum is the model's count.
    Frozen parameters count; running statistics of batch norm (buffers) do not.

    Raises:
        TypeError: ``config`` is not the config of a model of this package.
    """
    raise TypeError(f"no parameter count for {config!r}; pass the config of a model")


@singledispatch
def block_flops(config, input_shape):
    """Return the ``Flops`` of each block, a list, for all parameters trainable.

    Args:
        config: of a model.
        input_shape: of the whole batch, as the model's ``forward`` takes it.

    Raises:
        TypeError: ``config`` is not the config of a model of this package.
        ValueError: the shape does not fit the config.
    """
    raise TypeError(f"no FLOP count for {config!r}; pass the config of a model")


def parameter_count(config):
    """Return the model's number of parameters, tied ones once."""
    return sum(block_parameters(config))


def flop_count(config, input_shape):
    """Return the ``Flops`` of the whole model for a batch of shape ``input_shape``."""
    return sum(block_flops(config, input_shape), Flops(0, 0))


def counted_flops(model, x):
    """Count with torch's own counter, on a copy without data (meta device); nothing is computed.

    Attention runs there as two plain products, whatever the device of ``model``. Parameters that do
    not require a gradient save their share, as does an input that does not.

    Args:
        model: any module that returns one tensor.
        x: its input; values do not matter.
    """
    # Deep copies take what the memo holds for an object: here an empty stand-in for each tensor.
    stand_in = {id(t): _without_data(t) for t in [*model.parameters(), *model.buffers()]}
    model, x = copy.deepcopy(model, stand_in), x.detach().to("meta")
    with FlopCounterMode(display=False) as forward:
        total = model(x).sum()
    with FlopCounterMode(display=False) as backward:
        total.backward()
    return Flops(forward.get_total_flops(), backward.get_total_flops())


def _without_data(tensor):
    empty = torch.empty_like(tensor, device="meta")
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


def linear_parameters(c_in, c_out):
    """Weight and bias."""
    return c_in * c_out + c_out


def layer_flops(positions, c_in, c_out, kernel=1, *, first=False):
    """Count a convolution or linear layer at ``positions`` outputs (batch included); see above.

    ``kernel`` is the number of taps, k^d. ``first``: the input needs no gradient.
    """
    forward = 2 * positions * c_in * c_out * kernel
    return Flops(forward, forward if first else 2 * forward)


def strided(lengths, stride):
    """Return the output lengths of a convolution with odd kernel k and padding k // 2."""
    return tuple(-(-length // stride) for length in lengths)


def check_input(input_shape, channels, dims):
    """Return (batch, lengths) of an input of shape (B, channels, *lengths).

    Raises:
        ValueError: another number of channels or dimensions.
    """
    batch, *rest = input_shape
    if len(rest) != dims + 1 or rest[0] != channels or prod(input_shape) < 1:
        raise ValueError(
            f"input shape {tuple(input_shape)} does not fit; give (batch, {channels}, "
            f"{', '.join(['length'] * dims)})"
        )
    return batch, tuple(rest[1:])
