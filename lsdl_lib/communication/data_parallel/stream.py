"""A stream: calls of one collective, run in the background one after the other.

    start = max(called, end of the call before)

Two messages that travel at once share the link, and both arrive late. Where one goes first, it
arrives early, and the other one no later than before. NCCL runs the collectives of a group in a
CUDA stream, in the order in which they are called; this is the same for processes without a GPU.
"""

import threading
import time
from dataclasses import dataclass

import torch.distributed as dist

from lsdl_lib.communication.collectives.calling import perform
from lsdl_lib.measure import virtual


@dataclass(frozen=True)
class Call:
    """One call of a stream; moments in seconds, on the clock that :func:`now` reads.

    Attributes:
        n_bytes: of the tensor.
        called: when it was put in the stream.
        start: when its turn came.
        end: when this rank had the result.
    """

    n_bytes: int
    called: float
    start: float
    end: float


class Stream:
    """Called like ``collective``; calls in the background start in turn.

    ::

        OverlappedDataParallel(model, all_reduce=Stream(ring_all_reduce))

    While calls are in the stream, let nothing else call the library's collectives on their group,
    no other stream either: the ranks' messages match by the order of calls. Two models that train
    at the same time need a group each.

    Attributes:
        log: a list to which each :class:`Call` is added when it ends, or None.

    Args:
        collective: ``fn(tensor, op=…, group=…)`` that works in place and returns when it is done.
    """

    def __init__(self, collective):
        self.collective = collective
        self.log = None
        self._last = None

    def __call__(self, tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
        """Put one call in the stream; wait for it, or return a handle when ``async_op``."""
        called, before, mine, log = now(), self._last, _Turn(), self.log
        self._last = mine

        def run():
            try:
                if before is not None:
                    before.wait()
                start = now()
                self.collective(tensor, op=op, group=group)
            except BaseException:
                mine.failed = True
                raise
            else:
                mine.end = now()
                if log is not None:
                    n_bytes = tensor.numel() * tensor.element_size()
                    log.append(Call(n_bytes, called, start, mine.end))
            finally:
                mine.over.set()

        return perform(run, async_op)


class _Turn:
    """When a call is over; the next one waits for that."""

    def __init__(self):
        self.over = threading.Event()
        self.failed = False
        self.end = 0.0
        clock = virtual.current()  # of the thread that calls
        self._ports = clock and clock._ports

    def wait(self):
        """Wait in this thread, on whatever clock it runs.

        Raises:
            RuntimeError: the call failed.
        """
        clock = virtual.current()
        if clock:
            clock.stop()
        self.over.wait()
        if self.failed:
            raise RuntimeError("the call before this one in its stream failed")
        if clock:
            if clock._ports is self._ports:  # else the end is another clock's time
                clock.lift(self.end)
            clock.go()


def now():
    """Return this thread's virtual time, or where no virtual clock runs the wall's, in seconds."""
    clock = virtual.current()
    return clock.read() if clock else time.perf_counter()
