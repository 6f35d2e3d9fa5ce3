"""QSGD: each number is rounded by chance to one of s levels, so that it is right on average.

    x_i = s |v_i| / ||v||             between the levels l = floor(x_i) and l + 1
    C(v)_i = ||v|| sign(v_i) (l + b_i) / s,       b_i = 1 with probability x_i - l, else 0
    E C(v) = v,     E ||C(v)||^2 <= (1 + min(n / s^2, sqrt(n) / s)) ||v||^2

The vector is cut into buckets of n numbers with a norm each, which keeps n, and so the noise, small
(512 in the paper). The theory takes the 2-norm; the largest absolute value, which the paper's
experiments take, is never above it, so the bound holds and the noise is less. It is the default: a
bucket of equal numbers is then exact. With one level it is TernGrad by bucket, without clipping.

A message takes ceil(N b / 8) bytes for N numbers of b bits, sign included, so s < 2^(b-1), and 4 a
bucket. All codes have one width, to be packed and unpacked at once. The paper counts another code,
Elias', which spends few bits on the many small levels: with s = sqrt(n) in one bucket, at most
2.8 n + 32 bits are expected (Alistarh et al. 2017). That one is not built here.

It needs no error feedback. With few levels and the 2-norm it must not have it: noise that is larger
than the vector comes back in the next vector and grows without bound.

A random number has 24 bits, so the probabilities are right to 2^-24.
"""

import torch
import torch.nn.functional as F

from lsdl_lib.communication.compression.packing import pack, unpack
from lsdl_lib.communication.compression.randomness import RandomCompressor
from lsdl_lib.communication.compression.scales import norms, ratios

WIDTHS = (2, 4, 8)


class QSGD(RandomCompressor):
    """Send a level and a sign for each number, and a norm for each bucket.

    Args:
        bits: 2, 4 or 8 a number.
        levels: s, from 1 to 2**(bits-1) - 1; None: the most.
        bucket: numbers that share a norm.
        norm: infinity (the largest absolute value) or 2.
        seed: of the random numbers.

    Raises:
        ValueError: one of them is something else.
    """

    def __init__(self, bits=4, levels=None, bucket=512, norm=float("inf"), seed=0):
        super().__init__(seed)
        if bits not in WIDTHS:
            raise ValueError(f"bits={bits!r}: give one of {', '.join(map(str, WIDTHS))}")
        most = 2 ** (bits - 1) - 1
        levels = most if levels is None else levels
        if not 1 <= levels <= most:
            raise ValueError(f"levels={levels!r}: {bits} bits hold 1 to {most}")
        if bucket < 1:
            raise ValueError(f"bucket={bucket!r}: give the numbers that share a norm, 1 or more")
        if norm not in (2, float("inf")):
            raise ValueError(f"norm={norm!r}: give 2 or infinity")
        self.bits, self.levels, self.bucket, self.norm = bits, levels, bucket, norm

    def compress(self, vector, key=0):
        """Return (levels with sign, plus s, packed uint8; norms, (ceil(N / bucket),))."""
        rows = self._rows(vector)
        scales = norms(rows, self.norm)
        exact = ratios(rows, scales).mul_(self.levels)
        level = exact.floor()
        # Added apart: exact + uniform could be rounded up to the next level.
        level += self.uniform(exact) < exact - level
        codes = level.copysign_(rows).add_(self.levels).to(torch.uint8)
        return pack(codes.view(-1)[: vector.numel()], self.bits), scales

    def decompress(self, message, like):
        """Return what the levels stand for, (N,)."""
        codes, scales = message
        signed = unpack(codes, self.bits, like.numel()).to(scales.dtype).sub_(self.levels)
        rows = self._rows(signed).div_(self.levels)
        return (rows * scales[:, None]).view(-1)[: like.numel()].to(like.dtype)

    def _rows(self, vector):
        """Return (buckets, bucket); zeros, which do not travel, fill the last one up."""
        return F.pad(vector, (0, -vector.numel() % self.bucket)).view(-1, self.bucket)
