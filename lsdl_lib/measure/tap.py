"""See every communication call of this process, whoever makes it.

``torch.distributed`` sends each call through PyTorch's dispatcher as an operator of the ``c10d``
namespace: the functions of ``torch.distributed``, methods called on the group object, torch's DDP
and FSDP in C++, DTensor, communication hooks. The tap puts a kernel of its own in front of these
operators, at the dispatch key ``BackendSelect``. Every call on every thread passes there just
before the device's kernel, with real, fake and sparse tensors, with and without gradients; these
operators do not use that key themselves.

A ``TorchDispatchMode`` would see the same operators, but only in the thread that entered it: it
misses the calls of other Python threads and of ``future.then`` callbacks, which gloo runs in
threads of its own (PowerSGD communicates there).

Not seen: calls on a backend object (``group._get_backend(device)``) that skip the dispatcher, and
the key-value store's own traffic.
"""

import contextlib
import threading

import torch
import torch.distributed as dist
from torch.library import Library

OPERATORS = (
    "send",
    "recv_",
    "recv_any_source_",
    "broadcast_",
    "reduce_",
    "allreduce_",
    "allreduce_coalesced_",
    "allgather_",
    "_allgather_base_",
    "allgather_coalesced_",
    "allgather_into_tensor_coalesced_",
    "reduce_scatter_",
    "_reduce_scatter_base_",
    "reduce_scatter_tensor_coalesced_",
    "alltoall_",
    "alltoall_base_",
    "gather_",
    "scatter_",
    "barrier",
    "monitored_barrier_",
)
KEY = torch._C.DispatchKey.BackendSelect


class Tap:
    """The process's tap on the dispatcher.

    A listener is a function of the operator's name and its arguments, called before the call; what
    it returns is called, without arguments, once the call has not raised.

    The dispatcher's table is one for the whole process, so there is one tap, shared by all
    listeners.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._listeners = ()  # a tuple, replaced and never changed: read without the lock
        self._library = None

    @contextlib.contextmanager
    def listen(self, listener):
        """Call ``listener(operator, args)()`` around each communication call in the body."""
        with self._lock:
            self._listeners = (*self._listeners, listener)
            if self._library is None:
                self._library = self._install()
        try:
            yield
        finally:
            with self._lock:
                self._listeners = tuple(one for one in self._listeners if one is not listener)
                if not self._listeners:
                    self._library._destroy()
                    self._library = None

    def _install(self):
        library = Library("c10d", "IMPL")
        for operator in OPERATORS:
            library.impl(operator, self._kernel(operator), KEY.name, with_keyset=True)
        return library

    def _kernel(self, operator):
        onwards = getattr(torch.ops.c10d, operator).default.redispatch
        below = torch._C._dispatch_keyset_full_after(KEY)

        def kernel(keys, *args):
            done = [listener(operator, args) for listener in self._listeners]
            # Redispatching lets go of the GIL, as the call without the tap does: gloo's
            # reduce-scatter waits inside for threads that may need it.
            result = onwards(keys & below, *args)
            for tell in done:
                tell()
            return result

        return kernel


TAP = Tap()


def group_of(args):
    """Return the process group among an operator's arguments."""
    boxed = next(a for a in args if isinstance(a, torch.ScriptObject))
    return dist.ProcessGroup.unbox(boxed)
