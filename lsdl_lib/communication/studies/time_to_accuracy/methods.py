"""How each method of the comparison trains: one small function a method that makes its Trainer."""

import contextlib
import functools
from dataclasses import dataclass
from typing import Any

import torch

from lsdl_lib.communication.collectives import ring_all_gather, ring_all_reduce
from lsdl_lib.communication.compression import (
    DGC,
    QSGD,
    Atomo,
    CompressionState,
    ErrorFeedback,
    OneBitAdam,
    OneBitSGD,
    Peers,
    PowerSGD,
    RandomK,
    ScaledSign,
    Signum,
    TernGrad,
    TopK,
    compression_hook,
    warm_up_share,
)
from lsdl_lib.communication.data_parallel import (
    BucketedDataParallel,
    NaiveDataParallel,
    OverlappedDataParallel,
)
from lsdl_lib.communication.data_parallel.stream import Stream
from lsdl_lib.communication.relaxed import (
    EAMSGD,
    Gossip,
    LocalSGD,
    PostLocalSGD,
    PushSum,
    mixing,
)
from lsdl_lib.communication.relaxed.delayed import DelayedDataParallel
from lsdl_lib.communication.studies.time_to_accuracy.task import TASK, loss_of, rate

SHARE, RANK, PAIRS, BITS, PERIOD = 0.01, 2, 2, 4, 8
START = 32  # steps of post-local SGD before its local ones
WARM_UP_STEPS = 40  # of 1-bit Adam
EPOCH = 8  # steps that stand for an epoch of DGC's warm-up
ONE_BUCKET_MB = 1.0


@dataclass
class Setting:
    """What a trainer is made for. ``model`` has this rank's first weights."""

    model: torch.nn.Module
    lr: float
    seed: int
    size: int
    group: Any = None
    bucket_mb: float = ONE_BUCKET_MB


class Trainer:
    """Takes steps: forward, backward, what the method communicates, the optimizer's step.

    Args:
        setting: :class:`Setting`.
        wrapper: what the loss is computed with; None: the model.
        optimizer: None: SGD with Nesterov's momentum.
        sync: ``fn()`` that returns the context of forward and backward.
        between: called between backward and the optimizer's step; after: after that.
        begin: ``fn(step)``, called first.
    """

    def __init__(
        self,
        setting,
        wrapper=None,
        optimizer=None,
        sync=contextlib.nullcontext,
        between=None,
        after=None,
        begin=None,
    ):
        self.model, self._lr = setting.model, setting.lr
        self._wrapper = wrapper if wrapper is not None else setting.model
        self.optimizer = optimizer if optimizer is not None else sgd(setting)
        self._sync, self._between, self._after, self._begin = sync, between, after, begin

    def step(self, step, inputs, labels):
        """Take step number ``step``, from 0, on this rank's part of the batch."""
        for group in self.optimizer.param_groups:
            group["lr"] = self._lr * rate(step)
        if self._begin:
            self._begin(step)
        self.optimizer.zero_grad()
        with self._sync():
            loss_of(self._wrapper, inputs, labels).backward()
        if self._between:
            self._between()
        self.optimizer.step()
        if self._after:
            self._after()

    def result(self):
        """Return the parameters that are judged, (n,)."""
        return torch.nn.utils.parameters_to_vector(self.model.parameters()).detach().clone()


def sgd(setting, momentum=TASK["momentum"]):
    """Return the task's SGD for the model; without momentum where the method has its own."""
    return torch.optim.SGD(
        setting.model.parameters(),
        lr=setting.lr,
        momentum=momentum,
        nesterov=momentum > 0,
        weight_decay=TASK["weight_decay"],
    )


def peers(setting):
    """Return the ranks with the library's collectives, which the virtual clock times."""
    return Peers(setting.group, all_reduce=ring_all_reduce, all_gather=ring_all_gather)


def naive(setting):
    """Average after backward, a message for each parameter."""
    return Trainer(
        setting, NaiveDataParallel(setting.model, setting.group, all_reduce=ring_all_reduce)
    )


def overlapped(setting, optimizer=None):
    """Average in buckets while backward goes on: the baseline."""
    wrapper = OverlappedDataParallel(
        setting.model,
        setting.group,
        bucket_mb=setting.bucket_mb,
        first_bucket_mb=setting.bucket_mb,
        all_reduce=Stream(ring_all_reduce),
    )
    return Trainer(setting, wrapper, optimizer)


def adam(setting):
    """As the baseline, with Adam."""
    return overlapped(setting, torch.optim.Adam(setting.model.parameters(), lr=setting.lr))


