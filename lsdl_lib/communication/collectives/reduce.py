"""Reduce: the sum of all ranks' tensors comes to one rank.

    star: (p-1) (alpha + n beta + n gamma)               the root receives from each in turn
    tree: ceil(lg p) (alpha + n beta + n gamma)          binomial

As in torch, the tensors of the other ranks may change: here they hold partial results afterwards
(tree) or stay (star).
"""

import torch
from torch.distributed import ReduceOp

from lsdl_lib.communication.collectives import tree
from lsdl_lib.communication.collectives.calling import (
    drive,
    flattened,
    perform,
    restore,
    root_in,
)
from lsdl_lib.communication.collectives.checking import agree
from lsdl_lib.communication.collectives.messages import Messages
from lsdl_lib.communication.collectives.reductions import reduction


def star_reduce(tensor, dst=0, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce into rank ``dst``'s tensor, one rank after the other; see :func:`tree_reduce`."""
    return _reduce("star_reduce", star_steps, tensor, dst, op, group, async_op)


def tree_reduce(tensor, dst=0, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce all ranks' tensors into rank ``dst``'s, in place, along a binomial tree.

    Args:
        tensor: any shape, the same shape and type on every rank.
        dst: the global rank that gets the result.
        op: ``torch.distributed.ReduceOp``.
        group: process group; None is the default group.
        async_op: return a handle to ``wait()`` for instead of waiting.

    Raises:
        ValueError: ``dst`` is not in the group.
        TypeError: the operation does not fit the type.
    """
    return _reduce("tree_reduce", tree.reduce_steps, tensor, dst, op, group, async_op)


def _reduce(name, steps, tensor, dst, op, group, async_op):
    agree(name, group, tensor, op=op, root=dst)
    reduce, divide = reduction(op, tensor)
    root = root_in(group, dst)
    messages = Messages(group)
    values = tensor.detach()

    def run():
        flat = flattened(values)
        if divide:
            flat.div_(messages.size)
        drive(steps(flat, reduce, messages, root), messages)
        restore(values, flat)

    return perform(run, async_op)


def star_steps(flat, reduce, messages, root):
    """The messages and reductions of one rank. ``flat``: (n,), reduced in place on the root."""
    if messages.rank != root:
        messages.exchange(sends=[(flat, root)])
        return
    inbox = torch.empty_like(flat)
    for source in range(messages.size):
        if source != root:
            yield messages.exchange(receives=[(inbox, source)])
            reduce(flat, inbox)
