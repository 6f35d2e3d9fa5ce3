"""What nccl's collectives send, if nccl takes its rings.

NCCL picks an algorithm by size, machine and network (ring, tree, NVLS, CollNet) and does not say
which. Its rings are the bandwidth-optimal choice for large messages and what its own "bus
bandwidth" assumes, so they are what is counted here; trees and switch reductions move fewer or more
bytes through some ranks. With n bytes, p ranks, in the order of the ring from the root:

===============  ===========================  ==========================
collective       bytes sent by a rank         messages (ring steps)
===============  ===========================  ==========================
all_reduce       2 (p-1)/p n                  2 (p-1)
reduce_scatter   (p-1)/p n                    p - 1
all_gather       (p-1) n, n = one share       p - 1
broadcast        n, the last rank 0           1
reduce           n, the root 0                1
all_to_all       n less the own part          p - 1 (point to point)
gather, scatter  n, or (p-1) n at the root    1, or p - 1 (point to point)
barrier          all-reduce of one float      2 (p-1)
===============  ===========================  ==========================

Where p does not divide n, bytes are rounded up. Source: Patarasuk and Yuan (2009) for the optimal
volumes; the nccl-tests documentation for bus bandwidth; ``ProcessGroupNCCL`` for what torch builds
from sends and receives.
"""

from lsdl_lib.measure.wire import NOTHING, Wire, direct

FORMULAS = {
    "all_reduce": "ring: 2(p-1)/p n",
    "broadcast": "ring from the root: n, the last rank sends nothing",
    "reduce": "ring to the root: n, the root sends nothing",
    "all_gather": "ring: (p-1) n, n = one rank's share",
    "reduce_scatter": "ring: (p-1)/p n",
    "all_to_all": "point to point: n less the own part",
    "gather": "point to point: n from each rank to the root",
    "scatter": "point to point: n from the root to each rank",
    "barrier": "all-reduce of one float: 2(p-1)/p 4 bytes",
}


def wire(kind, call):
    """Return the :class:`Wire` of ``call`` on nccl's rings.

    Args:
        kind: a key of ``FORMULAS``.
        call: a :class:`~lsdl_lib.measure.wire.Call`.
    """
    p, n, others = call.ranks, call.size, call.ranks - 1
    if kind in ("all_to_all", "gather", "scatter"):
        return direct(kind, call)
    if p == 1 or (n == 0 and kind != "barrier"):
        return NOTHING
    if kind in ("all_reduce", "barrier"):
        moved, steps = -(-2 * others * (n or 4) // p), 2 * others
    elif kind == "reduce_scatter":
        moved, steps = -(-others * n // p), others
    elif kind == "all_gather":
        moved, steps = others * n, others
    else:
        place = (call.rank - call.root) % p  # a broadcast goes 0, 1, ..., p-1; a reduce comes back
        first, last = int(place == 0), int(place == others)
        sends, receives = (1 - last, 1 - first) if kind == "broadcast" else (1 - first, 1 - last)
        return Wire(sends * n, receives * n, sends, receives)
    return Wire(moved, moved, steps, steps)
