"""How a collective is called: checks, memory layout, waiting, and running in the background.

An algorithm is a generator, ``steps(…, messages)``, that yields the handles it waits for. What all
algorithms share is here: strided and empty tensors, averages, sub-groups, ``async_op``.
"""

import contextlib
import threading

import torch
import torch.distributed as dist

from lsdl_lib.communication.collectives.checking import agree
from lsdl_lib.communication.collectives.messages import Messages
from lsdl_lib.communication.collectives.reductions import reduction
from lsdl_lib.measure import virtual


def all_reduce(steps, tensor, op, group, async_op):
    """Reduce ``tensor`` in place over ``group`` with ``steps(flat, reduce, messages)``.

    Returns:
        None, or a :class:`Pending` handle when ``async_op``.

    Raises:
        TypeError, ValueError: the operation does not fit the type, or this rank is not in the
            group; raised before anything is sent.
    """
    agree(steps, group, tensor, op=op)
    reduce, divide = reduction(op, tensor)
    messages = Messages(group)
    values = tensor.detach()

    def run():
        flat = flattened(values)
        if divide:
            # Before the sum: 40000 + 40000 does not fit float16, 20000 + 20000 does.
            flat.div_(messages.size)
        drive(steps(flat, reduce, messages), messages)
        restore(values, flat)

    return perform(run, async_op)


def perform(run, async_op):
    """Call ``run()`` now and return None, or in the background and return a handle."""
    if async_op:
        return Pending(run)
    with torch.no_grad():
        run()
    return None


def drive(steps, messages):
    """Run the generator of an algorithm to its end, and see its sends off."""
    for handles in steps:
        for handle in handles:
            handle.wait()
    messages.finish()


class Pending:
    """A collective that runs in the background: ``wait()`` for it, or ask ``is_completed()``."""

    def __init__(self, run):
        self._error = None
        self._clock = virtual.current()
        beside = self._clock.fork() if self._clock else None
        self._beside = beside

        def guarded():
            clock = virtual.use(beside) if beside else contextlib.nullcontext()
            try:
                with torch.no_grad(), clock:
                    run()
            except Exception as error:
                self._error = error

        self._thread = threading.Thread(target=guarded, daemon=True)
        self._thread.start()

    def is_completed(self):
        """Tell whether it has ended, well or with an error."""
        return not self._thread.is_alive()

    def wait(self):
        """Wait for the end; raise the error if there was one."""
        if self._clock:
            self._clock.stop()
        self._thread.join()
        if self._clock:
            self._clock.join(self._beside)
            self._clock = None  # a second wait costs nothing
        if self._error is not None:
            raise self._error
        return True


def flattened(tensor):
    """Return the elements as one contiguous vector, sharing memory where there are no strides."""
    flat = tensor.contiguous().view(-1)
    # One element is contiguous at any stride, but is seen as bytes only at stride 1.
    return flat.as_strided((1,), (1,)) if flat.numel() == 1 else flat


def restore(tensor, flat):
    """Write the vector that ``flattened`` gave back, where it was a copy."""
    if not tensor.is_contiguous():
        tensor.copy_(flat.view(tensor.shape))


def chunks(flat, parts):
    """Split a vector in ``parts`` views whose sizes differ by at most one element."""
    return list(torch.tensor_split(flat, parts))


def size_of(group):
    """Return the number of ranks in ``group``.

    Raises:
        ValueError: this process is not in the group.
    """
    size = dist.get_world_size(group)
    if size < 0:
        raise ValueError(f"rank {dist.get_rank()} is not in this group: only its members may call")
    return size


def root_in(group, rank):
    """Return the place in ``group`` of the global ``rank``, as torch's ``src`` and ``dst``.

    Raises:
        ValueError: there is no such rank in the group.
    """
    size_of(group)  # a rank outside the group hears that first
    group = group if group is not None else dist.group.WORLD
    members = dist.get_process_group_ranks(group)
    if rank not in members:
        raise ValueError(f"root {rank} is not among the group's ranks {members}")
    return members.index(rank)
