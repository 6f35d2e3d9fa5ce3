"""The virtual clock: real ranks and real messages, with time that does not depend on the cores.

Four ranks on two cores take turns, so a wall clock there measures the scheduler. The virtual clock
of a rank advances by

- the CPU time of its own thread while it computes (``time.thread_time``; run one thread a rank).
  While a collective runs beside it (``async_op``), it advances by the CPU time of the whole process
  instead: a rank has one core, and what reduces and moves bytes takes its share of that core;
- the link model while it communicates. A message carries its sender's clock, and

      start = max(sender ready, receiver ready, sender's port free, receiver's port free)
      end   = start + alpha + n beta

  ``wait`` lifts the receiver's clock to the end, so work done between start and wait is overlap.

SMPI runs MPI programs on simulated machines by the same principle, computing measured and the
network modeled (Degomme et al. 2017); it folds all ranks into one process, and its network has
contention. Here a sender does not learn when its receiver was ready, so its own port is taken to be
busy from its own start; and reductions cost the CPU time that they take here.

It follows the messages of ``lsdl_lib.communication``. Collectives of torch's own, while the clock
runs, cost what ``collective_seconds`` says, from the latest rank's clock.
"""

import contextlib
import threading
import time
import warnings

import torch
import torch.distributed as dist

from lsdl_lib.measure.tap import TAP, group_of
from lsdl_lib.measure.traffic import NAMES

_running = []


class VirtualClock:
    """One rank's virtual time.

    Attributes:
        now: virtual seconds since the start, up to date after communication or ``read()``.
        links: object with ``between(source, to)``, whose result has ``seconds(n_bytes)``.
    """

    def __init__(self, links, ports=None, now=0.0):
        self.links = links
        self.now = now
        self._ports = ports or Ports()
        self._beside = 0  # collectives that run beside this thread
        self.go()

    def read(self):
        """Return the virtual time, the computation since the last message included."""
        self.stop()
        return self.now

    def stop(self):
        """Add the CPU time since ``go``; call it where communication begins."""
        spent = self._cpu_seconds()
        self.now += spent - self._counted
        self._counted = spent

    def go(self):
        """Start to count CPU time again; call it where communication ends."""
        self._counted = self._cpu_seconds()

    def _cpu_seconds(self):
        return time.process_time() if self._beside else time.thread_time()

    def depart(self, n_bytes, source, to):
        """Take this rank's outgoing port for a message; return when the message starts."""
        with self._ports.lock:
            start = max(self.now, self._ports.out_free)
            self._ports.out_free = start + self.links.between(source, to).seconds(n_bytes)
        return start

    def arrive(self, n_bytes, source, to, sender_start, posted):
        """Take the incoming port, and lift the clock to the end of a message."""
        with self._ports.lock:
            start = max(sender_start, posted, self._ports.in_free)
            end = start + self.links.between(source, to).seconds(n_bytes)
            self._ports.in_free = end
        self.lift(end)

    def sends_done(self):
        """Lift the clock to when the last message has left."""
        self.lift(self._ports.out_free)

    def lift(self, moment):
        """Advance to ``moment``, unless the clock is there already."""
        self.now = max(self.now, moment)

    def fork(self):
        """Return the clock of work that runs beside this thread from now on, on the same ports."""
        self.stop()
        self._beside += 1
        self.go()
        return VirtualClock(self.links, self._ports, self.now)

    def join(self, beside):
        """Wait for the work of ``beside``, a clock from ``fork``: lift this one to its end.

        Call ``stop`` before this thread really waits.
        """
        self._beside -= 1
        self.lift(beside.now)
        self.go()


class Ports:
    """When a rank's two ports are free again; shared by all that runs in the rank."""

    def __init__(self):
        self.lock = threading.Lock()
        self.out_free = self.in_free = 0.0


@contextlib.contextmanager
def virtual_clock(links, collective_seconds=None):
    """Run the body on a virtual clock, the same on every rank; yields the :class:`VirtualClock`.

    Args:
        links: a ``Link`` or ``TwoLevels`` of ``lsdl_lib.communication.cost``.
        collective_seconds: ``fn(name, p, n_bytes)`` for collectives of torch's own, with names as
            in :class:`lsdl_lib.measure.Traffic` and n the whole vector, the larger of the call's
            input and output; None: they cost nothing but their waiting.

    All ranks start at 0. Read the clock inside the body, or ``clock.now`` after it.
    """
    clock = VirtualClock(links)
    with TAP.listen(_listener(clock, collective_seconds)), use(clock):
        yield clock


@contextlib.contextmanager
def use(clock):
    """Make ``clock`` the one that messages of this thread are timed by."""
    _running.append((threading.get_ident(), clock))
    try:
        clock.go()
        yield clock
        clock.stop()
    finally:
        _running.remove((threading.get_ident(), clock))


def current():
    """Return the clock that this thread runs on, or None."""
    here = threading.get_ident()
    # A copy: a reversed iterator ends early when another thread leaves and the list shrinks.
    return next((clock for thread, clock in reversed(tuple(_running)) if thread == here), None)


def _listener(clock, collective_seconds):
    """Time torch's own collectives: all ranks leave at the latest one's clock plus the cost."""
    busy = threading.local()

    def listener(operator, args):
        name = NAMES[operator]
        if name in ("send", "recv") or getattr(busy, "yes", False) or current() is not clock:
            return lambda: None
        if collective_seconds is None and "barrier" not in name:
            warnings.warn(
                f"torch's own {name} takes no time on this virtual clock: give collective_seconds, "
                "or call a collective of lsdl_lib.communication",
                stacklevel=2,
            )
        clock.stop()
        group = group_of(args)
        latest = torch.tensor([clock.now], dtype=torch.float64)
        busy.yes = True
        try:
            dist.all_reduce(latest, op=dist.ReduceOp.MAX, group=group)
        finally:
            busy.yes = False
        clock.lift(latest.item())
        if collective_seconds is not None:
            clock.now += collective_seconds(name, group.size(), _vector_bytes(args))
        clock.go()
        return clock.go

    return listener


def _vector_bytes(args):
    """Return the bytes of an operator's largest tensor argument, lists added up."""

    def size(argument):
        if isinstance(argument, torch.Tensor):
            return argument.numel() * argument.element_size()
        return sum(map(size, argument)) if isinstance(argument, (list, tuple)) else 0

    return max(size(argument) for argument in args)
