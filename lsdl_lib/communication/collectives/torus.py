"""All-reduce in two levels: rows and columns of a torus, or nodes and the network between them.

    time = 2 (X-1) alpha_x + 2 (X-1)/X n beta_x  +  2 (Y-1) alpha_y + 2 (Y-1)/Y (n/X) beta_y

The p = X Y ranks stand in Y rows of X. A reduce-scatter in each row leaves n/X elements a rank; a
ring all-reduce in each column finishes them; an all-gather in each row spreads them. As many bytes
as one ring, but 2 (X-1) + 2 (Y-1) steps where the ring has 2 (X Y - 1): on a 32 x 32 torus
(Mikami et al. 2018) 124 instead of 2046.

With rows = the ranks of one node this is the hierarchical all-reduce (Horovod): fast links carry n
bytes, the slow network between nodes carries n/X.
"""

import functools

from torch.distributed import ReduceOp

from lsdl_lib.communication.collectives import ring
from lsdl_lib.communication.collectives.calling import all_reduce, chunks, size_of
from lsdl_lib.communication.collectives.messages import Among


def torus_all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False, *, width=None):
    """Reduce ``tensor`` over all ranks of ``group``, in place, along rows and columns.

    Args:
        tensor: any shape, the same shape and type on every rank.
        op: ``torch.distributed.ReduceOp``.
        group: process group; None is the default group.
        async_op: return a handle to ``wait()`` for instead of waiting.
        width: X, ranks a row; ranks 0 … X-1 are the first row. Left out: the divisor of p that
            makes the torus most nearly square.

    Raises:
        ValueError: ``width`` does not divide the number of ranks.
    """
    width = checked_width(width or squarest_width(size_of(group)), size_of(group))
    steps = functools.partial(torus_steps, width=width)
    return all_reduce(steps, tensor, op, group, async_op)


def hierarchical_all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False, *, ranks_per_node):
    """Reduce ``tensor`` in each node first, then between nodes; see :func:`torus_all_reduce`.

    Args:
        tensor, op, group, async_op: as for any all-reduce.
        ranks_per_node: ranks that share a node; the first node has ranks 0 … ranks_per_node - 1.

    Raises:
        ValueError: ``ranks_per_node`` does not divide the number of ranks.
    """
    return torus_all_reduce(tensor, op, group, async_op, width=ranks_per_node)


def torus_steps(flat, reduce, messages, width):
    """The messages and reductions of one rank. ``flat``: (n,), reduced in place."""
    column, row = messages.rank % width, messages.rank // width
    in_row = Among(messages, range(row * width, (row + 1) * width))
    in_column = Among(messages, range(column, messages.size, width))
    chunk = chunks(flat, width)
    yield from ring.reduce_scatter_steps(chunk, reduce, in_row)
    yield from ring.ring_steps(chunk[column], reduce, in_column)
    yield from ring.all_gather_steps(chunk, in_row)


def squarest_width(p):
    """Return the smallest divisor of p that is at least sqrt(p)."""
    return next(width for width in range(1, p + 1) if p % width == 0 and width * width >= p)


def checked_width(width, p):
    """Return ``width`` if it divides p.

    Raises:
        ValueError: it does not; names both and the divisors.
    """
    if not isinstance(width, int) or width < 1 or p % width:
        divisors = ", ".join(str(d) for d in range(1, p + 1) if p % d == 0)
        raise ValueError(f"{p} ranks do not stand in rows of {width!r}: use one of {divisors}")
    return width
