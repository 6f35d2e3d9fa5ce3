"""Scaled sign: one bit a number, and one scale a tensor, its mean absolute value.

    C(p) = (||p||_1 / d) sign(p)          d numbers; sign(0) = +1
    ||p - C(p)||^2 = ||p||^2 - ||p||_1^2 / d

So it loses nothing of a tensor whose numbers are of one size, and almost all of one that has a
single large number. It is biased; with error feedback it is EF-signSGD, which converges as SGD does
(Karimireddy et al. 2019, algorithm 1):

    ErrorFeedback(ScaledSign())

A message takes ceil(d / 8) bytes for a bucket of d numbers and 4 a tensor.
"""

import torch

from lsdl_lib.communication.compression.packing import pack_signs, unpack
from lsdl_lib.communication.compression.scales import scale_dtype
from lsdl_lib.communication.compression.segments import SegmentedCompressor


class ScaledSign(SegmentedCompressor):
    """Send the signs of a bucket and the mean absolute value of each of its tensors."""

    def compress_segments(self, vector, segments):
        """Return (signs, (ceil(d / 8),) uint8; scales, (tensors,)).

        NaN and infinity travel as scales.
        """
        scales = segments.sums(vector.abs()) / segments.lengths.clamp(min=1)
        return pack_signs(vector), scales.to(scale_dtype(vector.dtype))

    def decompress_segments(self, message, segments, dtype):
        """Return the scales with the signs, (n,)."""
        signs, scales = message
        both = torch.stack((-scales, scales), 1).view(-1)
        return both.index_select(0, 2 * segments.places + unpack(signs, 1, segments.n)).to(dtype)
