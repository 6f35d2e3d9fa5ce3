"""Top-k: send the k numbers of largest size, as (index, value) pairs.

    top_k(x)_i = x_i where |x_i| is among the k largest, else 0
    ||x - top_k(x)||^2 <= (1 - k/n) ||x||^2

It is biased: small coordinates are never sent, unless :class:`ErrorFeedback` lets them grow
(Aji and Heafield 2017; Stich et al. 2018). A message has k values and k indices of 4 bytes: in
float32 it is smaller than the vector only where k < n/2.
"""

from math import ceil

import torch

from lsdl_lib.communication.compression.compressor import Compressor


class TopK(Compressor):
    """Keep a share of the numbers, at least one.

    Args:
        share: k/n, above 0 and at most 1; it may be set anew from step to step.
        by_tensor: choose among each tensor's numbers, not among the whole vector's. A layer with
            small gradients then sends its share too.

    Raises:
        ValueError: another share.
    """

    def __init__(self, share, *, by_tensor=False):
        self.share = checked_share(share)
        self.by_tensor = by_tensor

    def compress(self, vector, key=0):
        """Return (indices, (k,) int32; values, (k,))."""
        sizes = vector.reshape(-1).abs()
        k = number_kept(self.share, sizes.numel())
        # NaN counts as largest, so it is sent, and every rank sees it.
        return pairs(vector, torch.topk(sizes, k, sorted=False).indices)

    def decompress(self, message, like):
        """Return the sent numbers in their places, and 0 elsewhere."""
        return from_pairs(message, like)


def checked_share(share):
    """Return ``share`` if it is above 0 and at most 1.

    Raises:
        ValueError: it is not.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share={share!r}: give the part to keep, above 0 and at most 1")
    return share


def number_kept(share, n):
    """Return k: a share of n rounded up, so at least 1 of at least 1."""
    # 0.07 * 100 is 7.000000000000001 in floating point; 7 is meant.
    return min(n, max(1, ceil(share * n * (1 - 1e-12))))


def pairs(vector, indices):
    """Return (indices as int32; the numbers there).

    Raises:
        ValueError: the vector's indices do not fit 32 bits.
    """
    check_index_fits(vector.numel())
    return indices.to(torch.int32), vector.reshape(-1)[indices]


def from_pairs(message, like):
    """Return the numbers of (indices, values) in their places, and 0 elsewhere."""
    indices, values = message
    return like.new_zeros(like.numel()).index_put_((indices.long(),), values).view(like.shape)


def check_index_fits(n):
    """Raise ValueError where indices below n need more than 31 bits."""
    if n >= 2**31:
        raise ValueError(f"{n} numbers: their indices do not fit 32 bits. Use smaller buckets")
