"""What one collective call puts on the wire, as a value: bytes and messages, each way, one rank."""

from dataclasses import dataclass, field
from typing import NamedTuple


class Wire(NamedTuple):
    """Bytes and messages that one rank sends and receives, without headers."""

    sent_bytes: int
    received_bytes: int
    sent_messages: int
    received_messages: int

    def __add__(self, other):
        return Wire(*(mine + theirs for mine, theirs in zip(self, other)))


NOTHING = Wire(0, 0, 0, 0)


@dataclass(frozen=True)
class Call:
    """One communication call as one rank sees it; sizes are in bytes.

    Attributes:
        parts: bytes of each tensor, in the collective's own measure n: all-reduce, broadcast and
            reduce: the tensor; all-gather, gather and scatter: one rank's share; reduce-scatter:
            the whole input; send and recv: the message.
        ranks: p, the size of the group.
        rank: this rank's number in the group.
        root: the root's number in the group, where there is one.
        element_size: bytes an element; algorithms cut only between elements.
        to: all-to-all only: bytes for each rank. ``of``: bytes from each rank.
    """

    parts: tuple[int, ...]
    ranks: int
    rank: int
    root: int = 0
    element_size: int = 1
    to: tuple[int, ...] = field(default=())
    of: tuple[int, ...] = field(default=())

    @property
    def size(self):
        """Return n, all parts together."""
        return sum(self.parts)


def direct(kind, call):
    """Return the wire of a collective in which whoever has a part for another rank sends it there.

    ``all_to_all``: each rank to each other; ``gather``: each rank to the root; ``scatter``: the
    root to each rank.
    """
    n, p, others = call.size, call.ranks, call.ranks - 1
    if call.to:
        own = call.rank
        return Wire(sum(call.to) - call.to[own], sum(call.of) - call.of[own], others, others)
    if p == 1:
        return NOTHING
    outwards, inwards = Wire(others * n, 0, others, 0), Wire(0, others * n, 0, others)
    at_root = call.rank == call.root
    if kind == "scatter":
        return outwards if at_root else Wire(0, n, 0, 1)
    return inwards if at_root else Wire(n, 0, 1, 0)
