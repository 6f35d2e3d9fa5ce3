"""1-bit SGD: one bit a number, and for each column the two values that the bits stand for.

    C(x)_ij = up_j    where x_ij >= 0,    up_j   = mean of the x_ij >= 0 of column j
            = down_j  elsewhere,          down_j = mean of the x_ij < 0 of column j

Conserved: the sum of each column, for its two means are means. Of all pairs of values for these
bits they lose least, so the loss is at most ||x||^2, and smaller unless x is 0. Biased: made for
error feedback, which was invented for it (Seide et al. 2014):

    ErrorFeedback(OneBitSGD())

A column is here all that leads into one output of a layer. Papers write layers as x W, where that
is a column of W; torch keeps weights as (outputs, inputs, ...), where it is ``weight[j]``, a row of
a matrix or a filter of a convolution. A vector, such as a bias, is one column.

A message takes ceil(n / 8) bytes for a bucket of n numbers and 8 a column; with short columns the
means outweigh the bits.
"""

from math import prod

import torch

from lsdl_lib.communication.compression.packing import pack_signs, unpack
from lsdl_lib.communication.compression.scales import scale_dtype
from lsdl_lib.communication.compression.segments import SegmentedCompressor


class OneBitSGD(SegmentedCompressor):
    """Send the signs of a bucket and two means for each column of its tensors."""

    def lengths(self, shape):
        """Return the lengths of a tensor's columns."""
        columns = shape[0] if len(shape) > 1 else 1
        return [prod(shape) // max(columns, 1)] * columns

    def compress_segments(self, vector, segments):
        """Return (signs, (ceil(n / 8),) uint8; means, (2 columns,): down and up of each)."""
        positive = vector >= 0
        above = segments.sums(positive)
        counts = torch.stack((segments.lengths - above, above), 1)
        # Clamping keeps NaN and infinity, so they travel in the means.
        sums = [segments.sums(part) for part in (vector.clamp(max=0), vector.clamp(min=0))]
        means = torch.stack(sums, 1) / counts.clamp(min=1)
        return pack_signs(vector), means.view(-1).to(scale_dtype(vector.dtype))

    def decompress_segments(self, message, segments, dtype):
        """Return each number's mean, (n,)."""
        signs, means = message
        chosen = 2 * segments.places + unpack(signs, 1, segments.n)
        return means.index_select(0, chosen).to(dtype)
