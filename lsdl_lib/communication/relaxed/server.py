"""A parameter server: it holds the parameters, workers push gradients and pull parameters.

    worker: pull w; compute g(w); push g, and with the answer pull again; …
    server: take a push; w <- rule(w, g); answer when the consistency model lets the worker go on

p workers push and pull n bytes a step each, so one server moves 2 p n bytes where a ring moves
2 n (p-1)/p on every rank. S servers hold a shard each and move 2 p n / S (Li et al. 2014).

Each push says on which version of the weights its gradient was computed. The version is the number
of updates, so the staleness of a gradient, tau = version now - version seen, is counted and not
estimated. The log of all pushes is what a server returns: :mod:`event_log` computes histograms from
it, :mod:`replay` the final parameters, as a proof.
"""

import contextlib
import dataclasses
import time

import torch

from lsdl_lib.communication.relaxed.asynchronous import Asynchronous
from lsdl_lib.communication.relaxed.channel import (
    FAILED,
    FINAL,
    LOST,
    PUSH,
    STOP,
    WEIGHTS,
    Channel,
    TrainingError,
)
from lsdl_lib.communication.relaxed.event_log import APPLIED, DROPPED, GATHERED, Event, EventLog
from lsdl_lib.communication.relaxed.inbox import inbox
from lsdl_lib.communication.relaxed.vector import ParameterVector, shards
from lsdl_lib.measure import virtual


