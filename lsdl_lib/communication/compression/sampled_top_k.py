"""Top-k by a sampled threshold: guess from a few numbers which ones are among the k largest.

    sample     s of the n numbers, drawn at random, with repetition
    threshold  the (k s / n)-th largest size in the sample
    send       all numbers of at least that size; where they are far too many, the k largest of them

To sort out the k largest of n numbers is the costly part of top-k. Here the sample is sorted, and
then only what passed the threshold, if that is too much (Lin et al. 2018). The number that is sent
varies around k.
"""

import torch

from lsdl_lib.communication.compression.randomness import RandomCompressor
from lsdl_lib.communication.compression.top_k import (
    checked_share,
    from_pairs,
    number_kept,
    pairs,
)


class SampledTopK(RandomCompressor):
    """Keep about a share of the numbers: those that a sample's threshold lets pass.

    Args:
        share: k/n, above 0 and at most 1; it may be set anew from step to step.
        sample: s/n; the paper uses 0.001 to 0.01. At least 1/share numbers are drawn, so that one
            of them is expected among the k.
        most: send at most ``most`` x k; if more passed, the k largest are sent.
        by_tensor: choose among each tensor's numbers, not among the whole vector's.
        seed: of the sample.

    Raises:
        ValueError: a share out of range, or ``most`` below 1.
    """

    unbiased = False
    same_size = False

    def __init__(self, share, sample=0.01, *, most=1.3, by_tensor=False, seed=0):
        super().__init__(seed)
        if not 0 < sample <= 1:
            raise ValueError(f"sample={sample!r}: give the part to look at, above 0 and at most 1")
        if most < 1:
            raise ValueError(f"most={most!r}: give at least 1")
        self.share, self.sample, self.most = checked_share(share), sample, most
        self.by_tensor = by_tensor

    def compress(self, vector, key=0):
        """Return (indices, (about k,) int32; values, as many)."""
        sizes = vector.reshape(-1).abs()
        k = number_kept(self.share, sizes.numel())
        if k == sizes.numel():
            return pairs(vector, torch.arange(k, device=vector.device))
        # Not below, instead of at least: NaN passes, so every rank sees it.
        indices = (~(sizes < self.threshold(sizes))).nonzero().flatten()
        if indices.numel() > self.most * k:
            indices = indices[torch.topk(sizes[indices], k, sorted=False).indices]
        return pairs(vector, indices)

    def decompress(self, message, like):
        """Return the sent numbers in their places, and 0 elsewhere."""
        return from_pairs(message, like)

    def threshold(self, sizes):
        """Return the size that about a share of ``sizes``, (n,), reach."""
        n = sizes.numel()
        drawn = min(n, max(number_kept(self.sample, n), number_kept(1, round(1 / self.share))))
        places = torch.randint(
            n, (drawn,), generator=self.generator(sizes.device), device=sizes.device
        )
        largest = torch.topk(sizes[places], number_kept(self.share, drawn)).values
        return largest[-1]
