"""One round of a mixing matrix in messages: from each rank to its out-neighbors, all at once.

    sends:    to the ranks j with W_ji above 0
    receives: from the ranks j with W_ij above 0         (i: this rank, j another)

n bytes for each out-neighbor and nothing for anybody else: in a graph with few edges a rank waits
for few others. Nearest ranks ahead come first: if every rank sent to rank 0 first, all would wait
for rank 0's port.
"""

import numpy as np
import torch

from lsdl_lib.communication.collectives.checking import agree
from lsdl_lib.communication.collectives.messages import Messages


def out_neighbors(weights, rank):
    """Return the other ranks that ``rank`` sends to, the nearest ahead first."""
    others = (int(other) for other in np.flatnonzero(weights[:, rank]) if other != rank)
    return sorted(others, key=lambda other: (other - rank) % len(weights))


def in_neighbors(weights, rank):
    """Return the other ranks that ``rank`` receives from, the nearest behind first."""
    others = (int(other) for other in np.flatnonzero(weights[rank]) if other != rank)
    return sorted(others, key=lambda other: (rank - other) % len(weights))


def exchange(weights, outgoing, like, group):
    """Send to the out-neighbors and wait for what the in-neighbors send.

    Args:
        weights: (p, p) mixing matrix, the same on every rank.
        outgoing: {out-neighbor: contiguous tensor}.
        like: a tensor of the size and type that all ranks send.
        group: process group.

    Returns:
        {in-neighbor: tensor}.
    """
    agree("exchange of neighbors", group, like)
    messages = Messages(group)
    incoming = {rank: torch.empty_like(like) for rank in in_neighbors(weights, messages.rank)}
    handles = messages.exchange(
        sends=[(tensor, rank) for rank, tensor in outgoing.items()],
        receives=[(tensor, rank) for rank, tensor in incoming.items()],
    )
    for handle in handles:
        handle.wait()
    messages.finish()
    return incoming
