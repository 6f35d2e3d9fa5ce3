"""What the tests of the parameter server share: a problem, its oracle, and a run in real ranks.

The problem is least squares with other rows for every worker and step. Its gradient is written
twice: here for the ranks, in torch, and in numpy for the oracles.
"""

import contextlib

import numpy as np
import torch
import torch.distributed as dist

from lsdl_lib.communication.cost import Link
from lsdl_lib.communication.relaxed.pace import scripted_clock, spend
from lsdl_lib.communication.relaxed.rules import PlainSGD
from lsdl_lib.communication.relaxed.server import ParameterServer
from lsdl_lib.communication.relaxed.worker import Worker

SHAPES = ((2, 3), (4,), ())  # 11 numbers: shards of two and of three servers differ in size
SIZE = 11
LR = 0.05
LINK = Link(alpha=1e-3, beta=0.0)


def rows(worker, step):
    """Return (inputs (8, SIZE), labels (8,)) in float64, different for every worker and step."""
    random = np.random.default_rng([worker, step])
    inputs = random.standard_normal((8, SIZE))
    return inputs, inputs @ np.arange(SIZE) / SIZE + random.standard_normal(8)


def start():
    """Return the weights to begin with, (SIZE,)."""
    return torch.linspace(-1, 1, SIZE, dtype=torch.float64)


def gradient(worker, step, weights):
    """Return the gradient of half the mean square error, (SIZE,)."""
    inputs, labels = map(torch.from_numpy, rows(worker, step))
    return inputs.T @ (inputs @ weights - labels) / len(labels)


def on_global_batch(workers, steps, lr=LR):
    """Return the weights after SGD in one process on all workers' rows together (numpy)."""
    weights = start().numpy()
    for step in range(steps):
        parts = [rows(worker, step) for worker in workers]
        inputs, labels = (np.concatenate(both) for both in zip(*parts))
        weights = weights - lr * inputs.T @ (inputs @ weights - labels) / len(labels)
    return torch.from_numpy(weights)


def parameters():
    """Return the starting weights as parameters of several shapes."""
    parts = start().split([int(np.prod(shape)) for shape in SHAPES])
    return [torch.nn.Parameter(p.clone().view(s)) for p, s in zip(parts, SHAPES)]


def flat(tensors):
    """Return tensors as one vector."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def train(
    steps,
    rule=None,
    consistency=None,
    servers=1,
    updates=None,
    seconds=None,
    scripted=False,
    group=None,
    state=None,
):
    """Run a server or a worker on this rank; return (log or steps done, final weights, server).

    Args:
        steps: number of each worker's, or their numbers, or {rank: number}.
        seconds: {rank: seconds that a step takes}; others take 0, or 1 on the scripted clock.
        scripted: run on the scripted clock.
    """
    rank, weights = dist.get_rank(), parameters()
    clock = scripted_clock(LINK) if scripted else contextlib.nullcontext()
    busy = (seconds or {}).get(rank, 1.0 if scripted else 0.0)
    with clock:
        if rank < servers:
            server = ParameterServer(
                weights,
                rule if rule is not None else PlainSGD(LR),
                consistency,
                servers=servers,
                updates=updates,
                group=group,
            )
            if state is not None:
                server.load_state_dict(state)
            return server.serve(), flat(weights), server
        with Worker(weights, servers=servers, group=group) as worker:
            mine = steps[rank] if isinstance(steps, dict) else steps
            for step in range(mine) if isinstance(mine, int) else mine:
                if busy:
                    spend(busy)
                vector = gradient(rank, step, flat(weights))
                parts = vector.split([w.numel() for w in weights])
                for parameter, part in zip(weights, parts):
                    parameter.grad = part.view(parameter.shape)
                if not worker.step():
                    break
        return worker.steps, flat(weights), None
