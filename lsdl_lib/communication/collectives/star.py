"""All-reduce through one rank: everybody sends to rank 0, which reduces and sends back.

    time = 2 (p-1) (alpha + n beta) + (p-1) n gamma

The naive twin of every other all-reduce. Rank 0 carries 2 (p-1) n bytes while each other rank
carries 2 n, so the time grows with p, however fast the others are.
"""

import torch
from torch.distributed import ReduceOp

from lsdl_lib.communication.collectives.calling import all_reduce


def star_all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce ``tensor`` over all ranks of ``group``, in place, through its rank 0.

    Args:
        tensor: any shape, the same shape and type on every rank.
        op: ``torch.distributed.ReduceOp``.
        group: process group; None is the default group.
        async_op: return a handle to ``wait()`` for instead of waiting.
    """
    return all_reduce(star_steps, tensor, op, group, async_op)


def star_steps(flat, reduce, messages):
    """The messages and reductions of one rank. ``flat``: (n,), reduced in place."""
    if messages.rank > 0:
        messages.exchange(sends=[(flat, 0)])
        yield messages.exchange(receives=[(flat, 0)])
        return
    inbox = torch.empty_like(flat)
    for source in range(1, messages.size):
        yield messages.exchange(receives=[(inbox, source)])
        reduce(flat, inbox)
    messages.exchange(sends=[(flat, rank) for rank in range(1, messages.size)])
