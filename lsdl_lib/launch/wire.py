"""Functions and results as bytes, between the parent and its ranks.

Both sides are the same Python, so a function defined in a notebook or a script travels by value:
cloudpickle carries what it refers to, and its code keeps its file name, so that tracebacks and
stacks still point at the reader's own lines.
"""

import io
import marshal
import pickle
import types

import cloudpickle
import torch


class _Pickler(cloudpickle.Pickler):
    """cloudpickle that keeps the file names of code and sends tensors as CPU tensors."""

    def reducer_override(self, obj):
        if isinstance(obj, types.CodeType):
            return marshal.loads, (marshal.dumps(obj),)
        if isinstance(obj, torch.Tensor) and obj.device.type not in ("cpu", "meta"):
            # Reading a result must not need, or start, a GPU in the parent.
            return obj.detach().cpu().__reduce_ex__(pickle.DEFAULT_PROTOCOL)
        return super().reducer_override(obj)


def _dump(obj):
    buffer = io.BytesIO()
    _Pickler(buffer).dump(obj)
    return buffer.getvalue()


def dump_work(fn, args):
    """Return ``(fn, args)`` as bytes.

    Raises:
        TypeError: something in them exists in one process only; names the function and the reason.
    """
    try:
        return _dump((fn, args))
    except Exception as error:
        name = getattr(fn, "__qualname__", repr(fn))
        raise TypeError(
            f"{name} and its arguments cannot be sent to the ranks: {error}. Create process "
            "groups, wrapped modules, open files and locks inside the function"
        ) from error


def dump_result(result, rank):
    """Return a rank's result as bytes.

    Raises:
        TypeError: it cannot be pickled; names the rank and the reason.
    """
    try:
        return _dump(result)
    except Exception as error:
        raise TypeError(
            f"the result of rank {rank} (a {type(result).__name__}) cannot be sent to the parent: "
            f"{error}. Return tensors, numbers or other plain data"
        ) from error
