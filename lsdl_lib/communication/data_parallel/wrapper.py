"""What all versions of data parallelism share: they differ in how gradients become averages.

Every rank has a copy of the model and a part of the global batch. After a backward pass each
gradient must be the average over the ranks,

    p.grad = (1/p) sum over ranks of the rank's gradient,

and every rank takes the same optimizer step, so that the copies stay equal (Li et al. 2020).

The wrapper learns of gradients by hooks on the parameters, not from its ``forward``. So it does not
matter how the loss was computed, through the wrapper or through ``.module``, in how many forward
passes, and ``no_sync`` counts where ``backward`` is called.

A gradient that is already there when ``backward`` adds to it was averaged before, the same on all
ranks, or was accumulated under ``no_sync``. The average of the sum is right in both cases.
"""

import contextlib
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Variable

from lsdl_lib.communication.data_parallel.agreement import (
    agree_on_parameters,
    broadcast_tensors,
    tensors_of,
)

UNUSED = ("error", "zero")


class DataParallel(nn.Module):
    """Base of the data-parallel wrappers.

    Attributes:
        module: the model.
        group: the process group.
        names: of the parameters that are trained, a tied one once, in order of registration.
        parameters_: these parameters.
        sparse: indices of those with sparse gradients (``nn.Embedding(sparse=True)``).
        averaged_over: number of ranks that gradients are averaged over.

    Args:
        module: the model, on this rank's device; rank 0's values are sent to all.
        group: process group; None is the default group.
        unused: what a parameter means that gets no gradient in a backward pass: ``"error"``, or
            ``"zero"``: its gradient is 0 on this rank.
        broadcast_buffers: send rank 0's buffers (running statistics) to all before each forward
            pass in training.

    Raises:
        ValueError: the ranks' models differ, ``unused`` is not known, or nothing is trained.
    """

    def __init__(self, module, group=None, *, unused="error", broadcast_buffers=True):
        super().__init__()
        if unused not in UNUSED:
            raise ValueError(f"unused={unused!r}: give one of {', '.join(UNUSED)}")
        self.module = module
        self.group = group if group is not None else dist.group.WORLD
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not trained:
            raise ValueError("no parameter requires a gradient: there is nothing to train")
        agree_on_parameters(trained, self.group)
        broadcast_tensors(tensors_of(module), self.group)
        self.names, self.parameters_ = list(trained), list(trained.values())
        self._unused, self._broadcast_buffers = unused, broadcast_buffers
        # Gradients of tables that only some rows of a batch touch; torch names such modules' flag.
        self.sparse = {
            index
            for index, parameter in enumerate(self.parameters_)
            if any(parameter is one for one in _sparse_parameters(module))
        }
        self.averaged_over = dist.get_world_size(self.group)
        self._synchronize, self._joining = True, False
        self._task = None  # the backward pass that is running
        self._ready = set()
        for index, parameter in enumerate(self.parameters_):
            parameter.register_post_accumulate_grad_hook(partial(self._on_gradient, index))

    def forward(self, *args, **kwargs):
        """Return what the model returns."""
        if self.training and self._broadcast_buffers and self._synchronize and not self._joining:
            broadcast_tensors(self.module.buffers(), self.group)
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self):
        """Backward passes in the body only add to this rank's gradients; the next one averages.

        Forward passes in the body send no buffers: nothing is sent at all.
        """
        before, self._synchronize = self._synchronize, False
        try:
            yield
        finally:
            self._synchronize = before

    @contextlib.contextmanager
    def join(self):
        """Let ranks have different numbers of batches: train in the body, all ranks alike.

        A rank that leaves the body follows the others' backward passes without a gradient of its
        own. Averages are then over the ranks that have a batch. When the last rank has left, all
        get its parameters and buffers. Each pass costs one small message more; running statistics
        are not sent inside. An optimizer's state is not sent either: it misses the steps that its
        rank did not take.
        """
        self._joining = True
        try:
            yield
            self._follow()
        finally:
            self._joining, self.averaged_over = False, dist.get_world_size(self.group)

    def _follow(self):
        """Take part in the other ranks' averages until no rank has a batch left."""
        last = 0
        while active := self._active(False):
            last = active[0]
            self.averaged_over = len(active)
            for parameter in self.parameters_:
                parameter.grad = None
            self.begin()
            self.average(range(len(self.parameters_)))
        broadcast_tensors(tensors_of(self.module), self.group, last)

    def _active(self, have_a_batch):
        """Return the places in the group of the ranks that have a batch."""
        device = self.parameters_[0].device
        flags = torch.zeros(dist.get_world_size(self.group), device=device)
        flags[dist.get_rank(self.group)] = float(have_a_batch)
        dist.all_reduce(flags, group=self.group)
        return flags.nonzero().flatten().tolist()

    def average_sparse(self):
        """Average the sparse gradients, one by one."""
        for index in sorted(self.sparse):
            parameter = self.parameters_[index]
            if parameter.grad is None:
                kind = {"dtype": parameter.dtype, "device": parameter.device}
                parameter.grad = torch.sparse_coo_tensor(size=parameter.shape, **kind)
            total = (parameter.grad / self.averaged_over).coalesce()
            dist.all_reduce(total, group=self.group)
            parameter.grad = total

    def gradient_ready(self, index):
        """Parameter ``index`` has its gradient of this backward pass. Subclasses may start here."""

    def average(self, missing):
        """The backward pass is over: make every gradient the average over the ranks.

        Args:
            missing: indices of the parameters that got no gradient; they count as 0.
        """
        raise NotImplementedError

    def _on_gradient(self, index, parameter):
        if not self._synchronize:
            return
        task = torch._C._current_graph_task_id()
        if task != self._task:  # the first gradient of a pass, or the last pass failed half-way
            self._task, self._ready = task, set()
            if self._joining:
                self.averaged_over = len(self._active(True))
            self.begin()
            Variable._execution_engine.queue_callback(self._on_end)
        self._ready.add(index)
        self.gradient_ready(index)

    def begin(self):
        """A backward pass begins. Subclasses forget here what a failed pass left."""

    def _on_end(self):
        self._task = None
        missing = [i for i in range(len(self.parameters_)) if i not in self._ready]
        # Averaged in any case, so that no other rank waits for this one.
        with torch.no_grad():
            self.average(missing)
        if missing and self._unused == "error":
            names = ", ".join(self.names[i] for i in missing)
            raise RuntimeError(
                f"no gradient for {names}: the loss does not depend on them. Freeze them "
                "(requires_grad_(False)), or pass unused='zero'"
            )


def _sparse_parameters(module):
    return [part.weight for part in module.modules() if getattr(part, "sparse", False)]
