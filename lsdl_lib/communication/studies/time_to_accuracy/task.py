"""The task of the comparison: data, model, batches, learning rates, and the clock that is read."""

import contextlib
import time

import torch
from torch.nn import functional as F

from lsdl_lib.communication.studies.time_to_accuracy.registration import registration
from lsdl_lib.data import digits, epoch_order
from lsdl_lib.measure import virtual
from lsdl_lib.models import MLP, MLPConfig

TASK = registration()["task"]


def new_model(seed):
    """Return the model with the first weights of ``seed``."""
    return MLP(MLPConfig(inputs=64, hidden=tuple(TASK["hidden"])), seed=seed)


def batches(data, seed, rank, ranks, size):
    """Yield (inputs, labels) of a rank, ``size`` samples each, without end.

    In an epoch the ranks share the samples: rank r takes every p-th batch of the epoch's order, and
    the ranks' k-th batches are the k-th global batch. What is left over waits for the next epoch.
    """
    epoch = 0
    while True:
        order = epoch_order(len(data.train_y), seed=seed, epoch=epoch)
        for k in range(len(order) // (size * ranks)):
            start = (k * ranks + rank) * size
            part = order[start : start + size]
            yield data.train_x[part], data.train_y[part]
        epoch += 1


def rate(step):
    """Return the learning rate's factor for a step from 0: linearly up, then linearly to 0."""
    return min(1, (step + 1) / TASK["warm_up"]) * (1 - step / TASK["steps"])


def data():
    """Return the data, standardized."""
    return digits().standardized()


@torch.no_grad()
def accuracy(model, vector, inputs, labels):
    """Return the share that the model gets right with the parameters of ``vector``."""
    torch.nn.utils.vector_to_parameters(vector, model.parameters())
    return (model(inputs).argmax(1) == labels).float().mean().item()


def loss_of(model, inputs, labels):
    """Return the mean cross entropy."""
    return F.cross_entropy(model(inputs), labels)


class Watch:
    """Seconds since it was made, on the virtual clock where one runs, else on the wall's."""

    def __init__(self):
        self._lost, self._start = 0.0, 0.0
        self._start = self.read()

    def read(self):
        """Return the seconds that count."""
        clock = virtual.current()
        now = clock.read() if clock is not None else time.perf_counter() - self._lost
        return now - self._start

    @contextlib.contextmanager
    def paused(self):
        """Do not count what the body takes. It must not communicate."""
        clock = virtual.current()
        if clock is not None:
            clock.stop()
        begin = time.perf_counter()
        yield
        self._lost += time.perf_counter() - begin
        if clock is not None:
            clock.go()
