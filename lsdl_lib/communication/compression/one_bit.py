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

A message takes ceil(n / 8) bytes and 8 a column; with short columns the means outweigh the bits.
"""

import torch

from lsdl_lib.communication.compression.compressor import Compressor
from lsdl_lib.communication.compression.packing import pack_signs, unpack
from lsdl_lib.communication.compression.scales import scale_dtype


class OneBitSGD(Compressor):
    """Send the signs of a tensor and two means for each column."""

    by_tensor = True

    def compress(self, vector, key=0):
        """Return (signs, (ceil(n / 8),) uint8; means, (2 columns,): all up, then all down)."""
        columns, dtype = _columns(vector), scale_dtype(vector.dtype)
        positive = (columns >= 0).sum(1, dtype=torch.int32)
        counts = torch.stack((positive, columns.shape[1] - positive))
        # Clamping keeps NaN and infinity, so they travel in the means.
        sums = [columns.clamp(min=0).sum(1, dtype=dtype), columns.clamp(max=0).sum(1, dtype=dtype)]
        means = torch.stack(sums) / counts.clamp(min=1)
        return pack_signs(columns.reshape(-1)), means.view(-1)

    def decompress(self, message, like):
        """Return each number's mean, in the shape of ``like``."""
        signs, means = message
        columns = _columns(like)
        up, down = means.view(2, len(columns))
        positive = unpack(signs, 1, like.numel()).bool().view_as(columns)
        return torch.where(positive, up[:, None], down[:, None]).to(like.dtype).view_as(like)


def _columns(tensor):
    """Return a view of (columns, numbers in each)."""
    count = tensor.shape[0] if tensor.dim() > 1 else 1
    return tensor.reshape(count, tensor.numel() // max(count, 1))
