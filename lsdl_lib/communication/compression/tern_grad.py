"""TernGrad: each number becomes -s, 0 or s by chance, so that it is right on average.

    s = max |g|  of the tensor             b_i = 1 with probability |g_i| / s, else 0
    C(g)_i = s sign(g_i) b_i               E C(g) = g,    E ||C(g)||^2 = s ||g||_1

A few large numbers make s large and the rest noisy. So the paper clips first, at c times the
standard deviation, c = 2.5; clipped numbers are no longer right on average. Here the deviation is
taken from 0, not from the mean, so that a tensor of one number or of equal numbers is not clipped
to nothing.

A message takes ceil(n / 4) bytes, two bits a number, and 4 bytes a tensor: 16 times less than
float32. Three values carry log2 3 = 1.585 bits, so a perfect code would reach 20.2 times.

Unbiased, or nearly so, it needs no error feedback, and may not gain by it: its noise is often
larger than the vector (s ||g||_1 > 2 ||g||^2), and then so are the errors that are carried on.

The paper lets all workers share the largest s, so that a server can send the sum of their -1, 0, 1
on in few bits. Here every rank gets all messages and none is added on the way, so that each rank
keeps its own s, which is smaller and so less noisy (Wen et al. 2017).
"""

import torch

from lsdl_lib.communication.compression.packing import pack, unpack
from lsdl_lib.communication.compression.randomness import RandomCompressor
from lsdl_lib.communication.compression.scales import norms, ratios, scale_dtype


class TernGrad(RandomCompressor):
    """Send -1, 0 or 1 for each number of a tensor, and a scale.

    Args:
        clip: numbers are clipped at this many standard deviations; None: they are not, and the
            compressor is unbiased.
        seed: of the random numbers.

    Raises:
        ValueError: ``clip`` is not above 0.
    """

    by_tensor = True

    def __init__(self, clip=2.5, seed=0):
        super().__init__(seed)
        if clip is not None and not clip > 0:
            raise ValueError(f"clip={clip!r}: give a number above 0, or None")
        self.clip, self.unbiased = clip, clip is None

    def compress(self, vector, key=0):
        """Return (0, 1, 2 for -s, 0, s, (ceil(n / 4),) uint8; s, (1,)). NaN travels as s."""
        row = vector.reshape(1, -1).to(scale_dtype(vector.dtype))
        scale = norms(row, float("inf"))
        if self.clip is not None and row.numel():
            deviation = norms(row, 2) / row.numel() ** 0.5
            scale = torch.minimum(scale, self.clip * deviation)
        # Clipped numbers have a ratio of 1, and are sent for sure.
        sent = (self.uniform(row) < ratios(row, scale)).to(torch.uint8)
        return pack(torch.where(row < 0, 1 - sent, 1 + sent).view(-1), 2), scale

    def decompress(self, message, like):
        """Return -s, 0 or s in the shape of ``like``."""
        codes, scale = message
        ternary = unpack(codes, 2, like.numel()).to(scale.dtype).sub_(1)
        return (ternary * scale).to(like.dtype).view_as(like)
