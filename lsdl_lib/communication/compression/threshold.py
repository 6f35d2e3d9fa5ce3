"""Threshold: send +tau or -tau where a number's size is at least tau; keep the rest for later.

    C(x)_i = tau sign(x_i) where |x_i| >= tau, else 0

An element takes 4 bytes: its index, and its sign in the bit that an index leaves free (Strom 2015).
How many are sent is for the gradient to say, so messages differ in size. Used under
:class:`ErrorFeedback`: what is below tau, and what a number has above it, waits.

A number moves by at most tau a step. Where a gradient stays above tau the error grows with the
steps, without bound: tau must be larger than the typical gradient, or it is a clip that comes due
later. To send the values themselves, use top-k.
"""

import torch

from lsdl_lib.communication.compression.compressor import Compressor
from lsdl_lib.communication.compression.top_k import check_index_fits

NOT_FINITE = -(2**31)  # no word of an element: it would be a negative number at index 2**31 - 1


class Threshold(Compressor):
    """Send the signs of the numbers that reach a threshold.

    Args:
        tau: the threshold, above 0; it is also the size that is sent.

    Raises:
        ValueError: another tau.
    """

    same_size = False

    def __init__(self, tau):
        if not tau > 0:
            raise ValueError(f"tau={tau!r}: give a threshold above 0")
        self.tau = tau

    def compress(self, vector, key=0):
        """Return (words,), (number of elements sent,) int32: i for +tau at index i, -1-i for -tau.

        A vector that is not finite is one word that says so.
        """
        check_index_fits(vector.numel())
        if not torch.isfinite(vector).all():
            return (torch.full((1,), NOT_FINITE, dtype=torch.int32, device=vector.device),)
        indices = (vector.abs() >= self.tau).nonzero().flatten()
        negative = vector[indices] < 0
        return (torch.where(negative, -1 - indices, indices).to(torch.int32),)

    def decompress(self, message, like):
        """Return +tau and -tau in their places, (n,), and 0 elsewhere."""
        (words,) = message
        if words.numel() == 1 and int(words) == NOT_FINITE:
            return torch.full_like(like, torch.nan)
        negative, indices = words < 0, words.long()
        tau = torch.full_like(indices, self.tau, dtype=like.dtype)
        indices = torch.where(negative, -1 - indices, indices)
        return torch.zeros_like(like).index_put_((indices,), torch.where(negative, -tau, tau))
