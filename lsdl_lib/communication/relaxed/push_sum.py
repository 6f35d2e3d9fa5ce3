"""Stochastic gradient push: gossip on directed graphs, to others than those one hears from.

    x_i <- x_i - eta g_i(z_i)                      g_i: gradient of rank i at z_i
    x_i <- sum_j P_ij x_j,   w_i <- sum_j P_ij w_j
    z_i = x_i / w_i                                w_i = 1 at first

P only needs columns that add up to 1: a rank decides alone how it splits what it has. Plain gossip
with such a P ends at an average in which popular ranks count more. Here w, which travels along,
measures by how much, and dividing by it gives the true average (push-sum: Kempe et al. 2003; with
gradients: Assran et al. 2019, Algorithm 1).

Conserved: a round leaves sum_i x_i and sum_i w_i = p as they are. Progress: if the graph connects
all ranks over its rounds, all z_i go to sum_i x_i / p. With a doubly stochastic P all w_i stay 1,
and it is gossip.

The model holds z, so it may be used at any time. A message is the n bytes of x and the 8 of w.
Running statistics stay on their rank: x / w would not keep a variance above 0.
"""

import torch

from lsdl_lib.communication.relaxed.averager import ModelAverager
from lsdl_lib.communication.relaxed.neighbors import exchange, out_neighbors
from lsdl_lib.communication.relaxed.stochastic import checked, fingerprint


class PushSum(ModelAverager):
    """Push the model to the out-neighbors once an optimizer step, after ``optimizer.step()``.

    Attributes:
        mixing: the matrices, (p, p) each; step t uses number t modulo their count.
        weight: w of this rank.
        numerators: x of this rank, flat, (n_bytes,) uint8.

    Args:
        module: the model; rank 0's values are sent to all.
        mixing: column-stochastic matrix with a positive diagonal, or a list of them;
            :func:`~lsdl_lib.communication.relaxed.mixing.push_weights` makes one of any directed
            graph.
        group: process group; None is the default group.

    Raises:
        ValueError: the ranks' models or matrices differ, or a matrix is not column-stochastic, not
            for this number of ranks, or lets a rank give all away.
    """

    def __init__(self, module, mixing, *, group=None):
        super().__init__(module, group, buffers=False, mixing=fingerprint(mixing))
        self.mixing = checked(mixing, self.size, rows=False)
        for weights in self.mixing:
            if not (weights.diagonal() > 0).all():  # else w could become 0
                place = int(weights.diagonal().argmin())
                raise ValueError(f"rank {place} keeps nothing: give it a weight for itself above 0")
        self.weight = 1.0
        self.numerators = self.flat.read()

    @torch.no_grad()
    def step(self):
        """Push to the out-neighbors, add what came in; return the bytes that this rank sent."""
        weights = self.mixing[self.steps % len(self.mixing)]
        self.steps += 1
        self._take_step()
        kept = float(weights[self.rank, self.rank])
        outgoing = {
            rank: self._packed(float(weights[rank, self.rank]))
            for rank in out_neighbors(weights, self.rank)
        }
        own = self._packed(kept)
        incoming = exchange(weights, outgoing, own, self.group)
        self.weight = sum(map(_weight, [own, *incoming.values()]))
        self.numerators = own[:-8].clone()
        for theirs in incoming.values():
            for into, vector in zip(self._vectors(), self.flat.vectors(theirs[:-8])):
                into.add_(vector)
        self.flat.write(self._quotients())
        return sum(memory.numel() for memory in outgoing.values())

    def _take_step(self):
        """Add to x what the optimizer, or anybody else, added to z."""
        now, before = self.flat.read(), self._quotients()
        for x, new, old in zip(self._vectors(), self.flat.vectors(now), self.flat.vectors(before)):
            x.add_(new.sub_(old))

    def _quotients(self):
        z = self.numerators.clone()
        for vector in self.flat.vectors(z):
            vector.div_(self.weight)
        return z

    def _packed(self, share):
        """Return ``share`` of x and w in one piece of memory, (n_bytes + 8,) uint8."""
        x = self.numerators.clone()
        for vector in self.flat.vectors(x):
            vector.mul_(share)
        w = torch.tensor([share * self.weight], dtype=torch.float64, device=x.device)
        return torch.cat([x, w.view(torch.uint8)])

    def _vectors(self):
        return self.flat.vectors(self.numerators)

    def state_dict(self):
        """Return the number of steps, w and x."""
        return {
            **super().state_dict(),
            "weight": self.weight,
            "numerators": self.numerators.clone(),
        }

    def load_state_dict(self, state):
        """Go on from a saved state; the model's values are loaded apart."""
        super().load_state_dict(state)
        self.weight = state["weight"]
        self.numerators = state["numerators"].to(self.numerators.device, copy=True)


def _weight(packed):
    return packed[-8:].clone().view(torch.float64).item()  # the copy is aligned
