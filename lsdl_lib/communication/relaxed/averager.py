"""What all model averagers share: ranks train on their own, and now and then mix their parameters.

An averager stands beside an optimizer of torch's and leaves it and the model as they are:

    averager = SomeAverager(model, …)
    loss.backward(); optimizer.step(); averager.step()

``step`` is called once an optimizer step, not once a group of parameters, and returns the bytes of
values that it brought to communication, 0 in a step without.
"""

import torch
import torch.distributed as dist

from lsdl_lib.communication.collectives.calling import size_of
from lsdl_lib.communication.data_parallel.agreement import (
    agree_on_parameters,
    broadcast_tensors,
    tensors_of,
)
from lsdl_lib.communication.relaxed.flat import FlatTensors


class ModelAverager:
    """Base of the averagers.

    Attributes:
        module: the model.
        group: the process group; rank, size: this process's place in it, the number of ranks.
        flat: :class:`FlatTensors` of the parameters that are trained, and of the running
            statistics where ``buffers``.
        steps: number of calls of ``step``.

    Args:
        module: the model, on this rank's device; rank 0's values are sent to all.
        group: process group; None is the default group.
        buffers: average the buffers with floating-point numbers too (running statistics).
        settings: what else must be the same on every rank.

    Raises:
        ValueError: the ranks' models or settings differ, the same text on every rank; or nothing
            is trained.
    """

    def __init__(self, module, group, buffers, **settings):
        self.size = size_of(group)
        self.group = group if group is not None else dist.group.WORLD
        self.rank = dist.get_rank(self.group)
        self.module = module
        method = type(self).__name__
        agree_on_settings({"method": method, "buffers": buffers, **settings}, self.group)
        averaged = averaged_tensors(module, buffers)
        agree_on_parameters(averaged, self.group)
        broadcast_tensors(tensors_of(module), self.group)
        self.flat = FlatTensors(averaged.values())
        self.steps = 0

    def state_dict(self):
        """Return what a checkpoint needs beside each rank's model and optimizer."""
        return {"steps": self.steps}

    def load_state_dict(self, state):
        """Go on from a saved state. Ranks differ: each loads its own model, optimizer and state."""
        self.steps = state["steps"]


def averaged_tensors(module, buffers):
    """Return {name: tensor} of what is averaged: a tied parameter once, frozen ones not.

    Raises:
        ValueError: no parameter is trained.
    """
    found = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not found:
        raise ValueError("no parameter requires a gradient: there is nothing to train")
    if buffers:
        saved = module.state_dict(keep_vars=True)  # leaves out masks and tables, which are constant
        found |= {
            name: buffer
            for name, buffer in module.named_buffers()
            if name in saved and buffer.is_floating_point()
        }
    return found


def agree_on_settings(settings, group):
    """Compare settings over ``group``.

    Args:
        settings: {name: value}; values are compared by their ``repr``.
        group: process group.

    Raises:
        ValueError: they differ; the same text on every rank names the first difference.
    """
    ranks = dist.get_process_group_ranks(group)
    everyone = [None] * len(ranks)
    dist.all_gather_object(everyone, {k: repr(v) for k, v in settings.items()}, group=group)
    for name in everyone[0]:
        for rank, theirs in zip(ranks, everyone):
            if theirs.get(name) != everyone[0][name]:
                raise ValueError(
                    f"{name} is {everyone[0][name]} on rank {ranks[0]} and {theirs.get(name)} on "
                    f"rank {rank}: give every rank the same"
                )


@torch.no_grad()
def mean_(vectors, size, all_reduce, group):
    """Make each vector the average over the ranks, in place; return the bytes of all."""
    for vector in vectors:
        vector.div_(size)  # before the sum, which could overflow
        if vector.numel():
            all_reduce(vector, group=group)
    return sum(vector.numel() * vector.element_size() for vector in vectors)
