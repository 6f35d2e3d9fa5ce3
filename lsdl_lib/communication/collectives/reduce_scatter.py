"""Reduce-scatter: piece r of all ranks' lists, reduced, comes to rank r.

ring:    (p-1) alpha + (p-1)/p n beta + (p-1)/p n gamma     any p; n is all pieces together
halving: lg p alpha + (p-1)/p n beta + (p-1)/p n gamma      p a power of two
"""

import torch
from torch.distributed import ReduceOp

from lsdl_lib.communication.collectives import halving, ring
from lsdl_lib.communication.collectives.all_gather import refuse_odd_sizes
from lsdl_lib.communication.collectives.calling import drive, perform, size_of
from lsdl_lib.communication.collectives.checking import agree
from lsdl_lib.communication.collectives.lists import Pieces, refuse_misfit
from lsdl_lib.communication.collectives.messages import Messages
from lsdl_lib.communication.collectives.reductions import reduction


def ring_reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """Write the reduction of all ranks' ``input_list[rank]`` to ``output``, around a ring.

    Args:
        output: this rank's result.
        input_list: one tensor a rank, the same shapes on every rank; not changed.
        op: ``torch.distributed.ReduceOp``.
        group: process group; None is the default group.
        async_op: return a handle to ``wait()`` for instead of waiting.

    Raises:
        ValueError: the list has not one tensor a rank, or ``output`` has another size.
        TypeError: the operation does not fit the type.
    """

    def steps(pieces, reduce, messages):
        return ring.reduce_scatter_steps(pieces.views, reduce, messages)

    return _reduce_scatter("ring_reduce_scatter", steps, output, input_list, op, group, async_op)


def halving_reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """As :func:`ring_reduce_scatter`, by recursive halving.

    Raises:
        ValueError: also when the number of ranks is no power of two.
    """
    refuse_odd_sizes(size_of(group))

    def steps(pieces, reduce, messages):
        inbox = torch.empty_like(pieces.flat)
        return halving.reduce_scatter_steps(pieces.flat, inbox, pieces.edges, reduce, messages)

    return _reduce_scatter("halving_reduce_scatter", steps, output, input_list, op, group, async_op)


def _reduce_scatter(name, steps, output, input_list, op, group, async_op):
    agree(name, group, op=op, gives=input_list, takes=output)
    reduce, divide = reduction(op, output)
    messages = Messages(group)
    pieces = Pieces(input_list, messages.size, "input_list", filled=True)
    mine = pieces.views[messages.rank]
    refuse_misfit(f"place {messages.rank} of input_list", mine, "output", output)

    def run():
        if divide:
            pieces.flat.div_(messages.size)
        drive(steps(pieces, reduce, messages), messages)
        output.detach().copy_(mine.view(output.shape))

    return perform(run, async_op)
