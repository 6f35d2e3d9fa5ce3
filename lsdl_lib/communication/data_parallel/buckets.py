"""Buckets: gradients side by side in one vector, so that one message carries many.

    time of all all-reduces = (number of buckets) x latency part + bytes / bandwidth part

Parameters are taken in reverse order of registration, which is about the order in which backward
reaches them. A bucket is closed as soon as it holds its size or more, as in torch: if it were
closed before a gradient that exceeds it, a layer's bias would travel alone, ahead of its large
weight. The first bucket is small, so that communication begins early.

A bucket offers what ``torch.distributed.GradBucket`` does, so that communication hooks written for
torch's DistributedDataParallel run here, and ours there.
"""

import torch

FIRST_BUCKET_MB = 1  # MiB
BUCKET_MB = 25  # MiB, as in torch


class Bucket:
    """Gradients of some parameters, as views of one vector.

    Attributes:
        indices: of its parameters, in the order of the vector.
        views: of the vector, one a parameter, in its shape.
    """

    def __init__(self, number, last, indices, parameters):
        self.indices = indices
        self._number, self._last, self._parameters = number, last, parameters
        sizes = [parameter.numel() for parameter in parameters]
        # Padded by nothing: a hook sees the gradients and only them.
        self._buffer = torch.zeros(
            sum(sizes), dtype=parameters[0].dtype, device=parameters[0].device
        )
        self.views = [
            part.view_as(parameter)
            for part, parameter in zip(self._buffer.split(sizes), parameters, strict=True)
        ]

    def buffer(self):
        """Return the vector, (sum of the sizes,)."""
        return self._buffer

    def set_buffer(self, tensor):
        """Write ``tensor`` to the vector: gradients stay views of it."""
        self._buffer.copy_(tensor.view_as(self._buffer))

    def gradients(self):
        """Return the gradients, in their shapes."""
        return self.views

    def parameters(self):
        """Return the parameters, in the order of the vector."""
        return self._parameters

    def index(self):
        """Return the number of this bucket; 0 is the first to be sent."""
        return self._number

    def is_last(self):
        """Tell whether this is the last to be sent."""
        return self._last


def make_buckets(parameters, bucket_mb=BUCKET_MB, first_bucket_mb=FIRST_BUCKET_MB, leave_out=()):
    """Return the :class:`Bucket` list for parameters in order of registration.

    Args:
        parameters: each goes whole into one bucket, with others of its type and device.
        bucket_mb: a bucket that holds as many MiB is closed; its last parameter may exceed them.
        first_bucket_mb: the same of the first bucket.
        leave_out: indices of parameters that go into no bucket.

    Raises:
        ValueError: a size is not above 0.
    """
    for name, size in (("bucket_mb", bucket_mb), ("first_bucket_mb", first_bucket_mb)):
        if not size > 0:
            raise ValueError(f"{name}={size!r}: give MiB above 0")
    filled, open_, used, kind = [], [], 0, None
    for index in reversed(range(len(parameters))):
        if index in leave_out:
            continue
        parameter = parameters[index]
        if open_ and kind != _kind(parameter):
            filled.append(open_)
            open_, used = [], 0
        open_.append(index)
        used, kind = used + _bytes(parameter), _kind(parameter)
        if used >= 2**20 * (bucket_mb if filled else first_bucket_mb):
            filled.append(open_)
            open_, used = [], 0
    if open_:
        filled.append(open_)
    return [
        Bucket(number, number == len(filled) - 1, indices, [parameters[i] for i in indices])
        for number, indices in enumerate(filled)
    ]


def _bytes(parameter):
    return parameter.numel() * parameter.element_size()


def _kind(parameter):
    return parameter.dtype, parameter.device
