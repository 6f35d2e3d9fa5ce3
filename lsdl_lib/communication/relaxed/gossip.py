"""Gossip SGD: each rank averages with its neighbors alone, and no rank with all.

    x_i <- sum_j W_ij x_j - eta g_i(x_i)       D-PSGD (Lian et al. 2017, Algorithm 1)
    x_i <- sum_j W_ij (x_j - eta g_j(x_j))     first the step, then the average

A round costs a message of n bytes to each neighbor, at most deg (alpha + n beta), however many
ranks there are; an all-reduce takes 2 n bytes a rank and waits for the slowest of all.

Conserved: with a doubly stochastic W a round leaves sum_i x_i as it is, so the average moves by the
average step, as in SGD. Progress: the ranks' squared distance to the average shrinks by
|lambda_2|^2 in a round (:mod:`lsdl_lib.communication.relaxed.mixing`), and each step adds to it
what the gradients differ. After enough steps D-PSGD converges as SGD does, at the rate
1 / sqrt(p T) for T steps; how many are enough depends on the spectral gap (Lian et al. 2017).

With the complete graph the second form is SGD with averaged parameters, which is SGD with averaged
gradients. The first is not: its gradients are taken before the average, at p points.
"""

import torch

from lsdl_lib.communication.relaxed.averager import ModelAverager
from lsdl_lib.communication.relaxed.neighbors import exchange, out_neighbors
from lsdl_lib.communication.relaxed.stochastic import checked, fingerprint


class Gossip(ModelAverager):
    """Mix the model with the neighbors' once an optimizer step.

    Where ``step`` is called decides the form: between ``backward`` and ``optimizer.step()`` it is
    D-PSGD, after ``optimizer.step()`` it is the second form. Gradients do not change in it.

    Attributes:
        mixing: the matrices, (p, p) each; step t uses number t modulo their count.

    Args:
        module: the model; rank 0's values are sent to all.
        mixing: doubly stochastic matrix of :mod:`~lsdl_lib.communication.relaxed.mixing`, or a list
            of them.
        buffers: mix running statistics too.
        group: process group; None is the default group.

    Raises:
        ValueError: the ranks' models or matrices differ, or a matrix is not doubly stochastic or
            not for this number of ranks.
    """

    def __init__(self, module, mixing, *, buffers=True, group=None):
        super().__init__(module, group, buffers, mixing=fingerprint(mixing))
        self.mixing = checked(mixing, self.size)

    @torch.no_grad()
    def step(self):
        """Send to the neighbors, mix what they sent; return the bytes that this rank sent."""
        weights = self.mixing[self.steps % len(self.mixing)]
        self.steps += 1
        mine = self.flat.read()
        to = out_neighbors(weights, self.rank)
        incoming = exchange(weights, dict.fromkeys(to, mine), mine, self.group)
        for vector in self.flat.vectors(mine):
            vector.mul_(float(weights[self.rank, self.rank]))
        for rank, theirs in incoming.items():
            for into, vector in zip(self.flat.vectors(mine), self.flat.vectors(theirs)):
                into.add_(vector, alpha=float(weights[self.rank, rank]))
        self.flat.write(mine)
        return len(to) * mine.numel()
