"""Before an optimizer that averages by itself: are the parameters whole, and the same everywhere?

Who wraps a model in data parallelism gets rank 0's parameters on all ranks. An optimizer is given
parameters only: it looks, and says what is wrong, on every rank alike.
"""

import hashlib

import torch
from torch.distributed.tensor import DTensor

from lsdl_lib.communication.data_parallel import DataParallel

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


def check_trainable(parameters):
    """Refuse parameters that cannot be averaged as one vector.

    Raises:
        TypeError: of several types or devices, not real floats, shards of a whole, or averaged by
            a data-parallel wrapper of this library already.
    """
    kinds = {(parameter.dtype, parameter.device) for parameter in parameters}
    if len(kinds) > 1:
        named = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise TypeError(f"parameters of {named}: give an optimizer parameters of one kind")
    for parameter in parameters:
        if not parameter.is_floating_point():
            raise TypeError(
                f"parameters of {parameter.dtype}: real floats can be averaged in signs"
            )
        if isinstance(parameter, DTensor):
            raise TypeError(
                "a parameter is sharded (FSDP or ZeRO), and every rank must have it whole here"
            )
        if any(_averages(hook) for hook in _hooks(parameter)):
            raise TypeError(
                "a data-parallel wrapper averages the gradients: give the parameters of the bare "
                "model, and call it without the wrapper"
            )


def check_same_start(parameters, peers):
    """Compare shapes and values of parameters over the ranks.

    Raises:
        ValueError: they differ; the same text on every rank.
    """
    digest = hashlib.sha256()
    for parameter in parameters:
        digest.update(f"{tuple(parameter.shape)} {parameter.dtype}".encode())
        # The sum of the bits as integers: exact on any device, without a copy to the host.
        bits = parameter.detach().contiguous().view(BITS[parameter.element_size()])
        digest.update(bits.sum(dtype=torch.int64).cpu().numpy().tobytes())
    mine = torch.tensor(list(digest.digest()), dtype=torch.uint8, device=parameters[0].device)
    everyone = [message for (message,) in peers.gather((mine,))]
    for rank, other in enumerate(everyone):
        if not torch.equal(other, everyone[0]):
            raise ValueError(
                f"rank {rank}'s parameters are not rank 0's: build the same model from the same "
                "seed on every rank, or broadcast rank 0's"
            )


def _hooks(parameter):
    return (getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values()


def _averages(hook):
    return isinstance(getattr(getattr(hook, "func", None), "__self__", None), DataParallel)
