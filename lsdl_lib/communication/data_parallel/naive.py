"""Data parallelism, naive: when the backward pass is over, average the gradients one by one.

    time = backward + sum over parameters of T_all_reduce(bytes of the parameter)

A latency for every parameter, and the network idles while the processor computes, and the other way
round. The twin of the faster versions.
"""

import torch
import torch.distributed as dist

from lsdl_lib.communication.data_parallel.wrapper import DataParallel


class NaiveDataParallel(DataParallel):
    """Average each gradient after the backward pass, one all-reduce a parameter.

    Args:
        module, group, unused, broadcast_buffers: as in :class:`DataParallel`.
        all_reduce: ``fn(tensor, group=…)`` that sums in place; ``torch.distributed``'s, or one of
            ``lsdl_lib.communication.collectives``.
    """

    def __init__(self, module, group=None, *, all_reduce=dist.all_reduce, **options):
        super().__init__(module, group, **options)
        self.all_reduce = all_reduce

    def average(self, missing):
        """Average one gradient after the other, in order of registration."""
        for index, parameter in enumerate(self.parameters_):
            if index in self.sparse:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.div_(self.averaged_over)  # before the sum, which could overflow
            self.all_reduce(parameter.grad, group=self.group)
        self.average_sparse()
