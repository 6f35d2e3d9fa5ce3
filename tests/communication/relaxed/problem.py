"""One small problem for all methods, twice: as a torch model, and as numpy formulas on vectors.

Linear regression in float64. Every rank and step has its own batch, so the ranks' gradients differ.
A rank's parameters are also a vector, (15,): the weight (3, 4), row by row, then the bias (3,).
"""

import functools

import numpy as np
import torch
from torch import nn

from lsdl_lib import launch

STEPS = 20
RATE = 0.1


def batch(rank, step):
    numbers = np.random.default_rng([7, rank, step])
    return numbers.normal(size=(5, 4)), numbers.normal(size=(5, 3))


def model():
    made = nn.Linear(4, 3, dtype=torch.float64)
    with torch.no_grad():
        write(made, start())
    return made


def start():
    return np.random.default_rng(3).normal(size=15)


def write(module, vector):
    """Set a model's parameters to a vector."""
    nn.utils.vector_to_parameters(torch.from_numpy(vector.copy()), module.parameters())


def read(module):
    """Return a model's parameters as a vector."""
    return nn.utils.parameters_to_vector(module.parameters()).detach().numpy().copy()


def backward(module, rank, step):
    """Compute the gradients of a rank's batch."""
    inputs, targets = map(torch.from_numpy, batch(rank, step))
    module.zero_grad()
    ((module(inputs) - targets) ** 2).sum(1).mean().mul(0.5).backward()


def gradient(vector, rank, step):
    """The same gradients, (15,), by hand."""
    inputs, targets = batch(rank, step)
    weight, bias = vector[:12].reshape(3, 4), vector[12:]
    errors = inputs @ weight.T + bias - targets
    return np.concatenate([(errors.T @ inputs).reshape(-1), errors.sum(0)]) / len(inputs)


def gradients(vectors, step):
    """Each rank's gradient at its own vector, (p, 15)."""
    return np.stack([gradient(vector, rank, step) for rank, vector in enumerate(vectors)])


def starts(p):
    """The same start for each rank, (p, 15)."""
    return np.tile(start(), (p, 1))


@functools.cache
def launched(fn, p):
    """Launch ``fn()`` on p ranks, once for all tests that look at its results."""
    return launch(fn, ranks=p, threads=1)
