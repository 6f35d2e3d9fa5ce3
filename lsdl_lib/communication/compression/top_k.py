"""Top-k: send the k numbers of largest size, as (index, value) pairs.

    top_k(x)_i = x_i where |x_i| is among the k largest, else 0
    ||x - top_k(x)||^2 <= (1 - k/n) ||x||^2

It is biased: small coordinates are never sent, unless :class:`ErrorFeedback` lets them grow
(Aji and Heafield 2017; Stich et al. 2018). A message has k values and k indices of 4 bytes.
"""

from math import ceil

import torch

from lsdl_lib.communication.compression.compressor import Compressor


class TopK(Compressor):
    """Keep a share of the numbers, at least one.

    Args:
        share: k/n, above 0 and at most 1.

    Raises:
        ValueError: another share.
    """

    def __init__(self, share):
        if not 0 < share <= 1:
            raise ValueError(f"share={share!r}: give the part to keep, above 0 and at most 1")
        self.share = share

    def compress(self, vector, key=0):
        """Return (indices, (k,) int32; values, (k,))."""
        k = ceil(self.share * vector.numel())
        # NaN counts as largest, so it is sent, and every rank sees it.
        indices = torch.topk(vector.abs(), k, sorted=False).indices
        return indices.to(torch.int32), vector[indices]

    def decompress(self, message, like):
        """Return the sent numbers in their places, (n,), and 0 elsewhere."""
        indices, values = message
        return torch.zeros_like(like).index_put_((indices.long(),), values)
