"""What comes back from ranks: :class:`Results`, or one :class:`LaunchError` that names a rank.

When one rank fails, its neighbors fail too, a little later, because their messages have nowhere
to go. The error worth reading is the cause, not the echo. :func:`root_cause` picks it:

1. A rank that died without a word (killed, or exited early) is the cause, unless some rank raised
   an error that is not about communication.
2. Otherwise the earliest error is the cause. Ranks stamp errors with the machine's monotonic clock.
"""

import linecache
import re
import signal
from dataclasses import dataclass


class Results(list):
    """The ranks' results, in rank order, with what ran.

    Attributes:
        backend: ``"gloo"`` or ``"nccl"``.
        device: the type of the ranks' devices.
        ranks: number of ranks.
        seconds: wall time of the whole launch.
        output: what the ranks printed, in rank order.
    """

    def __init__(self, values, *, backend, device, seconds, output=""):
        super().__init__(values)
        self.backend = backend
        self.device = device
        self.ranks = len(self)
        self.seconds = seconds
        self.output = output

    @property
    def where(self):
        """What ran, for a page or a record, such as ``"gloo, 4 ranks"``."""
        return f"{self.backend}, {self.ranks} rank{'s' if self.ranks > 1 else ''}"


class LaunchError(RuntimeError):
    """One rank's failure.

    Attributes:
        rank: the rank that failed first.
        kind: ``"raised"``, ``"exited"``, ``"killed"`` or ``"hung"``.
        output: what the ranks had printed.
    """

    def __init__(self, message, *, rank, kind, output=""):
        super().__init__(message)
        self.rank = rank
        self.kind = kind
        self.output = output


NO_ANSWER = "  (no answer: stopped, or not started yet)"  # in place of a stack


@dataclass(frozen=True)
class Failure:
    """One rank's failure as it was noticed."""

    rank: int
    kind: str
    when: float  # seconds, monotonic clock of the machine
    summary: str  # one line
    detail: str = ""  # a traceback or stacks
    about_communication: bool = False

    def error(self, output=""):
        """Return the :class:`LaunchError` that says this."""
        text = f"rank {self.rank} {self.summary}"
        if self.detail:
            text += "\n\n" + with_source(self.detail)
        return LaunchError(text, rank=self.rank, kind=self.kind, output=output)


def root_cause(failures):
    """Return the failure that caused the others (see the module's docstring)."""
    own_errors = [f for f in failures if f.kind == "raised" and not f.about_communication]
    deaths = [f for f in failures if f.kind != "raised"]
    return min(own_errors or deaths or failures, key=lambda failure: failure.when)


def is_about_communication(error):
    """Tell whether an exception says that a peer or a collective failed, rather than this rank."""
    if type(error).__name__ in {"DistBackendError", "DistNetworkError", "DistStoreError"}:
        return True
    words = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe")
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)


def death(rank, exit_code, when):
    """Return the failure of a rank that ended without a result."""
    if exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return Failure(rank, "killed", when, f"was killed by {name}{hint}")
    summary = f"exited with code {exit_code} before it returned a result"
    return Failure(rank, "exited", when, summary)


def hang(stacks, returned, seconds):
    """Return the failure of ranks that were still running after ``seconds``.

    Args:
        stacks: rank -> text of ``faulthandler`` (most recent call first), for unfinished ranks.
        returned: the ranks among them whose function is done: they wait for the others.
        seconds: the timeout.

    Most ranks of a hung job wait for one that does not come. So the first of these is named: a rank
    that runs something else, a rank that has left already, one that does not answer, the lowest.
    """
    running = {rank: stack for rank, stack in stacks.items() if rank not in returned}
    silent = [rank for rank, stack in running.items() if stack == NO_ANSWER]
    waiting = [rank for rank, stack in running.items() if _waits(stack)]
    busy = [rank for rank in running if rank not in silent and rank not in waiting]
    culprit = min(busy or (waiting and returned) or silent or stacks)
    summary = f"did not return within the timeout of {seconds:g} s"
    if culprit in returned:
        summary = f"returned, but other ranks did not within the timeout of {seconds:g} s"
    if culprit not in waiting and waiting:
        summary += f"; still waiting in a communication call: {', '.join(map(str, waiting))}"
    texts = {r: "  (has returned)" if r in returned else stack for r, stack in stacks.items()}
    detail = "\n".join(f"rank {rank}, most recent call first:\n{s}" for rank, s in texts.items())
    return Failure(culprit, "hung", 0.0, summary, detail)


def own_frames(stack):
    """Return the frames of a ``faulthandler`` stack above ours, the frames of the function."""
    frames = [line for line in stack.splitlines() if line.startswith("  File")]
    outer = [i for i, line in enumerate(frames) if "lsdl_lib/launch/rank.py" in line]
    return "\n".join(frames[: outer[0]] if outer and outer[0] else frames)


def _waits(stack):
    """Tell whether the innermost frame of a stack is a communication call."""
    frame = re.search(r'File "(.*)", line (\d+) in', stack)
    if frame is None:
        return False
    path, line = frame[1].replace("\\", "/"), linecache.getline(frame[1], int(frame[2]))
    return "torch/distributed/" in path or ".wait(" in line


def with_source(text):
    """Add source lines that a rank could not know, such as those of a notebook's cells."""

    def add(match):
        line = linecache.getline(match[2], int(match[3])).strip()
        return match[1] + (f"\n    {line}" if line else "")

    return re.sub(r'(  File "(.*)", line (\d+),? in .*)(?!\n    )$', add, text, flags=re.M)
