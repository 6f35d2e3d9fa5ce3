"""What each method's step should take, before it is run: measured work, and messages by formula.

    step = forward + backward + what the method computes + its messages on the link

The work is measured in one process without any other rank: the processor time of a rank's part of
the batch, and of the compressor with p ranks' messages. Messages cost the closed forms of the
collectives. Nothing of a run with the method goes in. Speed-ups follow if all methods need as many
steps; that some need more is what the runs must show.
"""

import statistics
import time

import torch

from lsdl_lib.communication.compression import Alone, message_bytes
from lsdl_lib.communication.compression.two_way import TwoWaySign
from lsdl_lib.communication.cost import closed_forms
from lsdl_lib.communication.data_parallel import BucketedDataParallel, prediction
from lsdl_lib.communication.data_parallel.timeline import recorded
from lsdl_lib.communication.studies.time_to_accuracy.methods import (
    COMPRESSORS,
    ONE_BUCKET_MB,
    PERIOD,
    START,
    WARM_UP_STEPS,
    Setting,
    sgd,
)
from lsdl_lib.communication.studies.time_to_accuracy.task import TASK, batches, loss_of, new_model
from lsdl_lib.communication.studies.time_to_accuracy.training import link
from lsdl_lib.measure.virtual import virtual_clock

REPEATS = 12


class Rehearsed(Alone):
    """One rank that plays p: everybody sends what it sends, and messages cost their closed form.

    Attributes:
        seconds: of all messages so far.
    """

    def __init__(self, size, a_link):
        self.size, self.seconds, self._link = size, 0.0, a_link

    def mean_(self, vector):
        """As :meth:`Peers.mean_`, of p equal vectors."""
        self.seconds += closed_forms.ring_all_reduce(self.size, message_bytes([vector]), self._link)
        return vector

    def gather(self, message, same_size=True):
        """As :meth:`Peers.gather`, of p equal messages."""
        sizes = [] if same_size else [8 * len(message)]
        for n in [*sizes, message_bytes(message)]:
            self.seconds += closed_forms.ring_all_gather(self.size, self.size * n, self._link)
        return super().gather(message) * self.size

    def exchange(self, parts):
        """As :meth:`Peers.exchange`, with p equal ranks."""
        n = message_bytes(parts)
        self.seconds += closed_forms.pairwise_all_to_all(self.size, n, self._link)
        return [parts[0].clone() for _ in parts]


class Work:
    """What a step of a rank of p computes, measured here.

    Attributes:
        profile: of forward and backward, as the predictions of overlap take it.
        optimizer: seconds of SGD's step; adam: of Adam's.
    """

    def __init__(self, data, size):
        torch.manual_seed(0)
        self.size, self.model = size, new_model(0)
        self.n_bytes = message_bytes(list(self.model.parameters()))
        wrapper = BucketedDataParallel(
            self.model, bucket_mb=ONE_BUCKET_MB, first_bucket_mb=ONE_BUCKET_MB
        )
        mine, steps = batches(data, 0, 0, size, TASK["global_batch"] // size), []
        with virtual_clock(link(1.0)):
            for _ in range(REPEATS):
                inputs, labels = next(mine)
                self.model.zero_grad()
                with recorded(wrapper) as step:
                    loss_of(wrapper, inputs, labels).backward()
                steps.append([step])
        self.profile = prediction.Profile.of(steps[2:])
        self.compute = self.profile.backward
        setting = Setting(self.model, 0.0, 0, size)
        self.optimizer = processor_seconds(sgd(setting).step)
        self.adam = processor_seconds(torch.optim.Adam(self.model.parameters(), lr=0.0).step)

    def compressed(self, compressor, a_link):
        """Return seconds of averaging the gradients through a compressor: (work, messages)."""
        gradients = [parameter.grad for parameter in self.model.parameters()]
        vector = torch.cat([gradient.flatten() for gradient in gradients])
        shapes = [gradient.shape for gradient in gradients]
        peers = Rehearsed(self.size, a_link)
        work = processor_seconds(lambda: compressor.aggregate(vector, peers, 0, shapes))
        return work, peers.seconds / REPEATS


def processor_seconds(fn):
    """Return the processor time of a call, the median of ``REPEATS``."""
    spent = []
    for _ in range(REPEATS):
        begin = time.thread_time()
        fn()
        spent.append(time.thread_time() - begin)
    return statistics.median(spent)


def step_seconds(work, gbit_s, bucket_mb):
    """Return {method: predicted mean seconds of a step}.

    Args:
        work: :class:`Work` for the number of ranks.
        gbit_s: of the link.
        bucket_mb: of the baseline.
    """
    a_link, p, n, steps = link(gbit_s), work.size, work.n_bytes, TASK["steps"]
    alone, one = work.compute + work.optimizer, a_link.seconds(n)

    def ring(n_bytes):
        return closed_forms.ring_all_reduce(p, n_bytes, a_link)

    buckets = prediction.contents(
        BucketedDataParallel(work.model, bucket_mb=bucket_mb, first_bucket_mb=bucket_mb).buckets
    )
    overlapped = prediction.predict_overlapped(work.profile, buckets, ring).seconds
    found = {
        "naive": alone + sum(ring(message_bytes([q])) for q in work.model.parameters()),
        "overlapped": overlapped + work.optimizer,
        "adam": overlapped + work.adam,
        "local_sgd": alone + ring(n) / PERIOD,
        "post_local_sgd": (
            START * (overlapped + work.optimizer) + (steps - START) * (alone + ring(n) / PERIOD)
        )
        / steps,
        "easgd": alone + ring(n) / PERIOD,
        "gossip_ring": alone + (2 if p > 2 else 1) * one,
        "gossip_exponential": alone + one,
        "push_sum": alone + a_link.seconds(n + 8),
        # One step's average travels while the next one computes.
        "delayed": max(alone, ring(n)),
        # p pushes: the server's link takes them one after the other; p-1 workers bring them.
        "asynchronous": max(p * one, p / (p - 1) * (work.compute + 2 * one)) if p > 1 else alone,
    }
    found["stale_synchronous"] = found["asynchronous"]
    setting = Setting(work.model, 0.0, 0, p)
    for name, make in COMPRESSORS.items():
        found[name] = alone + sum(work.compressed(make(setting), a_link))
    later = work.compute + work.adam + sum(work.compressed(TwoWaySign(), a_link))
    first = work.compute + work.adam + ring(n)
    found["one_bit_adam"] = (WARM_UP_STEPS * first + (steps - WARM_UP_STEPS) * later) / steps
    return found
