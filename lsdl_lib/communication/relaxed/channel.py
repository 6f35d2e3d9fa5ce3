"""Messages between workers and servers: a header of 40 bytes, and for some a vector behind it.

The header says what kind of message it is, which version of the parameters it is about, and when it
left. The two travel as one message of 40 + n bytes in the virtual clock's account: a sender writes
into the header when its message starts, so that a server can take the earliest one first
(:mod:`lsdl_lib.communication.relaxed.inbox`). That is why these are not the messages of the
collectives, whose receivers know what comes next.
"""

import struct
from dataclasses import dataclass

import torch
import torch.distributed as dist

from lsdl_lib.measure import virtual

PUSH, GOODBYE, FAILED = 1, 2, 3  # of a worker: a gradient; done; it raised an error
WEIGHTS, STOP, FINAL, LOST = 4, 5, 6, 7  # of a server: go on; training is over; last word; an error
_WITH_VECTOR = (PUSH, WEIGHTS, STOP, FINAL)
_HEADER = struct.Struct("<qqqdd")  # kind, version, step, ready, start
HEADER_BYTES = _HEADER.size
# Below the tags of the collectives. Messages of one tag between two ranks arrive in order.
_HEADER_TAG, _VECTOR_TAG = 2**20 - 2, 2**20 - 1


@dataclass(frozen=True)
class Message:
    """What a header says.

    Attributes:
        kind: one of this module's constants.
        version: of the parameters, as the sender knows them.
        step: of the worker that sent it; the rank at fault, where the kind is FAILED or LOST.
        ready: virtual seconds when the sender began to send, to all servers alike.
        start: virtual seconds when this message left the sender's port.
        n_bytes: of header and vector.
    """

    kind: int
    version: int
    step: int
    ready: float
    start: float
    n_bytes: int


class TrainingError(RuntimeError):
    """Training has ended on all ranks, since one of them failed.

    Attributes:
        rank: the one that failed.
    """

    def __init__(self, text, rank):
        super().__init__(text)
        self.rank = rank


class Channel:
    """Point-to-point messages on ``group``, between its ranks by number.

    Raises:
        RuntimeError: the group runs on nccl, which cannot wait for several senders at once.
    """

    def __init__(self, group=None):
        self.group = group if group is not None else dist.group.WORLD
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        if dist.get_backend(self.group) == "nccl":
            raise RuntimeError(
                "a server takes messages in the order in which they come, which nccl cannot: "
                "use launch(…, backend='gloo') or a gloo group"
            )

    def send(self, to, kind, version=0, step=0, vector=None, ready=0.0):
        """Start a message; return works to ``wait()`` for before ``vector`` changes.

        Args:
            to: rank to send to.
            kind, version, step, ready: of the :class:`Message`.
            vector: (n,) contiguous, for the kinds that have one.
        """
        n_bytes = _message_bytes(kind, vector)
        clock, start = virtual.current(), 0.0
        if clock is not None:
            clock.stop()
            start = clock.depart(n_bytes, *self._ends(self.rank, to))
        header = torch.zeros(HEADER_BYTES, dtype=torch.uint8)
        _HEADER.pack_into(header.numpy(), 0, kind, version, step, ready, start)
        works = [self.group.send([header], to, _HEADER_TAG)]
        if n_bytes > HEADER_BYTES:
            works.append(self.group.send([vector.view(torch.uint8)], to, _VECTOR_TAG))
        if clock is not None:
            clock.go()
        return works

    def receive(self, source, vector):
        """Wait for a message of rank ``source``; return it, its vector in ``vector``.

        It does not touch the virtual clock: say :meth:`arrive` when the message is taken.
        """
        header = torch.empty(HEADER_BYTES, dtype=torch.uint8)
        self.group.recv([header], source, _HEADER_TAG).wait()
        kind, *rest = _HEADER.unpack_from(header.numpy())
        n_bytes = _message_bytes(kind, vector)
        if n_bytes > HEADER_BYTES:
            self.group.recv([vector.view(torch.uint8)], source, _VECTOR_TAG).wait()
        return Message(kind, *rest, n_bytes)

    def arrive(self, source, message):
        """Lift the virtual clock, if one runs, to the end of a received message."""
        clock = virtual.current()
        if clock is not None:
            clock.stop()
            # The receiver waits for it since before it started, so its own time does not count.
            ends = self._ends(source, self.rank)
            clock.arrive(message.n_bytes, *ends, message.start, message.start)
            clock.go()

    def _ends(self, *ranks):
        return [dist.get_global_rank(self.group, rank) for rank in ranks]


def _message_bytes(kind, vector):
    if kind not in _WITH_VECTOR:
        return HEADER_BYTES
    return HEADER_BYTES + vector.numel() * vector.element_size()
