"""Calls and bytes on the wire, counted on each rank while the program runs.

``with traffic() as t:`` counts what this process sends and receives in the body, whichever thread
or library issues it: your own code, DDP and FSDP, communication hooks. Point-to-point calls
(``send``, ``recv``, ``isend``, ``irecv``, ``batch_isend_irecv``, ``group.send``, ``group.recv``)
are exact: elements times bytes an element. A collective of torch's own does not say what it sends,
so it is counted by the algorithm that the backend uses, and ``t.assumed`` says which: gloo's as
measured (:mod:`lsdl_lib.measure.wire_gloo`), nccl's as rings (:mod:`lsdl_lib.measure.wire_nccl`).

Conserved: over all ranks of a group, bytes sent = bytes received, messages too.
"""

import contextlib
import threading
from collections import Counter
from dataclasses import dataclass, field

import torch

from lsdl_lib.measure import wire_gloo, wire_nccl
from lsdl_lib.measure.tap import TAP, group_of
from lsdl_lib.measure.units import format_bytes
from lsdl_lib.measure.wire import Call, Wire

# The dispatcher's operators by the name of the collective; variants share their name.
NAMES = {
    "send": "send",
    "recv_": "recv",
    "recv_any_source_": "recv",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "gather_": "gather",
    "scatter_": "scatter",
    "barrier": "barrier",
    "monitored_barrier_": "monitored_barrier",
}
ROOT_AT = {"broadcast_": 2, "reduce_": 3, "gather_": 3, "scatter_": 3}  # position of the root


@dataclass
class Traffic:
    """What one rank sent and received; filled while ``traffic()`` is open.

    Attributes:
        sent_bytes, received_bytes: payload, without the headers of any layer.
        sent_messages, received_messages: messages of the algorithm that is assumed.
        calls: ``{name: calls}``. Variants count under the collective's name: ``all_gather`` is also
            ``all_gather_into_tensor`` (``all_gather_single``) and the coalesced forms, ``send`` is
            also ``isend``.
        by_op: ``{name: bytes sent}``; ``received_by_op``: ``{name: bytes received}``.
        assumed: ``{name: backend and formula}`` of the collectives among them.
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    sent_messages: int = 0
    received_messages: int = 0
    calls: Counter = field(default_factory=Counter)
    by_op: Counter = field(default_factory=Counter)
    received_by_op: Counter = field(default_factory=Counter)
    assumed: dict = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, name, moved, formula=None):
        """Count one call of ``name`` that moves the :class:`Wire` ``moved``."""
        with self._lock:
            self.calls[name] += 1
            self.by_op[name] += moved.sent_bytes
            self.received_by_op[name] += moved.received_bytes
            self.sent_bytes += moved.sent_bytes
            self.received_bytes += moved.received_bytes
            self.sent_messages += moved.sent_messages
            self.received_messages += moved.received_messages
            if formula:
                known = self.assumed.setdefault(name, formula)
                if formula not in known:  # two groups with different backends
                    self.assumed[name] = f"{known}; {formula}"

    def __repr__(self):
        calls = ", ".join(f"{name} {count}" for name, count in sorted(self.calls.items()))
        return (
            f"Traffic(sent {format_bytes(self.sent_bytes)} in {self.sent_messages} messages, "
            f"received {format_bytes(self.received_bytes)} in {self.received_messages} messages; "
            f"calls: {calls or 'none'})"
        )


@contextlib.contextmanager
def traffic():
    """Count this process's communication in the body; yields a :class:`Traffic`.

    A call is counted when it is issued and has not raised, so leave the body only after waiting for
    what you started. Bodies may be nested: each counts all that happens in it. Without a process
    group there is nothing to count. What was counted before an exception stays counted.

    It costs up to 0.1 ms a call and 1 ms to enter: do not use it in a region that you time. Enter
    and leave it while no other thread communicates.

    Not counted: the headers of TCP, gloo and nccl; the start of a group (its ranks meet through a
    key-value store); calls on a backend object, below the group.
    """
    counted = Traffic()

    def listener(operator, args):
        name, moved, formula = described(operator, args)
        return lambda: counted.add(name, moved, formula)

    with TAP.listen(listener):
        yield counted


def described(operator, args):
    """Return (name, :class:`Wire`, formula) of a ``c10d`` operator's call with these arguments."""
    name, group = NAMES[operator], group_of(args)
    if name in ("send", "recv"):
        (n,) = _bytes(args[0])
        return name, Wire(n, 0, 1, 0) if name == "send" else Wire(0, n, 0, 1), None
    tensors = [t for argument in args for t in _flat(argument)]
    kind = "all_reduce_sparse" if any(t.is_sparse for t in tensors) else name
    backend = _backend(group, tensors[0].device)
    model = wire_gloo if backend == "gloo" or kind not in wire_nccl.FORMULAS else wire_nccl
    call = _call(name, operator, args, tensors[0].element_size(), group.size(), group.rank())
    formula = f"{backend}, {model.FORMULAS[kind]}"
    if backend not in ("gloo", "nccl"):
        formula += " (as on nccl)"
    return name, model.wire(kind, call), formula


def _call(name, operator, args, element_size, ranks, rank):
    if name == "all_to_all":
        to, of = _splits(operator, args, ranks)
        return Call((), ranks, rank, to=to, of=of)
    if name in ("barrier", "monitored_barrier"):
        return Call((), ranks, rank)
    # Shares are the inputs of all-gather and gather, the outputs of scatter; reduce-scatter takes
    # its whole input; the others work in place.
    at = 1 if name in ("all_gather", "reduce_scatter", "gather") else 0
    root = args[ROOT_AT[operator]] if operator in ROOT_AT else 0
    return Call(tuple(_bytes(args[at])), ranks, rank, root, element_size)


def _splits(operator, args, ranks):
    """Return the bytes for each rank and from each rank of an all-to-all."""
    if operator == "alltoall_":
        return tuple(_bytes(args[1])), tuple(_bytes(args[0]))
    output, source, out_rows, in_rows = args[0], args[1], args[3], args[4]

    def cut(tensor, rows):
        n = _size(tensor)
        if not rows:
            return (n // ranks,) * ranks
        return tuple(n * row // max(1, sum(rows)) for row in rows)

    return cut(source, in_rows), cut(output, out_rows)


def _flat(argument):
    """Yield the tensors in a tensor, a list of tensors, a list of lists, or anything else."""
    if isinstance(argument, torch.Tensor):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for one in argument:
            yield from _flat(one)


def _bytes(tensors):
    return [_size(t) for t in _flat(tensors)]


def _size(tensor):
    if tensor.is_sparse:
        tensor = tensor.coalesce()
        return _size(tensor.indices()) + _size(tensor.values())
    return tensor.numel() * tensor.element_size()


def _backend(group, device):
    try:
        return group._get_backend(device).name()
    except RuntimeError:  # no backend for this device: a meta tensor in a fake group
        return "fake"
