"""Hogwild: several processes train on the same memory, without locks and without messages.

    each process, again and again:   w <- w - lr g(w)   in place, in shared memory

No server, no pull, no push: :func:`share_parameters`, and then any optimizer of torch on every
rank. The races are real. A gradient sees some numbers before and some after another rank's update.
And an addition is a load, an add and a store: where two ranks add to one number at the same moment,
one of the two can be lost. (The analysis of Recht et al. 2011 assumes additions that are atomic, a
number at a time; torch's are not.) A lost addition is a step not taken. On sparse problems two
ranks rarely touch the same numbers; :func:`sparsity` says how rarely.

Keep an optimizer without state: momentum would be each rank's own.
"""

from collections import Counter
from dataclasses import dataclass

import torch
import torch.distributed as dist

from lsdl_lib.communication.relaxed.shared_memory import shared_bytes

LINE_BYTES = 64  # of a cache: two parameters in one line would slow each other down


@torch.no_grad()
def share_parameters(parameters, group=None):
    """Move parameters into memory that all ranks of the group share, with rank 0's values.

    Call it before an optimizer is made. The ranks must be on one machine.

    Args:
        parameters: of the model, in the same order on every rank.
        group: process group; None is the default group.

    Raises:
        ValueError: there are none, or they are on a GPU, or the ranks are on several machines.
    """
    parameters = list(parameters)
    if not parameters:
        raise ValueError("there is no parameter to share")
    if not all(parameter.is_cpu for parameter in parameters):
        raise ValueError("parameters are on a GPU: ranks can share the memory of the machine only")
    sizes = [parameter.numel() * parameter.element_size() for parameter in parameters]
    slots = [-(-max(1, size) // LINE_BYTES) * LINE_BYTES for size in sizes]
    memory = shared_bytes(sum(slots), group)
    first = dist.get_rank(group) == 0
    for parameter, slot, size in zip(parameters, memory.split(slots), sizes, strict=True):
        shared = slot[:size].view(parameter.dtype).view(parameter.shape)
        if first:
            shared.copy_(parameter)
        parameter.data = shared
    dist.barrier(group)  # nobody trains on values that are not there yet


@dataclass(frozen=True)
class Sparsity:
    """How much the terms of a sum overlap (Recht et al. 2011, equation 2.6).

    Attributes:
        size: Omega, the most numbers that a term touches.
        degree: Delta, the largest share of the terms that touch the same number.
        overlap: rho, the largest share of the terms that have a number in common with one term.
    """

    size: int
    degree: float
    overlap: float


def sparsity(supports):
    """Return the :class:`Sparsity` of terms; ``supports`` holds the indices that each touches.

    Raises:
        ValueError: there is no term.
    """
    supports = [frozenset(support) for support in supports]
    if not supports:
        raise ValueError("there is no term: give the indices that each touches")
    touched = {}
    for term, support in enumerate(supports):
        for index in support:
            touched.setdefault(index, set()).add(term)
    degree = max((len(terms) for terms in touched.values()), default=0)
    kinds = Counter(supports)
    overlap = max(len(set().union(*(touched[i] for i in support))) for support in kinds)
    return Sparsity(
        size=max(map(len, supports)),
        degree=degree / len(supports),
        overlap=overlap / len(supports),
    )
