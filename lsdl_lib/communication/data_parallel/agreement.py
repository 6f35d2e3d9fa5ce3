"""Before training: all ranks hold the same model, or all raise the same error.

Gradients are added by position, not by name. Two parameters of one shape that one rank registers
in another order would be mixed up without a sound, so names, shapes and types are compared first.
"""

import hashlib

import torch
import torch.distributed as dist


def agree_on_parameters(named, group):
    """Compare names, shapes, types and order of parameters over ``group``.

    Args:
        named: {name: parameter} of this rank.
        group: process group.

    Raises:
        ValueError: they differ; the same text on every rank names the first difference.
    """
    mine = [f"{name} {tuple(p.shape)} {p.dtype}" for name, p in named.items()]
    digest = hashlib.sha256("\n".join(mine).encode()).hexdigest()
    ranks = dist.get_process_group_ranks(group)
    digests = [None] * len(ranks)
    dist.all_gather_object(digests, digest, group=group)
    if len(set(digests)) == 1:
        return
    lists = [None] * len(ranks)
    dist.all_gather_object(lists, mine, group=group)
    other = next(place for place, digest in enumerate(digests) if digest != digests[0])
    raise ValueError(
        f"{_first_difference(lists[0], lists[other], ranks[0], ranks[other])}: "
        "build the same model, in the same order, on every rank"
    )


def _first_difference(one, two, rank_one, rank_two):
    for place in range(max(len(one), len(two))):
        a, b = (names[place] if place < len(names) else "missing" for names in (one, two))
        if a != b:
            return f"parameter {place} is {a} on rank {rank_one} and {b} on rank {rank_two}"
    raise AssertionError("the lists are equal, their digests are not")


def broadcast_tensors(tensors, group, place=0):
    """Give every rank of ``group`` the values of the rank at ``place``, in place."""
    for tensor in tensors:
        data = tensor.detach()
        if data.is_contiguous():
            dist.broadcast(data, group=group, group_src=place)
        else:  # gloo would send the raw storage of a strided view
            copy = data.contiguous()
            dist.broadcast(copy, group=group, group_src=place)
            data.copy_(copy)


def tensors_of(module):
    """Return all parameters and buffers of a module, each once."""
    unique = {id(t): t for t in [*module.parameters(), *module.buffers()]}
    return [t for t in unique.values() if isinstance(t, torch.Tensor)]
