"""Delayed data parallelism: apply the average of d steps ago while this step's travels.

    w_{t+1} = w_t - lr (1/p) sum over ranks of g(w_{t-d}),   and no step while t < d
    time    = max(forward + backward, communication)          for d > 0

The all-reduce has the whole next forward and backward pass to hide behind, and not only the rest of
its own backward pass. Each gradient is exactly d steps old, on every rank alike: unlike with a
parameter server the copies stay equal and the run is the same every time. The price is staleness,
so the learning rate may have to be smaller. d = 0 is synchronous data parallelism.
"""

from collections import deque

from lsdl_lib.communication.data_parallel import BucketedDataParallel
from lsdl_lib.communication.data_parallel.buckets import BUCKET_MB, FIRST_BUCKET_MB, make_buckets


class DelayedDataParallel(BucketedDataParallel):
    """Give each backward pass the average of the one ``delay`` passes before.

    While there is none yet, gradients are None, and optimizers of torch skip the step. Empty the
    gradients before each backward pass: what is left in them would be averaged once more. At the
    end of training take the last averages from :meth:`drain`.

    ``state_dict`` holds what is travelling, so that training goes on as if never stopped.

    Args:
        module, group, options: as in :class:`BucketedDataParallel`.
        delay: d, in backward passes that average; memory for d + 1 gradients.

    Raises:
        ValueError: ``delay`` is negative, or the model has sparse gradients.
    """

    def __init__(
        self,
        module,
        group=None,
        *,
        delay=1,
        bucket_mb=BUCKET_MB,
        first_bucket_mb=FIRST_BUCKET_MB,
        **options,
    ):
        if not isinstance(delay, int) or delay < 0:
            raise ValueError(f"delay={delay!r}: give a whole number of steps, at least 0")
        sizes = {"bucket_mb": bucket_mb, "first_bucket_mb": first_bucket_mb}
        super().__init__(module, group, **sizes, **options)
        if self.sparse:
            names = ", ".join(self.names[index] for index in sorted(self.sparse))
            raise ValueError(f"{names}: sparse gradients are not delayed, use sparse=False")
        self.delay = delay
        # While the gradients of one step travel, those of the next need memory of their own.
        self._free = deque([self.buckets])
        for _ in range(delay):
            self._free.append(make_buckets(self.parameters_, **sizes))
        self._travelling = deque()  # (buckets, handles, or None when they have arrived)

    def average(self, missing):
        """Start this pass's average, and take that of ``delay`` passes ago."""
        buckets = self._free.popleft()
        for bucket in buckets:
            for index, view in zip(bucket.indices, bucket.views):
                self.fill(index, view)
        if len(self._travelling) == self.delay > 0:
            # They would share the link: the oldest first, so that no more than d travel.
            self._arrived(*self._travelling[0])
            self._travelling[0] = (self._travelling[0][0], None)
        self._travelling.append((buckets, [self.start(bucket) for bucket in buckets]))
        if len(self._travelling) > self.delay:
            self._take()
        else:
            for parameter in self.parameters_:
                parameter.grad = None

    def drain(self):
        """Yield once for each average that still travels, its gradients in place: step then."""
        while self._travelling:
            self._take()
            yield

    def get_extra_state(self):
        """Return the averages that travel, the oldest first, as lists of vectors."""
        for buckets, handles in self._travelling:
            self._arrived(buckets, handles)
        self._travelling = deque((buckets, None) for buckets, _ in self._travelling)
        return [[bucket.buffer().clone() for bucket in buckets] for buckets, _ in self._travelling]

    def set_extra_state(self, state):
        """Go on with saved averages; the gradients are None afterwards.

        Raises:
            ValueError: they are more than ``delay``.
        """
        if len(state) > self.delay:
            raise ValueError(f"{len(state)} saved averages do not fit delay={self.delay}")
        for buckets, handles in self._travelling:
            self._arrived(buckets, handles)
            self._free.append(buckets)
        self._travelling.clear()
        for parameter in self.parameters_:
            parameter.grad = None  # it may be a view of the memory that is written next
        for vectors in state:
            buckets = self._free.popleft()
            for bucket, vector in zip(buckets, vectors, strict=True):
                bucket.set_buffer(vector)
            self._travelling.append((buckets, None))

    def _take(self):
        """Make the oldest average that travels the parameters' gradients."""
        buckets, handles = self._travelling.popleft()
        self._arrived(buckets, handles)
        for bucket in buckets:
            for index, view in zip(bucket.indices, bucket.views):
                self.parameters_[index].grad = view
        self._free.append(buckets)

    def _arrived(self, buckets, handles):
        """Wait until buckets hold their averages; no handles: they do."""
        for bucket, handle in zip(buckets, handles or ()):
            self.finish(bucket, handle)
