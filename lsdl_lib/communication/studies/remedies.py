"""A step of training a small GPT, bare and with each remedy against waiting for messages.

What :mod:`communication_share` compares. A remedy is an entry of ``REMEDIES``; to add one, write
how it is made. The trainers run inside ranks; their messages go through the library's collectives,
so that the virtual clock times them.
"""

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F

from lsdl_lib.communication import compression
from lsdl_lib.communication.collectives import doubling_all_gather, halving_all_reduce
from lsdl_lib.communication.data_parallel import (
    BucketedDataParallel,
    NaiveDataParallel,
    OverlappedDataParallel,
    PriorityDataParallel,
    Stream,
)
from lsdl_lib.communication.relaxed import LocalSGD
from lsdl_lib.models import GPT, GPTConfig

MODEL = GPTConfig(vocabulary=64, context=64, layers=4, width=64, heads=4, tied=False)
BATCH = 16  # sequences a rank
BUCKET_MB = 0.2  # MiB
PERIOD = 8  # local SGD averages every PERIOD steps

SGD = partial(torch.optim.SGD, lr=0.01, momentum=0.9)
BUCKETS = {"bucket_mb": BUCKET_MB, "first_bucket_mb": BUCKET_MB}


class Bare:
    """The model alone: what a step computes."""

    def __init__(self, batch=BATCH):
        self.model, self.batch = GPT(MODEL), batch
        self.optimizer = SGD(self.model.parameters())

    def loss(self):
        """Return the loss of random tokens, (batch, context)."""
        tokens = torch.randint(MODEL.vocabulary, (self.batch, MODEL.context + 1))
        logits = self.model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, -2), tokens[:, 1:].flatten())

    def step(self):
        """Take one step of training."""
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()

    def finish(self):
        """Wait for what is still on its way."""


class Wrapped(Bare):
    """A data-parallel wrapper, perhaps with a compressor as its communication hook."""

    def __init__(self, wrapper, compressor=None, batch=BATCH, **options):
        super().__init__(batch)
        self.model = wrapper(self.model, all_reduce=Stream(halving_all_reduce), **options)
        if compressor is not None:
            peers = compression.Peers(all_reduce=halving_all_reduce, all_gather=doubling_all_gather)
            state = compression.CompressionState(compressor(), peers)
            self.model.register_comm_hook(state, compression.compression_hook)


class Priority(Bare):
    """Priorities: layers are updated as the next forward pass reaches them."""

    def __init__(self):
        super().__init__()
        self.model = PriorityDataParallel(
            self.model, SGD, slice_mb=BUCKET_MB / 2, all_reduce=halving_all_reduce
        )

    def step(self):
        """Take one step; its messages travel on."""
        self.loss().backward()

    def finish(self):
        """Update all layers."""
        self.model.synchronize()


class Local(Bare):
    """Local SGD: the parameters are averaged every ``PERIOD`` steps."""

    def __init__(self):
        super().__init__()
        self.local = LocalSGD(self.model, self.optimizer, PERIOD, all_reduce=halving_all_reduce)

    def step(self):
        """Take one step alone, and average when it is time."""
        super().step()
        self.local.step()


@dataclass(frozen=True)
class Remedy:
    """How a remedy is made, and how its step is simulated.

    Attributes:
        make: returns an object with ``step()`` and ``finish()``, inside a rank.
        batch: sequences of its step.
        schedule: ``"naive"``, ``"bucketed"``, ``"overlapped"``, ``"priority"`` or ``"local"``.
        compressed: it sends other messages than the gradients.
        gather: its messages are gathered, not summed on the way.
    """

    make: object
    schedule: str = "overlapped"
    batch: int = BATCH
    compressed: bool = False
    gather: bool = False


def _compressed(compressor, **facts):
    make = partial(Wrapped, OverlappedDataParallel, compressor, **BUCKETS)
    return Remedy(make, compressed=True, **facts)


def _fed_back(compressor, *arguments):
    return lambda: compression.ErrorFeedback(compressor(*arguments))


LARGER = 4 * BATCH
REMEDIES = {
    "naive": Remedy(partial(Wrapped, NaiveDataParallel), "naive"),
    "bucketed": Remedy(partial(Wrapped, BucketedDataParallel, **BUCKETS), "bucketed"),
    "overlapped": Remedy(partial(Wrapped, OverlappedDataParallel, **BUCKETS)),
    "priority": Remedy(Priority, "priority"),
    "batch x 4": Remedy(
        partial(Wrapped, OverlappedDataParallel, batch=LARGER, **BUCKETS), batch=LARGER
    ),
    "PowerSGD rank 2": _compressed(_fed_back(compression.PowerSGD, 2)),
    "top-k 1 %": _compressed(_fed_back(compression.TopK, 0.01), gather=True),
    "1 bit": _compressed(_fed_back(compression.ScaledSign), gather=True),
    "local SGD H=8": Remedy(Local, "local"),
}
