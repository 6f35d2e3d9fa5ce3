"""Memory that several ranks of one machine have in common."""

import os
import tempfile

import torch
import torch.distributed as dist


def shared_bytes(size, group=None):
    """Return zeros, (size,) uint8, that all ranks of the group read and write without messages.

    The ranks map one file into their memory. It is unlinked at once, so it is gone with the last
    rank, however that ends.

    Args:
        size: bytes, at least 1; the same on every rank.
        group: process group; None is the default group.

    Raises:
        ValueError: ``size`` is below 1, or the ranks are not on one machine; on every rank.
    """
    if size < 1:
        raise ValueError(f"size={size!r}: give at least 1 byte")
    group = group if group is not None else dist.group.WORLD
    path = [None]
    if dist.get_rank(group) == 0:
        # Where there is one, a file system that is memory itself.
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        handle, path[0] = tempfile.mkstemp(prefix="lsdl-", dir=folder)
        os.truncate(handle, size)
        os.close(handle)
    try:
        dist.broadcast_object_list(path, group=group, group_src=0)
        seen = [None] * dist.get_world_size(group)
        dist.all_gather_object(seen, os.path.exists(path[0]), group=group)
        if not all(seen):
            raise ValueError("the ranks of this group are on several machines: use one machine's")
        memory = torch.from_file(path[0], shared=True, size=size, dtype=torch.uint8)
        dist.all_gather_object(seen, True, group=group)  # all have it open
        return memory
    finally:
        if dist.get_rank(group) == 0:
            os.unlink(path[0])
