"""How a collective is called: checks, memory layout, waiting, and running in the background.

An all-reduce algorithm is a generator ``steps(flat, reduce, messages)`` over the tensor's elements
as one contiguous vector. It yields the handles that it waits for. Everything that all algorithms
share is here: strided and empty tensors, averages, sub-groups, ``async_op``.
"""

import threading

import torch

from lsdl_lib.communication.collectives.messages import Messages
from lsdl_lib.communication.collectives.reductions import reduction


def all_reduce(steps, tensor, op, group, async_op):
    """Reduce ``tensor`` in place over ``group`` with the algorithm ``steps``.

    Returns:
        None, or a :class:`Pending` handle when ``async_op``.

    Raises:
        TypeError, ValueError: the operation does not fit the type, or this rank is not in the
            group; raised before anything is sent.
    """
    reduce, divide = reduction(op, tensor)
    messages = Messages(group)

    def run():
        with torch.no_grad():
            values = tensor.detach()
            flat = values.contiguous().view(-1)  # a copy only where there are strides
            if divide:
                # Before the sum: 40000 + 40000 does not fit float16, 20000 + 20000 does.
                flat.div_(messages.size)
            for handles in steps(flat, reduce, messages):
                for handle in handles:
                    handle.wait()
            messages.finish()
            if not values.is_contiguous():
                values.copy_(flat.view(values.shape))

    if async_op:
        return Pending(run)
    run()
    return None


class Pending:
    """A collective that runs in the background: ``wait()`` for it, or ask ``is_completed()``."""

    def __init__(self, run):
        self._error = None

        def guarded():
            try:
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
        self._thread.join()
        if self._error is not None:
            raise self._error
        return True


def chunks(flat, parts):
    """Split a vector in ``parts`` views whose sizes differ by at most one element."""
    return list(torch.tensor_split(flat, parts))
