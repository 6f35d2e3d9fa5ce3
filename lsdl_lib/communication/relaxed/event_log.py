"""What a server did, push by push, and what follows from it."""

from collections import Counter
from dataclasses import dataclass

APPLIED, GATHERED, DROPPED = "applied", "gathered", "dropped"


@dataclass(frozen=True)
class Event:
    """One push, in the order in which the server took them.

    Attributes:
        time: seconds since the server began, on the clock that ran: wall or virtual.
        worker: its rank.
        step: which of its gradients this is, from 0.
        seen: the version of the weights that the gradient was computed on.
        version: the server's version when it took the push.
        fate: ``"applied"``: the last of an update; ``"gathered"``: one of an update's others;
            ``"dropped"``.
    """

    time: float
    worker: int
    step: int
    seen: int
    version: int
    fate: str

    @property
    def staleness(self):
        """Updates between the weights that the worker had and the server's, tau."""
        return self.version - self.seen


class EventLog(list):
    """The events of one server."""

    def staleness(self):
        """Return {tau: number of gradients that counted}, ascending."""
        counted = Counter(event.staleness for event in self if event.fate != DROPPED)
        return dict(sorted(counted.items()))

    def pushes(self):
        """Return {worker: number of pushes}."""
        return dict(sorted(Counter(event.worker for event in self).items()))

    def dropped(self):
        """Return the number of gradients that did not count."""
        return sum(event.fate == DROPPED for event in self)

    def leads(self):
        """Return for each event by how many steps its worker led the slowest when it pushed.

        The lead is its own steps before this one less the fewest of a worker that pushes again
        later; a stale synchronous server keeps it at or below its bound.
        """
        done = dict.fromkeys((event.worker for event in self), 0)
        left = Counter(event.worker for event in self)
        leads = []
        for event in self:
            leads.append(event.step - min(done[worker] for worker in left))
            done[event.worker] += 1
            left[event.worker] -= 1
            if not left[event.worker]:
                del left[event.worker]
        return leads
