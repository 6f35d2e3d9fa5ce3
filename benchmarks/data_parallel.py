"""Data parallelism that overlaps: ours against torch's DistributedDataParallel.

One step is zero_grad, forward and backward of a GPT with 19 M parameters on 2 ranks with a thread
each; gradients are averages when it ends. Both sides start from the same values, keep gradients as
views of their buckets and set them to None between steps, check for unused parameters as by
default, and use gloo. torch's buckets: its default, 25 MiB after a first one of 1 MiB, and 1 MiB.
No optimizer step: it would cost both sides the same and hide a difference.

Run: ``python benchmarks/data_parallel.py``
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from pairs import paired, report
from torch.nn.parallel import DistributedDataParallel

from lsdl_lib import launch
from lsdl_lib.communication.data_parallel import OverlappedDataParallel
from lsdl_lib.models import GPT, GPTConfig

RANKS = 2
MODEL = GPTConfig(vocabulary=512, context=64, layers=6, width=512, heads=8)
SEQUENCES, LENGTH = 2, 32  # of each rank's batch
PAIRS = 60
BUCKETS = {  # MiB: the options of ours, and of torch's
    25: ({}, {}),
    1: ({"bucket_mb": 1, "first_bucket_mb": 1}, {"bucket_cap_mb": 1}),
}


def step_of(model):
    """Return a function that takes one step but for the optimizer's."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    tokens = torch.randint(MODEL.vocabulary, (SEQUENCES, LENGTH + 1), generator=generator)

    def step():
        model.zero_grad()
        logits = model(tokens[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()

    return step


def same_gradients(one, other):
    """Raise if two models' gradients differ: then they did not do the same work."""
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)


def compare(bucket_mb):
    """Run on every rank: return the pairs."""
    mine, torchs = BUCKETS[bucket_mb]
    ours = OverlappedDataParallel(GPT(MODEL), **mine)
    peer = DistributedDataParallel(GPT(MODEL), gradient_as_bucket_view=True, **torchs)
    result = paired(step_of(ours), step_of(peer), PAIRS, warmup=4, before=dist.barrier)
    same_gradients(ours, peer)
    return result


if __name__ == "__main__":
    for bucket_mb in BUCKETS:
        result = launch(compare, bucket_mb, ranks=RANKS, threads=1, timeout=600)[0]
        name = "data parallel against torch's"
        report(name, result, bucket_mb=bucket_mb, ranks=RANKS, gradient_as_bucket_view=True)
