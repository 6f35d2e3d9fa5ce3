"""Point-to-point messages between the ranks of a group, as the collectives use them.

A collective is written as a generator: it starts sends and receives, yields the receives that it
must have before it can go on, and continues. The same text then runs at once, in the background
(:mod:`lsdl_lib.communication.collectives.calling`), or simulated with no process at all
(:mod:`lsdl_lib.communication.cost.simulation`).

Messages carry tags that are unique to the call, so that two calls in flight never mix. On nccl,
which has no tags, messages between two ranks match in the order in which they are started, and
those started together travel together.
"""

import itertools
import weakref
from collections import deque

import torch
import torch.distributed as dist

from lsdl_lib.measure import virtual

# One counter of calls a group: every rank calls a group's collectives in the same order.
_calls = weakref.WeakKeyDictionary()
_TAGS_A_CALL = 4096
_FIRST_TAG = 2**20  # below: the program's own messages
_LAST_TAG = 2**31 - 1


class Messages:
    """One call's messages on ``group`` (None: the default group).

    Attributes:
        rank: this process's rank in the group.
        size: number of ranks in the group, p.

    Raises:
        ValueError: this process is not in the group.
    """

    def __init__(self, group=None):
        self._group = group if group is not None else dist.group.WORLD
        self.rank = dist.get_rank(self._group)
        self.size = dist.get_world_size(self._group)
        if self.rank < 0:
            raise ValueError(
                f"rank {dist.get_rank()} is not in this group: only its members may call"
            )
        self._tagged = dist.get_backend(self._group) != "nccl"
        call = next(_calls.setdefault(self._group, itertools.count()))
        span = (_LAST_TAG - _FIRST_TAG) // _TAGS_A_CALL
        self._tag = _FIRST_TAG + call % span * _TAGS_A_CALL
        self._sent = [0] * self.size
        self._received = [0] * self.size
        self._expected = [deque() for _ in range(self.size)]
        self._sends = []

    def expect(self, receives):
        """Say what later calls of ``exchange`` will receive, in their order: a hint, for speed.

        Where messages have tags, these receives start now, so that the sender finds them and need
        not ask first. Their buffers may be written from now on.
        """
        if self._tagged:
            for buffer, source in receives:
                if buffer.numel():
                    handle = self._start_receive(as_bytes(buffer), source)
                    self._expected[source].append(handle)

    def exchange(self, sends=(), receives=()):
        """Start the messages of one step; return handles that ``wait()`` for the received ones.

        Args:
            sends: pairs (buffer, rank to send to). A buffer must not change before ``finish``,
                unless the receiver is known to have it.
            receives: pairs (buffer, rank to receive from).

        Buffers are contiguous. Empty ones are not sent: both ends know their size. A step that
        sends and receives must do both in one call: on nccl a receive alone would block the send.
        """
        sends = [(as_bytes(b), to) for b, to in sends if b.numel()]
        receives = [(as_bytes(b), source) for b, source in receives if b.numel()]
        clock = virtual.current()
        if clock is not None:
            return self._timed_exchange(clock, sends, receives)
        if not self._tagged:
            works = self._together(sends, receives)
            self._sends += works
            return works
        # Sends first: most then find no receive yet, and gloo's thread moves their bytes when there
        # is one. A send that finds its receive writes here, and shares the socket with that thread.
        self._sends += [self._send(data, to) for data, to in sends]
        return [self._receive(data, source) for data, source in receives]

    def finish(self):
        """Wait until every send has left its buffer."""
        for send in self._sends:
            send.wait()
        self._sends.clear()
        if virtual.current() is not None:
            virtual.current().sends_done()

    def _timed_exchange(self, clock, sends, receives):
        """As ``exchange``; behind each message goes a second one with its sender's clock."""
        if not self._tagged:
            raise RuntimeError("the virtual clock runs on gloo: on nccl measure the wall time")
        clock.stop()
        handles = [self._receive(data, source) for data, source in receives]
        for data, to in sends:
            start = clock.depart(data.numel(), *self._ranks(self.rank, to))
            self._sends.append(self._send(data, to))
            self._sends.append(self._send(as_bytes(torch.tensor([start], dtype=torch.float64)), to))
        clock.go()
        return handles

    def _ranks(self, *places):
        """Return the global ranks at these places of the group: links are between machines."""
        return [dist.get_global_rank(self._group, place) for place in places]

    # The group's own methods cost a third of what dist.isend and dist.irecv do for small messages.
    def _send(self, data, to):
        tag = self._tag + self._sent[to]
        self._sent[to] += 1
        return self._group.send([data], to, tag)

    def _receive(self, data, source):
        if self._expected[source]:
            return self._expected[source].popleft()
        return self._start_receive(data, source)

    def _start_receive(self, data, source):
        clock = virtual.current()
        if clock is not None:
            return _TimedReceive(self, clock, data, source)
        return self._post(data, source)

    def _post(self, data, source):
        tag = self._tag + self._received[source]
        self._received[source] += 1
        return self._group.recv([data], source, tag)

    def _together(self, sends, receives):
        operations = [
            dist.P2POp(dist.irecv, b, group=self._group, group_peer=source)
            for b, source in receives
        ] + [dist.P2POp(dist.isend, b, group=self._group, group_peer=to) for b, to in sends]
        return dist.batch_isend_irecv(operations) if operations else []


class _TimedReceive:
    """A receive on the virtual clock."""

    def __init__(self, messages, clock, data, source):
        self._clock, self._size = clock, data.numel()
        self._ends = messages._ranks(source, messages.rank)
        self._posted = clock.now
        self._work = messages._post(data, source)
        self._sender_start = torch.empty(1, dtype=torch.float64)
        self._second = messages._post(as_bytes(self._sender_start), source)

    def wait(self):
        self._clock.stop()
        self._work.wait()
        self._second.wait()
        self._clock.arrive(self._size, *self._ends, self._sender_start.item(), self._posted)
        self._clock.go()


class Among:
    """The same messages among some of the ranks, numbered from 0 in the order given.

    Algorithms that work in rows, columns or nodes run a ring among the ranks of each.
    """

    def __init__(self, messages, members):
        self._messages = messages
        self._members = members
        self.size = len(members)
        self.rank = members.index(messages.rank)

    def expect(self, receives):
        """As :meth:`Messages.expect`, with ranks of this subset."""
        self._messages.expect([(buffer, self._members[source]) for buffer, source in receives])

    def exchange(self, sends=(), receives=()):
        """As :meth:`Messages.exchange`, with ranks of this subset."""
        return self._messages.exchange(
            [(buffer, self._members[to]) for buffer, to in sends],
            [(buffer, self._members[source]) for buffer, source in receives],
        )


def as_bytes(buffer):
    """Return a contiguous tensor's memory as a tensor of bytes: any type can then travel."""
    return buffer.view(torch.uint8)
