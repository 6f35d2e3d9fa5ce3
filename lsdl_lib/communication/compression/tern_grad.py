"""TernGrad: each number becomes -s, 0 or s by chance, so that it is right on average.

    s = max |g|  of the tensor             b_i = 1 with probability |g_i| / s, else 0
    C(g)_i = s sign(g_i) b_i               E C(g) = g,    E ||C(g)||^2 = s ||g||_1

A few large numbers make s large and the rest noisy. So the paper clips first, at c times the
standard deviation, c = 2.5; clipped numbers are no longer right on average. Here the deviation is
taken from 0, not from the mean, so that a tensor of one number or of equal numbers is not clipped
to nothing.

A message takes ceil(n / 4) bytes for a bucket of n numbers, two bits each, and 4 bytes a tensor: 16
times less than float32. Three values carry log2 3 = 1.585 bits, so a perfect code would reach 20.2
times.

Unbiased, or nearly so, it needs no error feedback, and may not gain by it: its noise is often
larger than the vector (s ||g||_1 > 2 ||g||^2), and then so are the errors that are carried on.

The paper lets all workers share the largest s, so that a server can send the sum of their -1, 0, 1
on in few bits. Here every rank gets all messages and none is added on the way, so that each rank
keeps its own s, which is smaller and so less noisy (Wen et al. 2017).
"""

import torch

from lsdl_lib.communication.compression.packing import pack, unpack
from lsdl_lib.communication.compression.randomness import RandomCompressor
from lsdl_lib.communication.compression.scales import scale_dtype
from lsdl_lib.communication.compression.segments import SegmentedCompressor


class TernGrad(RandomCompressor, SegmentedCompressor):
    """Send -1, 0 or 1 for each number of a bucket, and a scale for each tensor.

    Args:
        clip: numbers are clipped at this many standard deviations; None: they are not, and the
            compressor is unbiased.
        seed: of the random numbers.

    Raises:
        ValueError: ``clip`` is not above 0.
    """

    def __init__(self, clip=2.5, seed=0):
        super().__init__(seed)
        if clip is not None and not clip > 0:
            raise ValueError(f"clip={clip!r}: give a number above 0, or None")
        self.clip, self.unbiased = clip, clip is None

    def compress_segments(self, vector, segments):
        """Return (0, 1, 2 for -s, 0, s, (ceil(n / 4),) uint8; s, (tensors,)). NaN travels as s."""
        vector = vector.to(scale_dtype(vector.dtype))
        scales = segments.largest(vector.abs())
        finite = torch.isfinite(scales)
        # Numbers beside the largest: they cannot overflow, nor can their squares.
        units = segments.spread(torch.where(finite & (scales > 0), scales, 1))
        shares = (vector / units).abs_()
        if self.clip is not None:
            means = segments.sums(shares.square()) / segments.lengths.clamp(min=1)
            clips = torch.clamp(self.clip * means.sqrt(), max=1).to(scales.dtype)
            scales = torch.where(finite, scales * clips, scales)
            # Clipped numbers get a share above 1, and are sent for sure.
            shares /= segments.spread(torch.where(clips > 0, clips, 1))
        shares *= segments.spread(finite)
        sent = (self.uniform(vector) < shares).to(torch.uint8)
        return pack(torch.where(vector < 0, 1 - sent, 1 + sent), 2), scales

    def decompress_segments(self, message, segments, dtype):
        """Return -s, 0 or s, (n,)."""
        codes, scales = message
        ternary = unpack(codes, 2, segments.n).to(scales.dtype).sub_(1)
        return ternary.mul_(segments.spread(scales)).to(dtype)
