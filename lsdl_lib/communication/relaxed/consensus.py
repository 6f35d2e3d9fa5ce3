"""How far the ranks are apart: the measure that relaxed synchronization lets grow.

    (1/p) sum_i |x_i - (1/p) sum_j x_j|^2

0 where all ranks hold the same model. It costs two all-reduces, one of n numbers: measure it now
and then, not in a region that you time.
"""

import torch
import torch.distributed as dist

from lsdl_lib.communication.collectives.calling import size_of
from lsdl_lib.communication.relaxed.averager import averaged_tensors


@torch.no_grad()
def consensus_distance(module, group=None, all_reduce=dist.all_reduce):
    """Return the mean squared distance of the ranks' trained parameters from their average.

    Args:
        module: the model, of the same shapes on every rank.
        group: process group; None is the default group.
        all_reduce: ``fn(tensor, group=…)`` that sums in place.

    Computed in float64: the same number on every rank.
    """
    size = size_of(group)
    tensors = averaged_tensors(module, buffers=False).values()
    mine = torch.cat([tensor.detach().double().reshape(-1) for tensor in tensors])
    average = mine / size
    all_reduce(average, group=group)
    distance = (mine - average).square().sum() / size
    all_reduce(distance, group=group)
    return distance.item()
