"""A scale for each segment of a bucket, computed for all segments at once.

A bucket holds many tensors, and many of them are short: a model's biases and gains. Compressing
them one by one, a step takes operations in proportion to tensors times ranks, most of which are too
short to be worth a call. Here a bucket takes the same few operations, however many tensors it has.

    bucket   x x x x x | x x | x x x        3 segments: tensors, or columns of tensors
    scales       s0       s1     s2
"""

from math import prod

import torch

from lsdl_lib.communication.compression.compressor import Compressor
from lsdl_lib.communication.compression.scales import scale_dtype


class Segments:
    """Where segments lie in a vector.

    Args:
        lengths: of the segments, one behind the other.
        device: of the vectors.
    """

    def __init__(self, lengths, device):
        self.count, self.n = len(lengths), sum(lengths)
        self.lengths = torch.tensor(lengths, dtype=torch.int64, device=device)
        numbers = torch.arange(self.count, dtype=torch.int32, device=device)
        self.places = numbers.repeat_interleave(self.lengths, output_size=self.n)

    def sums(self, values):
        """Return each segment's sum, (count,), in float64; 0 where it is empty."""
        # The sum goes one number after the other: in float32 a long one would be a percent off.
        return self._reduced("sum", values.double())

    def largest(self, values):
        """Return each segment's largest value, (count,), in ``scale_dtype``; at least 0."""
        return self._reduced("max", values.to(scale_dtype(values.dtype)))

    def spread(self, scales):
        """Return the scale of each number's segment, (n,)."""
        return scales.index_select(0, self.places)

    def _reduced(self, how, values):
        if not self.n:
            return values.new_zeros(self.count)
        return torch.segment_reduce(values, how, lengths=self.lengths, initial=0, unsafe=True)


class SegmentedCompressor(Compressor):
    """Base of the compressors with scales of tensors, or of parts of them.

    A subclass gives ``compress_segments``, ``decompress_segments``, and ``lengths`` where a tensor
    is not one segment.
    """

    by_tensor = True

    def compress_segments(self, vector, segments):
        """Return the message for a vector, (n,), with these :class:`Segments`."""
        raise NotImplementedError

    def decompress_segments(self, message, segments, dtype):
        """Return what a message says, (n,), of a type."""
        raise NotImplementedError

    def lengths(self, shape):
        """Return the lengths of the segments of a tensor of a shape."""
        return [prod(shape)]

    def compress(self, vector, key=0):
        """Return the message for a tensor."""
        segments = self._segments((vector.shape,), vector.device)
        return self.compress_segments(vector.reshape(-1), segments)

    def decompress(self, message, like):
        """Return what a tensor's message says, in the shape of ``like``."""
        segments = self._segments((like.shape,), like.device)
        return self.decompress_segments(message, segments, like.dtype).view(like.shape)

    def compress_bucket(self, vector, key=0, shapes=None):
        """As :meth:`Compressor.compress_bucket`, for all tensors at once."""
        shapes = (vector.shape,) if shapes is None else tuple(map(tuple, shapes))
        segments = self._segments(shapes, vector.device)

        def read(message):
            return self.decompress_segments(message, segments, vector.dtype)

        return self.compress_segments(vector, segments), read

    def _segments(self, shapes, device):
        # A model has few buckets; without a place for them each step would find the segments anew.
        known = self.__dict__.setdefault("_known_segments", {})
        if (shapes, device) not in known:
            lengths = [length for shape in shapes for length in self.lengths(shape)]
            known[shapes, device] = Segments(lengths, device)
        return known[shapes, device]
