"""One run of the comparison, on every rank: train, look, and say what came out."""

import contextlib

import torch
import torch.distributed as dist

from lsdl_lib.communication.cost import Link
from lsdl_lib.communication.relaxed.asynchronous import Asynchronous
from lsdl_lib.communication.relaxed.rules import TorchOptimizer
from lsdl_lib.communication.relaxed.server import ParameterServer
from lsdl_lib.communication.relaxed.stale_synchronous import StaleSynchronous
from lsdl_lib.communication.relaxed.worker import Worker
from lsdl_lib.communication.studies.time_to_accuracy.methods import (
    ONE_BUCKET_MB,
    TRAINERS,
    Setting,
    sgd,
)
from lsdl_lib.communication.studies.time_to_accuracy.registration import registration
from lsdl_lib.communication.studies.time_to_accuracy.task import (
    TASK,
    Watch,
    accuracy,
    batches,
    data,
    loss_of,
    new_model,
    rate,
)
from lsdl_lib.measure import virtual
from lsdl_lib.measure.network import join

SERVED = {"asynchronous": Asynchronous, "stale_synchronous": lambda: StaleSynchronous(2)}
METHODS = (*TRAINERS, *SERVED)


def link(gbit_s):
    """Return the comparison's link of this bandwidth."""
    return Link.of(gbit_s, registration()["runs"]["latency_us"])


def run(
    method,
    lr,
    seed,
    gbit_s,
    bucket_mb=ONE_BUCKET_MB,
    names=None,
    test=False,
    steps=TASK["steps"],
    samples=None,
):
    """Train on this rank; return what came out, the same on every rank.

    Args:
        method: of ``METHODS``.
        lr, seed, bucket_mb: of the run.
        gbit_s: of the virtual clock's links; the wall clock runs where there are ``names``.
        names: of the namespaces of a limited network.
        test: read the test set, after the last step.
        steps: fewer than the task's, a multiple of its ``every``, to time the first ones only.
        samples: the task's data, from a caller that makes many runs; None: this rank reads it.

    Returns:
        dict: ``reached``, ``seconds_to_target``, ``steps_to_target``, ``final_accuracy``,
        ``test_accuracy`` (0 if not read), ``step_seconds`` (the mean), ``total_seconds``.
    """
    group = join(names) if names else None
    train = serve_or_work if method in SERVED else train_together
    clock = contextlib.nullcontext() if names else virtual.virtual_clock(link(gbit_s))
    samples = samples if samples is not None else data()
    looks, ends = train(clock, method, lr, seed, bucket_mb, group, samples, steps)
    return judge(samples, seed, looks, ends, test)


def train_together(clock, method, lr, seed, bucket_mb, group, samples, steps):
    """Train by a method in which all ranks take the same number of steps."""
    rank, size = dist.get_rank(), dist.get_world_size()
    setting = Setting(new_model(seed), lr, seed, size, group, bucket_mb)
    # Trainers compare and send first weights here, before the clock starts.
    trainer = TRAINERS[method](setting)
    mine = batches(samples, seed, rank, size, TASK["global_batch"] // size)
    looks, ends = [], []
    dist.barrier()
    with clock:
        watch = Watch()
        for step in range(steps):
            trainer.step(step, *next(mine))
            ends.append(watch.read())
            if (step + 1) % TASK["every"] == 0:
                with watch.paused():
                    looks.append(trainer.result())
    looks, ends = torch.stack(looks), torch.tensor(ends, dtype=torch.float64)
    dist.all_reduce(looks)
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    return looks / size, ends


def serve_or_work(clock, method, lr, seed, bucket_mb, group, samples, steps):
    """Train with a parameter server on rank 0; p pushes count as a step."""
    rank, size = dist.get_rank(), dist.get_world_size()
    model = new_model(seed)
    count = steps // TASK["every"]
    looks = torch.zeros(count, sum(p.numel() for p in model.parameters()))
    ends = torch.zeros(steps, dtype=torch.float64)
    dist.barrier()
    with clock:
        if rank == 0:
            rule = Scheduled(model, lr, size)
            updates = steps * size
            server = ParameterServer(
                model.parameters(), rule, SERVED[method](), updates=updates, group=group
            )
            rule.watch = Watch()
            server.serve()
            looks, ends = torch.stack(rule.looks), torch.tensor(rule.ends, dtype=torch.float64)
        else:
            mine = batches(samples, seed, rank - 1, size - 1, TASK["global_batch"] // size)
            with Worker(model.parameters(), group=group) as worker:
                goes_on = True
                while goes_on:
                    model.zero_grad()
                    loss_of(model, *next(mine)).backward()
                    goes_on = worker.step()
    dist.broadcast(looks, 0)
    dist.broadcast(ends, 0)
    return looks, ends


class Scheduled(TorchOptimizer):
    """The task's SGD at the server, with its schedule: p pushes of lr / p are a step."""

    def __init__(self, model, lr, size):
        self._lr, self._size, self._pushes = lr, size, 0
        self.watch, self.looks, self.ends = None, [], []
        super().__init__(
            lambda parameters: sgd(Setting(torch.nn.ParameterList(parameters), lr, 0, size))
        )

    def update(self, weights, gradient, staleness, seen):
        """Take the optimizer's step with the rate of now, and look."""
        lr = self._lr / self._size * rate(self._pushes // self._size)
        if self._optimizer is not None:
            self._optimizer.param_groups[0]["lr"] = lr
        super().update(weights, gradient, staleness, seen)
        self._pushes += 1
        step, rest = divmod(self._pushes, self._size)
        if rest == 0:
            self.ends.append(self.watch.read())
            if step % TASK["every"] == 0:
                with self.watch.paused():
                    self.looks.append(weights.clone())


def judge(samples, seed, looks, ends, test):
    """Return what :func:`run` returns. The ranks share the looks."""
    rank, size = dist.get_rank(), dist.get_world_size()
    model, target = new_model(seed), registration()["target"]["validation_accuracy"]
    found = torch.zeros(len(looks), dtype=torch.float64)
    for place in range(rank, len(looks), size):
        found[place] = accuracy(model, looks[place], samples.val_x, samples.val_y)
    dist.all_reduce(found)
    there = (found >= target).nonzero().flatten().tolist()
    steps = (there[0] + 1) * TASK["every"] if there else len(ends)
    last = looks[-1]
    return {
        "reached": bool(there),
        "seconds_to_target": ends[steps - 1].item(),
        "steps_to_target": steps,
        "final_accuracy": found[-1].item(),
        "test_accuracy": accuracy(model, last, samples.test_x, samples.test_y) if test else 0.0,
        "step_seconds": ends[-1].item() / len(ends),
        "total_seconds": ends[-1].item(),
    }
