"""The scales that travel beside the bits: how large the numbers are that the bits tell apart.

A scale is computed and sent in float32 for types of 16 bits: their own range would overflow in a
sum, and their own precision would bias every number of a tensor alike. In float64 it is float64.
"""

import torch


def scale_dtype(dtype):
    """Return the type of a scale for numbers of a type."""
    return torch.promote_types(dtype, torch.float32)


def norms(rows, order):
    """Return each row's norm, (rows,), in ``scale_dtype``.

    Args:
        rows: (rows, n) numbers.
        order: 2, or infinity for the largest absolute value.
    """
    rows = rows.to(scale_dtype(rows.dtype))
    if not rows.numel():
        return rows.new_zeros(len(rows))
    largest = torch.linalg.vector_norm(rows, float("inf"), dim=1)
    if order == float("inf"):
        return largest
    # Squares overflow or vanish where the norm does not; beside the largest number they cannot.
    unit = torch.where(largest > 0, largest, 1)
    # ``vector_norm`` adds one after the other: a long row's norm would be a percent off.
    return (rows / unit[:, None]).square_().sum(1).sqrt_() * largest


def ratios(rows, scales):
    """Return |numbers| / scale from 0 to 1, (rows, n); 0 where the scale is 0 or not finite."""
    bad = ~torch.isfinite(scales)
    divisors = torch.where(bad | (scales == 0), 1, scales)
    # A scale is rounded: the largest number may be a little above it.
    found = torch.div(rows, divisors[:, None]).abs_().clamp_(max=1)
    return found.masked_fill_(bad[:, None], 0)
