"""Scaled sign: one bit a number, and one scale a tensor, its mean absolute value.

    C(p) = (||p||_1 / d) sign(p)          d numbers; sign(0) = +1
    ||p - C(p)||^2 = ||p||^2 - ||p||_1^2 / d

So it loses nothing of a tensor whose numbers are of one size, and almost all of one that has a
single large number. It is biased; with error feedback it is EF-signSGD, which converges as SGD does
(Karimireddy et al. 2019, algorithm 1):

    ErrorFeedback(ScaledSign())

A message takes ceil(d / 8) + 4 bytes a tensor.
"""

import torch

from lsdl_lib.communication.compression.compressor import Compressor
from lsdl_lib.communication.compression.packing import pack_signs, unpack
from lsdl_lib.communication.compression.scales import scale_dtype


class ScaledSign(Compressor):
    """Send the signs of a tensor and its mean absolute value."""

    by_tensor = True

    def compress(self, vector, key=0):
        """Return (signs, (ceil(d / 8),) uint8; scale, (1,)). NaN and infinity travel as scale."""
        dtype = scale_dtype(vector.dtype)
        # ``vector_norm`` adds one after the other: a large tensor's scale would be a percent off.
        total = vector.abs().sum(dtype=dtype)
        return pack_signs(vector.reshape(-1)), (total / max(vector.numel(), 1)).view(1)

    def decompress(self, message, like):
        """Return the scale with the signs, in the shape of ``like``."""
        signs, scale = message
        positive = unpack(signs, 1, like.numel()).bool()
        return torch.where(positive, scale, -scale).to(like.dtype).view_as(like)
