"""Majority vote of signs: one bit a number, from every rank and back to every rank.

    signSGD     w <- w - eta sign(sum over ranks of sign(g_r))
    Signum      the same with each rank's momentum m_r in place of its gradient g_r

Each rank counts a part of the numbers for all: it gets its part of everyone's signs, and sends the
majority's signs to everyone (the paper has one server). A rank sends and receives

    2 (p-1)/p n/8 bytes, and p-1 more            n numbers; 32 times less than a ring in float32

where messages that are gathered take (p-1) n/8. The result is -1 or +1 for every number, so the
learning rate alone says how far a step goes (Bernstein et al. 2018).

With an even number of ranks there are ties. The rank that counts a part decides them by its own
sign: each rank for as many numbers, so no direction is favored. A 0 counts as positive, as one bit
cannot abstain: a parameter whose gradient is 0 on all ranks walks, so freeze it instead.

Signs hide NaN and infinity. So with each part goes one byte that says if all of the rank's vector
is finite; if one is not, the result is NaN everywhere, on every rank.
"""

import torch

from lsdl_lib.communication.compression.compressor import Compressor
from lsdl_lib.communication.compression.packing import (
    pack,
    pack_signs,
    packed_bytes,
    unpack,
    unpack_signs,
)


class SignVote(Compressor):
    """The sign of the majority.

    The residual is the vector minus the result, so p mean + sum of the residuals = sum of the
    vectors. But a vote is no sum: what a rank that was outvoted did not get said grows for ever.
    So :class:`ErrorFeedback` refuses it.
    """

    has_residual = False

    def compress(self, vector, key=0):
        """Return (signs, (ceil(n / 8),) uint8)."""
        return (pack_signs(vector),)

    def decompress(self, message, like):
        """Return the signs, -1 or +1, (n,)."""
        return unpack_signs(message[0], like.numel(), like.dtype)

    def aggregate(self, vector, peers, key=0, shapes=None):
        """Return (the majority's signs, the same on every rank; vector minus them), both (n,)."""
        (signs,) = self.compress(vector)
        share = -(-signs.numel() // peers.size)  # bytes that each rank counts
        padded = signs.new_zeros(peers.size, share)
        padded.view(-1)[: signs.numel()] = signs
        finite = torch.isfinite(vector).all().to(torch.uint8).expand(peers.size, 1)
        ballots = torch.stack(peers.exchange(list(torch.cat((finite, padded), 1))))
        decided = count(ballots[:, 1:], peers.rank)
        decisions = torch.cat([part for (part,) in peers.gather((decided,))])
        mean = self.decompress((decisions[: packed_bytes(vector.numel(), 1)],), vector)
        if not ballots[:, 0].all():
            mean.fill_(float("nan"))
        return mean, vector - mean


class Signum(SignVote):
    """The majority of the signs of the ranks' momentum.

        m <- beta m + (1 - beta) g        on each rank, 0 at first

    Args:
        beta: share of the old momentum, from 0 to below 1; 0 is signSGD.

    Raises:
        ValueError: another share.
    """

    def __init__(self, beta=0.9):
        if not 0 <= beta < 1:
            raise ValueError(f"beta={beta!r}: give a share from 0 to below 1")
        self.beta = beta
        self.momenta = {}  # key -> (n,)

    def aggregate(self, vector, peers, key=0, shapes=None):
        """Return (the majority's signs; this rank's momentum minus them), both (n,)."""
        old = self.momenta.get(key)
        if old is None or old.shape != vector.shape or old.dtype != vector.dtype:
            old = torch.zeros_like(vector)
        momentum = self.beta * old + (1 - self.beta) * vector
        mean, residual = super().aggregate(momentum, peers, key, shapes)
        # The result is the same on all ranks, so all decide alike: a skipped step leaves no trace.
        self.momenta[key] = momentum if torch.isfinite(mean).all() else old
        return mean, residual

    def forget(self, key):
        """Start with a momentum of 0 again."""
        self.momenta.pop(key, None)

    def state_dict(self):
        """Return the momenta."""
        return {"momenta": dict(self.momenta)}

    def load_state_dict(self, state):
        """Go on from a saved state."""
        self.momenta = {key: momentum.clone() for key, momentum in state["momenta"].items()}


def count(ballots, rank):
    """Return the majority's signs, packed, (bytes,); a tie goes to ``rank``'s sign.

    Args:
        ballots: (p, bytes) uint8: each rank's signs, packed.
    """
    p, share = ballots.shape
    positive = unpack(ballots.reshape(-1), 1, 8 * p * share).view(p, 8 * share)
    votes = positive.sum(0, dtype=torch.int32)
    return pack(2 * votes + positive[rank] > p, 1)