class ParameterServer:
    """One server, on one of the first ``servers`` ranks; the other ranks are workers.

    Attributes:
        weights: (n/S,) this server's shard, a view of ``vector``.
        version: updates so far.
        log: :class:`EventLog`.

    Args:
        parameters: of the model, with the values to begin with. After :meth:`serve` they hold the
            final ones, of all shards.
        rule: :class:`Rule`, what to do with a gradient.
        consistency: when a worker may go on; None: :class:`Asynchronous`.
        servers: number of servers, S.
        updates: end training after so many, counted by each server, the first to reach it ending
            training for all; None: train until all workers have left.
        group: process group.

    Raises:
        ValueError: no rank is left to work, parameters differ in type, or the consistency model
            does not fit.
        RuntimeError: the group runs on nccl.
    """

    def __init__(self, parameters, rule, consistency=None, *, servers=1, updates=None, group=None):
        self._channel = Channel(group)
        size, rank = self._channel.size, self._channel.rank
        if not 1 <= servers < size:
            raise ValueError(
                f"servers={servers} of {size} ranks: give at least 1, and leave ranks to work"
            )
        if rank >= servers:
            raise ValueError(f"rank {rank} is a worker: the servers are ranks 0 to {servers - 1}")
        self.rule = rule
        self._consistency = consistency if consistency is not None else Asynchronous()
        self._consistency.check(size - servers, servers)
        self._vector = ParameterVector(parameters)
        self._vector.read()
        self._shards = shards(self._vector.values, servers)
        self.weights, self._limit = self._shards[rank], updates
        self.version, self.log = 0, EventLog()
        workers = range(servers, size)
        self._done = dict.fromkeys(workers, 0)  # of those that have not left
        self._seen = dict.fromkeys(workers, 0)
        self._sent = {worker: torch.empty_like(self.weights) for worker in workers}
        self._gradients = {worker: torch.empty_like(self.weights) for worker in workers}
        self._sends = {rank: [] for rank in range(size)}
        self._gathered, self._last_gathered = [], None  # workers; place in the log
        self._waiting, self._gone = [], set()

    def serve(self):
        """Serve until every worker has left; return the :class:`EventLog`.

        Raises:
            TrainingError: a worker raised an error, died, or was silent for as long as the group's
                timeout. All other ranks raise too, and name its rank.
        """
        self._began = time.monotonic()
        self._inbox = inbox(self._channel, self._gradients)
        try:
            for worker in self._done:
                self._answer(worker)
            while self._done:
                self._serve_one(*self._inbox.take())
        except Exception as error:
            self._tell_all(getattr(error, "rank", self._channel.rank))
            raise
        finally:
            self._inbox.close()
        self._exchange_final()
        return self.log

    def state_dict(self):
        """Return this server's weights, version and rule, for a later server of the same shard."""
        return {
            "weights": self.weights.clone(),
            "version": self.version,
            "rule": self.rule.state_dict(),
        }

    def load_state_dict(self, state):
        """Go on from a saved state; call it before :meth:`serve`."""
        self.weights.copy_(state["weights"])
        self.version = state["version"]
        self.rule.load_state_dict(state["rule"])

    def _serve_one(self, worker, message):
        if isinstance(message, Exception) or message.kind == FAILED:
            self._gone.add(worker)
        if isinstance(message, Exception):
            text = f"the worker on rank {worker} is gone: {message}"
            raise TrainingError(text, worker) from message
        if message.kind == FAILED:
            raise TrainingError(f"rank {message.step} failed (connection closed)", message.step)
        if message.kind == PUSH:
            self._push(worker, message)
        else:
            del self._done[worker]
        if self._gathered and len(self._gathered) >= self._consistency.gathers(len(self._done)):
            self._update()
        for waiting in list(self._waiting):
            if self._over() or self._consistency.may_go(
                waiting, self._done, self._seen[waiting], self.version
            ):
                self._waiting.remove(waiting)
                self._answer(waiting)

    def _push(self, worker, message):
        self._seen[worker] = message.version
        staleness = self.version - message.version
        fate = DROPPED
        if not self._over() and self._consistency.accepts(staleness):
            self._gathered.append(worker)
            fate, self._last_gathered = GATHERED, len(self.log)
        self.log.append(
            Event(self._now(), worker, message.step, message.version, self.version, fate)
        )
        self._done[worker] += 1
        self._waiting.append(worker)

    def _over(self):
        return self._limit is not None and self.version >= self._limit

    def _update(self):
        first = self._gathered[0]
        gradient = self._gradients[first]
        if len(self._gathered) > 1:
            gradient = torch.stack([self._gradients[w] for w in self._gathered]).mean(0)
        staleness = self.version - self._seen[first]
        self.rule.update(self.weights, gradient, staleness, self._sent[first])
        last = self.log[self._last_gathered]
        self.log[self._last_gathered] = dataclasses.replace(last, fate=APPLIED)
        self._gathered.clear()
        self.version += 1

    def _answer(self, worker):
        for work in self._sends[worker]:
            work.wait()
        # A copy: the weights may change before it has left, and a rule may ask for it later.
        self._sent[worker].copy_(self.weights)
        kind = STOP if self._over() else WEIGHTS
        self._sends[worker] = self._channel.send(
            worker, kind, self.version, vector=self._sent[worker]
        )
        self._inbox.expect(worker)

    def _exchange_final(self):
        """Send the final shard to every rank, and receive the other servers'."""
        rank = self._channel.rank
        others = [other for other in range(self._channel.size) if other != rank]
        for other in others:
            self._sends[other] += self._channel.send(
                other, FINAL, self.version, vector=self.weights
            )
        for server, shard in enumerate(self._shards):
            if server != rank:
                self._channel.arrive(server, self._channel.receive(server, shard))
        for works in self._sends.values():
            for work in works:
                work.wait()
        self._vector.write()

    def _tell_all(self, culprit):
        """Tell the workers that training has ended since rank ``culprit`` failed.

        Those that wait for an answer hear it now, the others when they have pushed. So every
        message has its receiver, and the group is good for more.
        """
        for worker in set(self._sent) - self._inbox.owed - self._gone:
            self._tell(worker, culprit)
        while self._inbox.owed:
            worker, message = self._inbox.take()
            if not isinstance(message, Exception) and message.kind != FAILED:
                self._tell(worker, culprit)
        for works in self._sends.values():
            with contextlib.suppress(RuntimeError):
                for work in works:
                    work.wait()

    def _tell(self, worker, culprit):
        with contextlib.suppress(RuntimeError):  # it may be gone too
            self._sends[worker] += self._channel.send(worker, LOST, step=culprit)

    def _now(self):
        clock = virtual.current()
        return clock.read() if clock is not None else time.monotonic() - self._began