def compressed(name, setting):
    """Average one bucket through the compressor of that name."""
    wrapper = BucketedDataParallel(
        setting.model, setting.group, bucket_mb=ONE_BUCKET_MB, first_bucket_mb=ONE_BUCKET_MB
    )
    compressor = COMPRESSORS[name](setting)
    wrapper.register_comm_hook(CompressionState(compressor, peers(setting)), compression_hook)
    momentum = 0 if name in OWN_MOMENTUM else TASK["momentum"]
    begin = functools.partial(_dgc_share, compressor) if name == "dgc" else None
    return Trainer(setting, wrapper, sgd(setting, momentum), begin=begin)


def _dgc_share(compressor, step):
    compressor.inner.share = warm_up_share(step // EPOCH, SHARE)


def one_bit_adam(setting):
    """1-bit Adam: no wrapper, the optimizer communicates."""
    optimizer = OneBitAdam(
        setting.model.parameters(),
        lr=setting.lr,
        warm_up_steps=WARM_UP_STEPS,
        peers=peers(setting),
    )
    return Trainer(setting, optimizer=optimizer)


def local_sgd(setting):
    """Average the parameters every ``PERIOD`` steps."""
    optimizer = sgd(setting)
    averager = LocalSGD(
        setting.model, optimizer, PERIOD, group=setting.group, all_reduce=ring_all_reduce
    )
    return Trainer(setting, optimizer=optimizer, after=averager.step)


def post_local_sgd(setting):
    """Averaged gradients for ``START`` steps, then local SGD."""
    trainer = overlapped(setting)
    averager = PostLocalSGD(
        trainer._wrapper,
        trainer.optimizer,
        START,
        PERIOD,
        group=setting.group,
        all_reduce=ring_all_reduce,
    )
    trainer._sync, trainer._after = averager.sync, averager.step
    return trainer


class Elastic(Trainer):
    """EAMSGD, judged by its center."""

    def __init__(self, setting):
        optimizer = sgd(setting)
        self._averager = EAMSGD(
            setting.model, optimizer, PERIOD, group=setting.group, all_reduce=ring_all_reduce
        )
        super().__init__(setting, optimizer=optimizer, between=self._averager.step)

    def result(self):
        """Return the center."""
        with self._averager.at_center():
            return super().result()


def gossip(graph, setting):
    """Mix with the neighbors after each step."""
    averager = Gossip(setting.model, graph(setting.size), group=setting.group)
    return Trainer(setting, after=averager.step)


def push_sum(setting):
    """Push along the one-peer exponential graph after each step."""
    graph = mixing.one_peer_exponential(setting.size)
    averager = PushSum(setting.model, graph, group=setting.group)
    return Trainer(setting, after=averager.step)


def delayed(setting):
    """Apply the average of the step before."""
    wrapper = DelayedDataParallel(
        setting.model,
        setting.group,
        bucket_mb=ONE_BUCKET_MB,
        first_bucket_mb=ONE_BUCKET_MB,
        all_reduce=ring_all_reduce,
    )
    return Trainer(setting, wrapper)


COMPRESSORS = {
    "one_bit_sgd": lambda s: ErrorFeedback(OneBitSGD()),
    "ef_sign": lambda s: ErrorFeedback(ScaledSign()),
    "tern_grad": lambda s: TernGrad(seed=s.seed),
    "qsgd": lambda s: QSGD(BITS, seed=s.seed),
    "top_k": lambda s: ErrorFeedback(TopK(SHARE)),
    "top_k_no_feedback": lambda s: TopK(SHARE),
    "random_k": lambda s: ErrorFeedback(RandomK(SHARE, unbiased=False, seed=s.seed)),
    "power_sgd": lambda s: ErrorFeedback(PowerSGD(RANK, seed=s.seed)),
    "atomo": lambda s: Atomo(PAIRS, seed=s.seed),
    "majority_vote": lambda s: Signum(),
    "dgc": lambda s: DGC(TopK(SHARE, by_tensor=True), TASK["momentum"], nesterov=True),
}
OWN_MOMENTUM = ("majority_vote", "dgc")  # the optimizer has none then
TRAINERS = {
    "naive": naive,
    "overlapped": overlapped,
    "adam": adam,
    **{name: functools.partial(compressed, name) for name in COMPRESSORS},
    "one_bit_adam": one_bit_adam,
    "local_sgd": local_sgd,
    "post_local_sgd": post_local_sgd,
    "easgd": Elastic,
    "gossip_ring": functools.partial(gossip, mixing.ring),
    "gossip_exponential": functools.partial(gossip, mixing.one_peer_exponential),
    "push_sum": push_sum,
    "delayed": delayed,
}
