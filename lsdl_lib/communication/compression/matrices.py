"""Gradients as matrices: the first dimension against all others.

A convolution's (out, in, height, width) becomes (out, in height width), one row an output channel.
Vectors and single numbers stay what they are; there is nothing to gain (Vogels et al. 2019,
section 3).
"""

from math import prod

import torch


def matrix_shape(shape):
    """Return (n, m) of a tensor's shape, or None: below two dimensions, or empty."""
    if len(shape) < 2 or not prod(shape):
        return None
    return shape[0], prod(shape[1:])


def working_type(dtype):
    """Return the type to compute in: the vector's own, but float32 for the half types."""
    return torch.float32 if dtype.itemsize < 4 else dtype
