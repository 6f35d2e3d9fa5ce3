"""PowerSGD: ours, under torch's DistributedDataParallel and under ours, against torch's hook.

One step is zero_grad, forward and backward of the GPT of ``data_parallel.py``. Both sides have one
bucket, since torch's hook needs that on gloo; the same rank; error feedback; a warm start; and
compress each matrix that gets smaller. torch's starts to compress at the third step, as early as it
may; the first steps of the pairs do not count. Then each hook is tried with several buckets; what
became of it is in the record.

Run: ``python benchmarks/power_sgd.py``
"""

import torch.distributed as dist
from data_parallel import MODEL, RANKS, step_of
from pairs import paired, report
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from lsdl_lib import launch
from lsdl_lib.communication.compression import (
    CompressionState,
    ErrorFeedback,
    PowerSGD,
    compression_hook,
)
from lsdl_lib.communication.data_parallel import OverlappedDataParallel
from lsdl_lib.launch import LaunchError
from lsdl_lib.models import GPT

PAIRS = 40
COLUMNS = [1, 2, 4]
WHOLE, SEVERAL = 1000, 5  # MiB a bucket
WARMUP = 6


def torchs_model(bucket_mb):
    return DistributedDataParallel(
        GPT(MODEL), bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True
    )


def our_model(bucket_mb):
    return OverlappedDataParallel(GPT(MODEL), bucket_mb=bucket_mb, first_bucket_mb=bucket_mb)


MODELS = {"torch's": torchs_model, "ours": our_model}


def our_step(wrap, columns, bucket_mb):
    model = MODELS[wrap](bucket_mb)
    model.register_comm_hook(CompressionState(ErrorFeedback(PowerSGD(columns))), compression_hook)
    return step_of(model)


def torchs_step(columns, bucket_mb):
    model = torchs_model(bucket_mb)
    state = PowerSGDState(None, columns, start_powerSGD_iter=2, min_compression_rate=1)
    model.register_comm_hook(state, powerSGD_hook)
    return step_of(model)


def compare(wrap, columns):
    """Run on every rank: return the pairs."""
    ours, peer = our_step(wrap, columns, WHOLE), torchs_step(columns, WHOLE)
    return paired(ours, peer, PAIRS, warmup=WARMUP, before=dist.barrier)


def in_several_buckets(make, *args):
    """Return what becomes of six steps with several buckets: "runs", or the error."""

    def run():
        step = make(*args, SEVERAL)
        for _ in range(6):
            step()

    try:
        launch(run, ranks=RANKS, threads=1, timeout=120)
    except LaunchError as error:
        return str(error).strip().splitlines()[-1]
    return "runs"


if __name__ == "__main__":
    several = {
        "ours": in_several_buckets(our_step, "torch's", 2),
        "torch's": in_several_buckets(torchs_step, 2),
    }
    for who, outcome in several.items():
        print(f"{SEVERAL} MiB buckets, {who}: {outcome}")
    for wrap in MODELS:
        for columns in COLUMNS:
            result = launch(compare, wrap, columns, ranks=RANKS, threads=1, timeout=600)[0]
            name = f"PowerSGD against torch's, under {wrap} data parallel"
            report(name, result, rank=columns, ranks=RANKS, several_buckets=several)
