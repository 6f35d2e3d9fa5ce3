"""Data parallelism with priorities: what the next forward pass needs first travels first.

    time = max(forward + backward, communication)          at best
    overlapped: forward + max(backward, communication)     at best

The overlapped version waits for all averages at the end of the backward pass. Here nothing waits
there. Each layer's parameters are updated just before that layer runs again, so that communication
may go on through the next forward pass, and slices of the first layers overtake those of later
layers that are still waiting (see :mod:`order`).

All ranks must send in the same order, or their messages would not match. But what is ready when
differs from rank to rank. Asking each other before every slice costs a latency a slice. So the
order is decided once: in the second step every layer's gradients and messages are timed; rank 0
simulates a network with priorities from its times, and all follow its plan from the third step on.
If times change later, the plan is still an order that is the same everywhere: slower, not wrong.

Sources: Jayarajan et al. 2019 (P3: slices and priorities over parameter servers, which need no
common order); Peng et al. 2019 (ByteScheduler: also over all-reduce).
"""

import torch
import torch.distributed as dist

from lsdl_lib.communication.collectives import ring_all_reduce, tree_broadcast
from lsdl_lib.communication.data_parallel.buckets import Bucket
from lsdl_lib.communication.data_parallel.order import as_ready, by_priority
from lsdl_lib.communication.data_parallel.stream import Stream, now
from lsdl_lib.communication.data_parallel.wrapper import DataParallel
from lsdl_lib.models import BlockSequence

SLICE_MB = 1  # MiB
TIMED_STEP = 2  # in the first, memory is allocated and caches are cold


