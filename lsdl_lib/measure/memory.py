"""Peak memory, and what it was made of.

``with memory(model, optimizer) as m`` follows the storages that the body touches
(:mod:`lsdl_lib.measure.storages`), on the CPU and on a GPU alike, for real and for fake tensors,
over any number of steps. At the peak they are split into

- **parameters** of modules that ran and of optimizers that stepped, wherever they live (a gathered
  or flat buffer counts whole),
- **gradients**: what ``p.grad`` holds, or held when it was accumulated,
- **optimizer state**: the tensors in ``optimizer.state``,
- **activations**: what is created while gradients are recorded: outputs of layers, tensors saved
  for backward, the forward pass's own temporaries; recomputation in backward too,
- **other**: the rest: module buffers, inputs made before the body, temporaries of backward and of
  the optimizer's step, communication buffers.

With Psi float32 parameters: 4 Psi bytes each for parameters and gradients, 4 Psi for momentum, 8
Psi for AdamW's two moments (and 4 bytes a tensor for its step count).

torch's own ``MemTracker`` finds the same peak (a test compares them), but puts the optimizer step's
temporaries under its state (12 Psi for AdamW), and refuses a second step unless it is reset.
"""

import contextlib
from dataclasses import dataclass

import torch
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from lsdl_lib.launch import device as device_here
from lsdl_lib.measure.storages import Storages
from lsdl_lib.measure.units import format_capacity

PARAMETERS, GRADIENTS, ACTIVATIONS = "parameters", "gradients", "activations"
STATE, OTHER = "optimizer state", "other"
CATEGORIES = (PARAMETERS, GRADIENTS, ACTIVATIONS, STATE, OTHER)


@dataclass
class Memory:
    """The peak of one body, filled when the body ends.

    Attributes:
        device: ``torch.device`` whose memory was followed.
        peak_bytes: most bytes alive at once, in storages that the body touched.
        by_category: ``{category: bytes}`` at that moment; the values add up to ``peak_bytes``.
        allocator_peak_bytes: on a GPU, ``torch.cuda.max_memory_allocated`` over the body: all
            tensors of the process, kernels' scratch space and rounding to 512 bytes included. None
            on the CPU, which has no such counter.
    """

    device: torch.device
    peak_bytes: int = 0
    by_category: dict | None = None
    allocator_peak_bytes: int | None = None

    def __repr__(self):
        parts = ", ".join(f"{k} {format_capacity(v)}" for k, v in (self.by_category or {}).items())
        return f"Memory(peak {format_capacity(self.peak_bytes)} on {self.device}: {parts})"


@contextlib.contextmanager
def memory(model=None, optimizer=None, device=None):
    """Find the peak of memory in the body and split it; yields a :class:`Memory`.

    Args:
        model: ``nn.Module`` whose parameters count from the start; without it, a module's
            parameters count from its first forward pass.
        optimizer: ``torch.optim.Optimizer`` whose parameters, gradients and state count from the
            start; without it, from its first step.
        device: whose memory; left out, the model's device, else ``lsdl_lib.launch.device()``.

    It slows every operator: do not use it in a region that you time. Memory that the body never
    touches is not counted, and neither is scratch space inside a kernel.
    """
    parameters = _parameters(model, optimizer)
    if device is None:
        device = parameters[0].device if parameters else device_here()
    found = Memory(torch.device(device))
    on_gpu = found.device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize(found.device)
        torch.cuda.reset_peak_memory_stats(found.device)
    storages = Storages(found.device, name_new=_kind_of_new, name_old=OTHER)
    with contextlib.ExitStack() as stack:
        _label_as_it_shows(stack, storages, parameters)
        for buffer in model.buffers() if model is not None else ():
            storages.label(buffer, OTHER)
        for parameter in parameters:
            storages.label(parameter, PARAMETERS)
            storages.label(parameter.grad, GRADIENTS)
        if optimizer is not None:
            _label_state(storages, optimizer)
        try:
            with storages:
                yield found
        finally:
            at_peak = storages.at_peak()
            found.peak_bytes = storages.peak_bytes
            found.by_category = {category: at_peak[category] for category in CATEGORIES}
            if on_gpu:
                torch.cuda.synchronize(found.device)
                found.allocator_peak_bytes = torch.cuda.max_memory_allocated(found.device)


def _parameters(model, optimizer):
    parameters = list(model.parameters()) if model is not None else []
    if optimizer is not None:
        known = {id(parameter) for parameter in parameters}
        parameters += [p for p in _stepped(optimizer) if id(p) not in known]
    return parameters


def _stepped(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def _kind_of_new():
    # Grad mode is off in backward (but on where a checkpoint recomputes) and in optimizers' steps.
    return ACTIVATIONS if torch.is_grad_enabled() else OTHER


def _label_state(storages, optimizer):
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor):
                storages.label(value, STATE)


def _label_as_it_shows(stack, storages, parameters):
    """Install hooks that say what storages are for, at the moments when that can be seen."""

    def module_ran(module, inputs, output):
        for parameter in module.parameters(recurse=False):
            storages.label(parameter, PARAMETERS)

    def gradient_is_there(parameter):
        storages.label(parameter.grad, GRADIENTS)

    def before_step(optimizer, args, kwargs):
        for parameter in _stepped(optimizer):
            storages.label(parameter, PARAMETERS)
            storages.label(parameter.grad, GRADIENTS)

    def after_step(optimizer, args, kwargs):
        _label_state(storages, optimizer)

    handles = [
        register_module_forward_hook(module_ran),
        register_optimizer_step_pre_hook(before_step),
        register_optimizer_step_post_hook(after_step),
    ]
    for parameter in parameters:
        if parameter.requires_grad and parameter.is_leaf:
            # Ours first: others may take the gradient away, as ZeRO's do.
            hooks = parameter._post_accumulate_grad_hooks
            others = dict(hooks) if hooks else {}
            for number in others:
                del hooks[number]
            handles.append(parameter.register_post_accumulate_grad_hook(gradient_is_there))
            parameter._post_accumulate_grad_hooks.update(others)
    for handle in handles:
        stack.callback(handle.remove)
