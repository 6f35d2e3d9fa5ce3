"""A collective simulated step by step: its own text, run for all ranks with no process.

The generators of :mod:`lsdl_lib.communication.collectives` run for p ranks against messages that
exist only here. Data is really copied and reduced, so the result is checked too; time is counted:

    start = max(sender posted, receiver posted, sender's port free, receiver's port free)
    end   = start + alpha + n beta                     both ports are busy until then
    reducing n bytes takes n gamma of its rank's time

So what the closed forms say can be compared with what the algorithm does.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field

import torch


@dataclass
class Timeline:
    """What a simulated collective did.

    Attributes:
        seconds: when the last rank was done.
        rank_seconds: when each rank was done.
        messages, sent_bytes: per rank.
        events: (sender, receiver, bytes, start, end) of every message, in order of start.
    """

    seconds: float
    rank_seconds: list
    messages: list
    sent_bytes: list
    events: list


@dataclass
class _Message:
    source: int
    to: int
    data: torch.Tensor
    posted: float
    buffer: torch.Tensor | None = None  # the receiver's, once it has posted
    received_from: float = 0.0
    end: float | None = None

    def wait(self):
        """Handles are waited for by the simulation itself."""


@dataclass
class _Rank:
    number: int
    size: int
    world: "World"
    clock: float = 0.0
    steps: object = None
    waiting: list = field(default_factory=list)
    sends: list = field(default_factory=list)
    done: bool = False

    @property
    def rank(self):
        return self.number

    def expect(self, receives):
        """A hint only: simulated receives start with their ``exchange``."""

    def exchange(self, sends=(), receives=()):
        handles = [self.world.receive(self, b, source) for b, source in receives if b.numel()]
        self.sends += [self.world.send(self, b, to) for b, to in sends if b.numel()]
        return handles


class World:
    """p simulated ranks and the messages between them."""

    def __init__(self, p, links):
        self.links = links
        self.ranks = [_Rank(number, p, self) for number in range(p)]
        self._unmatched = {}  # (source, to) -> (sent messages, posted receives) not yet paired
        self._queues = [deque() for _ in range(p)]  # each sender's messages, in order
        self._out_free = [0.0] * p
        self._in_free = [0.0] * p
        self._ready = []  # heap of (start, sender): first messages in their queues, paired
        self.events = []

    def send(self, rank, buffer, to):
        """Post a message; its data is what the buffer holds now."""
        message = _Message(rank.number, to, buffer.clone(), rank.clock)
        self._queues[rank.number].append(message)
        self._pair(rank.number, to, message, 0)
        return message

    def receive(self, rank, buffer, source):
        """Post a receive; return the handle that the rank may wait for."""
        handle = _Message(source, rank.number, buffer, rank.clock)
        self._pair(source, rank.number, handle, 1)
        return handle

    def _pair(self, source, to, new, side):
        waiting = self._unmatched.setdefault((source, to), (deque(), deque()))
        if not waiting[1 - side]:
            waiting[side].append(new)
            return
        old = waiting[1 - side].popleft()
        message, handle = (new, old) if side == 0 else (old, new)
        if message.data.numel() != handle.data.numel():
            raise ValueError(
                f"rank {source} sends {message.data.numel()} elements, "
                f"rank {to} waits for {handle.data.numel()}"
            )
        message.buffer, message.received_from = handle.data, handle.posted
        message.handle = handle
        if self._queues[source][0] is message:
            self._offer(message)

    def run(self):
        """Run all ranks to their ends.

        Raises:
            RuntimeError: some ranks wait for messages that nobody sends; names them.
        """
        for rank in self.ranks:
            self._advance(rank)
        while self._ready:
            start, source = heapq.heappop(self._ready)
            message = self._queues[source][0]
            if self._start(message) > start:  # a port was taken meanwhile: starts only grow
                self._offer(message)
                continue
            self._deliver(message)
            self._advance(self.ranks[message.to])  # nobody else can have waited for it
        if not all(rank.done for rank in self.ranks) or any(self._queues):
            stuck = [rank.number for rank in self.ranks if not rank.done]
            raise RuntimeError(f"ranks {stuck} wait for messages that nobody sends")

    def _offer(self, message):
        heapq.heappush(self._ready, (self._start(message), message.source))

    def _start(self, message):
        return max(
            message.posted,
            message.received_from,
            self._out_free[message.source],
            self._in_free[message.to],
        )

    def _deliver(self, message):
        queue = self._queues[message.source]
        queue.popleft()
        size = message.data.numel() * message.data.element_size()
        start = self._start(message)
        end = start + self.links.between(message.source, message.to).seconds(size)
        self._out_free[message.source] = self._in_free[message.to] = end
        message.buffer.copy_(message.data)
        message.end = message.handle.end = end
        self.events.append((message.source, message.to, size, start, end))
        if queue and queue[0].buffer is not None:
            self._offer(queue[0])

    def _advance(self, rank):
        while not rank.done and all(handle.end is not None for handle in rank.waiting):
            rank.clock = max([rank.clock, *(handle.end for handle in rank.waiting)])
            try:
                rank.waiting = next(rank.steps)
            except StopIteration:
                rank.waiting, rank.done = [], True


def simulate(steps, tensors, links, op=torch.Tensor.add_):
    """Run an all-reduce's generator for all ranks; reduce ``tensors`` in place.

    Args:
        steps: ``steps(flat, reduce, messages)``, such as ``ring.ring_steps``.
        tensors: one vector a rank, all of one size.
        links: a ``Link`` or ``TwoLevels``.
        op: in-place reduction ``op(into, other)``.

    Returns:
        Timeline.
    """
    world = World(len(tensors), links)
    for rank, tensor in zip(world.ranks, tensors):

        def reduce(into, other, rank=rank):
            op(into, other)
            gamma = links.between(rank.number, rank.number).gamma
            rank.clock += other.numel() * other.element_size() * gamma

        rank.steps = steps(tensor, reduce, rank)
    return finish(world)


def finish(world):
    """Run ``world``, whose ranks have their steps, and return its :class:`Timeline`."""
    world.run()
    for rank in world.ranks:
        rank.clock = max([rank.clock, *(message.end for message in rank.sends)])
    return Timeline(
        seconds=max(rank.clock for rank in world.ranks),
        rank_seconds=[rank.clock for rank in world.ranks],
        messages=[len(rank.sends) for rank in world.ranks],
        sent_bytes=[
            sum(m.data.numel() * m.data.element_size() for m in rank.sends) for rank in world.ranks
        ],
        events=sorted(world.events, key=lambda event: event[3]),
    )