class PriorityDataParallel(DataParallel):
    """Average slices of gradients in the order of need; update each layer just before it runs.

    ::

        model = PriorityDataParallel(model, lambda layer: torch.optim.SGD(layer, lr=0.1))
        for inputs, labels in batches:
            loss(model(inputs), labels).backward()      # no optimizer.step(), no zero_grad()
        model.synchronize()                             # before you read parameters

    Attributes:
        optimizers: one for each layer, None for a layer without trained parameters.
        order: the plan, a list of (layer, slice).

    Args:
        module: the model.
        optimizer: ``fn(parameters of a layer)`` that returns a torch optimizer.
        layers: modules in the order in which the forward pass runs them; None: the blocks of a
            ``BlockSequence``, else the children. A parameter of none of them is updated before the
            whole forward pass.
        slice_mb: most MiB of a slice.
        priorities: False sends as ready, for comparison: nothing overtakes.
        all_reduce: ``fn(tensor, op=…, group=…)`` that sums in place; a :class:`Stream`, or one is
            made of it.
        group, unused, broadcast_buffers: as in :class:`DataParallel`.

    Raises:
        ValueError: a layer's parameters have several types, or a gradient is sparse.
    """

    def __init__(
        self,
        module,
        optimizer,
        group=None,
        *,
        layers=None,
        slice_mb=SLICE_MB,
        priorities=True,
        all_reduce=ring_all_reduce,
        **options,
    ):
        super().__init__(module, group, **options)
        if self.sparse:
            raise ValueError("sparse gradients cannot be cut in slices: use another version")
        if not slice_mb > 0:
            raise ValueError(f"slice_mb={slice_mb!r}: give MiB above 0")
        self.all_reduce = all_reduce if isinstance(all_reduce, Stream) else Stream(all_reduce)
        if layers is None:
            layers = module.blocks if isinstance(module, BlockSequence) else module.children()
        self._make_layers([module, *layers], slice_mb)
        self.optimizers = [optimizer(b.parameters()) if b else None for b in self._buckets]
        self._priorities, self._steps = priorities, 0
        latest_first = range(len(self._buckets), 0, -1)
        self.order = as_ready(list(latest_first), self._slices)
        self._flying = {}  # layer -> handles of its slices, from ready to updated
        self.begin()
        self.register_state_dict_pre_hook(lambda *_: self.synchronize())

    def _make_layers(self, modules, slice_mb):
        """Give each layer a bucket and slices. Layer 0 is all that no layer has."""
        number = {id(p): index for index, p in enumerate(self.parameters_)}
        layer_of = {}
        for layer, module in enumerate(modules):
            for parameter in module.parameters():
                if id(parameter) in number and (layer == 0 or not layer_of[number[id(parameter)]]):
                    layer_of[number[id(parameter)]] = layer  # a tied one: where it is used first
        self._layer_of, self._buckets, self._slices, self._view = layer_of, [], [], {}
        for layer, module in enumerate(modules):
            indices = [index for index, owner in sorted(layer_of.items()) if owner == layer]
            parameters = [self.parameters_[index] for index in indices]
            if len({p.dtype for p in parameters}) > 1:
                raise ValueError(f"layer {layer} has parameters of several types: split it")
            bucket = Bucket(layer, False, indices, parameters) if indices else None
            self._buckets.append(bucket)
            self._slices.append(_cut(bucket.buffer(), slice_mb) if bucket else [])
            self._view.update(zip(indices, bucket.views) if bucket else ())
            owners = {layer_of[number[id(p)]] for p in module.parameters() if id(p) in number}
            module.register_forward_pre_hook(self._needing(sorted(owners) if layer else [0]))

    def slices(self):
        """Return (indices of parameters, bytes of each slice) of the layers that have any."""
        return [
            (bucket.indices, [piece.numel() * piece.element_size() for piece in pieces])
            for bucket, pieces in zip(self._buckets, self._slices)
            if bucket
        ]

    def begin(self):
        """A backward pass begins: nothing of it is ready, and all of the one before has arrived."""
        self.synchronize()
        if self._steps == TIMED_STEP and self._priorities:
            self._plan()
        self._steps += 1
        self.all_reduce.log = [] if self._steps == TIMED_STEP else None
        self._waiting_for = [len(b.indices) if b else 0 for b in self._buckets]
        self._ready_at, self._started = [0.0] * len(self._buckets), 0

    def gradient_ready(self, index):
        """Put the gradient in its layer's bucket, and start the slices whose turn it is."""
        layer, parameter, view = self._layer_of[index], self.parameters_[index], self._view[index]
        if parameter.grad is None:
            view.zero_()
        else:
            torch.mul(parameter.grad, 1.0 / self.averaged_over, out=view)
        parameter.grad = None  # it is on its way
        self._waiting_for[layer] -= 1
        if not self._waiting_for[layer]:
            self._ready_at[layer] = now()
        self._start_those_in_turn()

    def average(self, missing):
        """Start what has not started for lack of gradients. Nobody waits."""
        for index in missing:
            self.gradient_ready(index)

    def _start_those_in_turn(self):
        while self._started < len(self.order):
            layer, slice_ = self.order[self._started]
            if self._waiting_for[layer]:
                return
            handle = self.all_reduce(self._slices[layer][slice_], group=self.group, async_op=True)
            self._flying.setdefault(layer, []).append(handle)
            self._started += 1

    def synchronize(self):
        """Wait for all gradients and update all parameters, in the order of the layers."""
        self._need(sorted(self._flying))

    def _needing(self, layers):
        return lambda module, inputs: self._need(layers)

    def _need(self, layers):
        """Update these layers, if their gradients are on their way."""
        for layer in layers:
            handles = self._flying.pop(layer, ())
            for handle in handles:
                handle.wait()
            if handles:
                bucket = self._buckets[layer]
                for parameter, view in zip(bucket.parameters(), bucket.views):
                    parameter.grad = view
                self.optimizers[layer].step()
                for parameter in bucket.parameters():
                    parameter.grad = None

    def _plan(self):
        """Take rank 0's times of the last step, and its plan, on every rank."""
        seconds = {}
        for (layer, slice_), call in zip(self.order, self.all_reduce.log, strict=True):
            seconds[layer, slice_] = call.end - call.start
        costs = [[seconds[k, i] for i in range(len(s))] for k, s in enumerate(self._slices)]
        plan = [sent[:2] for sent in by_priority(self._ready_at, costs)]
        device = self.parameters_[0].device
        plan = torch.tensor(plan, dtype=torch.int64, device=device).reshape(-1, 2)
        tree_broadcast(plan, src=dist.get_global_rank(self.group, 0), group=self.group)
        self.order = [tuple(pair) for pair in plan.tolist()]

    def join(self):
        """Not here: ranks that follow run no forward pass, which is when layers are updated."""
        raise RuntimeError("priorities need as many batches on every rank: use another version")

    def get_extra_state(self):
        """Return the optimizers' states, for ``state_dict``."""
        return [one.state_dict() if one else None for one in self.optimizers]

    def set_extra_state(self, state):
        """Go on from a saved state."""
        self.synchronize()
        for optimizer, saved in zip(self.optimizers, state, strict=True):
            if optimizer:
                optimizer.load_state_dict(saved)


def _cut(buffer, slice_mb):
    """Return views of at most ``slice_mb`` MiB each, of about the same size."""
    parts = max(1, -(-buffer.numel() * buffer.element_size() // int(slice_mb * 2**20)))
    return list(buffer.tensor_split(parts))
