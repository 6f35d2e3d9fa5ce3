"""Replay an asynchronous run in one process: the proof that a server did what its log says.

Asynchronous training is a sequence of updates, each with a gradient on an older version of the
weights. The log says which. So one process can do it all again, in order,

    w_{t+1} = rule(w_t, g_k(w_{t - tau}))

and must find the same parameters. The same function with a log made by hand is a simulator of
staleness: :func:`constant_staleness`.
"""

import copy

import torch

from lsdl_lib.communication.relaxed.event_log import APPLIED, DROPPED, Event, EventLog
from lsdl_lib.communication.relaxed.vector import shards


def replay(logs, weights, gradient, rule):
    """Return the final weights, (n,).

    Args:
        logs: :class:`EventLog` of each server, in rank order; a single one may stand alone.
        weights: (n,) that training began with; not changed.
        gradient: ``fn(worker, step, weights)``: the gradient, (n,), that this worker pushed at this
            step if it had these weights.
        rule: :class:`Rule` as the servers' before they began; not changed.

    Raises:
        ValueError: the logs do not fit together: an event needs a version that never came.
    """
    logs = [logs] if isinstance(logs, EventLog) else list(logs)
    states = [
        _Shard(log, shard.clone(), copy.deepcopy(rule))
        for log, shard in zip(logs, shards(weights, len(logs)), strict=True)
    ]
    # A gradient needs a version of every shard: the servers wait for each other here.
    seen = {}
    for place, log in enumerate(logs):
        for event in log:
            seen.setdefault((event.worker, event.step), {})[place] = event.seen
    gradients = {}
    while any(state.todo for state in states):
        moved = False
        for state in states:
            while state.todo:
                key = (state.todo[-1].worker, state.todo[-1].step)
                if key not in gradients:
                    versions = [seen[key][place] for place in range(len(logs))]
                    if any(v not in s.history for v, s in zip(versions, states)):
                        break
                    whole = torch.cat([s.history[v] for v, s in zip(versions, states)])
                    gradients[key] = shards(gradient(*key, whole), len(logs))
                state.take(gradients[key][states.index(state)])
                moved = True
        if not moved:
            raise ValueError("the logs need versions of each other that never came")
    return torch.cat([state.weights for state in states])


def constant_staleness(updates, tau):
    """Return the log of one worker whose every gradient is ``tau`` updates old, where it can be."""
    events = (Event(float(t), 0, t, max(0, t - tau), t, APPLIED) for t in range(updates))
    return EventLog(events)


class _Shard:
    def __init__(self, log, weights, rule):
        self.todo = list(reversed(log))
        self.weights, self.rule = weights, rule
        # version -> (n,); nothing was updated before the first push.
        self.history = {log[0].version if log else 0: weights.clone()}
        self._gathered = []

    def take(self, gradient):
        event = self.todo.pop()
        if event.fate == DROPPED:
            return
        self._gathered.append((event, gradient))
        if event.fate != APPLIED:
            return
        first = self._gathered[0][0]
        gradient = torch.stack([gradient for _, gradient in self._gathered]).mean(0)
        self.rule.update(self.weights, gradient, first.staleness, self.history[first.seen])
        self._gathered.clear()
        self.history[event.version + 1] = self.weights.clone()
