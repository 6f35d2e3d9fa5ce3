"""Data parallelism with overlap: a bucket is averaged as soon as its gradients are there.

    time = forward + max(backward, communication that the backward pass hides) + the rest

Backward reaches the last layers first, and their gradients travel while it works on the layers
before them (wait-free backpropagation). The buckets start in a fixed order, the same on every rank,
whatever the order in which gradients become ready: collectives match by order. So a bucket waits
for those before it.

The small difference to :mod:`bucketed`: gradients are moved to their buckets in the hook, and full
buckets start there. What is left at the end is to wait.
"""

from lsdl_lib.communication.data_parallel.bucketed import BucketedDataParallel


class OverlappedDataParallel(BucketedDataParallel):
    """Average each bucket while the backward pass goes on; see :class:`BucketedDataParallel`."""

    def __init__(self, module, group=None, **options):
        super().__init__(module, group, **options)
        self._place = {
            index: (number, view)
            for number, bucket in enumerate(self.buckets)
            for index, view in zip(bucket.indices, bucket.views)
        }
        self.begin()

    def begin(self):
        """Nothing is ready, nothing has started."""
        self._waiting_for = [len(bucket.indices) for bucket in self.buckets]
        self._handles = []

    def gradient_ready(self, index):
        """Put the gradient in its bucket, and start the buckets whose turn it is."""
        if index in self.sparse:
            return
        number, view = self._place[index]
        self.fill(index, view)
        self._waiting_for[number] -= 1
        self._start_those_in_turn()

    def average(self, missing):
        """Start what has not started for lack of gradients, then wait for all buckets."""
        for index in missing:
            self.gradient_ready(index)
        for bucket, handle in zip(self.buckets, self._handles, strict=True):
            self.finish(bucket, handle)
        self.average_sparse()

    def _start_those_in_turn(self):
        while (turn := len(self._handles)) < len(self.buckets) and not self._waiting_for[turn]:
            self._handles.append(self.start(self.buckets[turn]))
