"""Collectives made of point-to-point messages, one algorithm a file.

They have the signatures of ``torch.distributed``, work on any backend, in sub-groups, on strided
and empty tensors, and in the background (``async_op``).
"""

from lsdl_lib.communication.collectives.all_gather import doubling_all_gather, ring_all_gather
from lsdl_lib.communication.collectives.all_to_all import direct_all_to_all, pairwise_all_to_all
from lsdl_lib.communication.collectives.broadcast import (
    ring_broadcast,
    star_broadcast,
    tree_broadcast,
)
from lsdl_lib.communication.collectives.doubling import doubling_all_reduce
from lsdl_lib.communication.collectives.halving import halving_all_reduce
from lsdl_lib.communication.collectives.pipelined import pipelined_all_reduce
from lsdl_lib.communication.collectives.reduce import star_reduce, tree_reduce
from lsdl_lib.communication.collectives.reduce_scatter import (
    halving_reduce_scatter,
    ring_reduce_scatter,
)
from lsdl_lib.communication.collectives.ring import ring_all_reduce
from lsdl_lib.communication.collectives.scatter import (
    star_gather,
    star_scatter,
    tree_gather,
    tree_scatter,
)
from lsdl_lib.communication.collectives.star import star_all_reduce
from lsdl_lib.communication.collectives.torus import hierarchical_all_reduce, torus_all_reduce
from lsdl_lib.communication.collectives.tree import tree_all_reduce

__all__ = [
    "direct_all_to_all",
    "doubling_all_gather",
    "doubling_all_reduce",
    "halving_all_reduce",
    "halving_reduce_scatter",
    "hierarchical_all_reduce",
    "pairwise_all_to_all",
    "pipelined_all_reduce",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_broadcast",
    "ring_reduce_scatter",
    "star_all_reduce",
    "star_broadcast",
    "star_gather",
    "star_reduce",
    "star_scatter",
    "torus_all_reduce",
    "tree_all_reduce",
    "tree_broadcast",
    "tree_gather",
    "tree_reduce",
    "tree_scatter",
]
