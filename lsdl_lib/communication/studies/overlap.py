"""Steps of data parallelism over bucket sizes, links and ranks, on the virtual clock.

    python -m lsdl_lib.communication.studies.overlap        about 3 minutes on 2 cores

The small GPT of :mod:`remedies`. For each setting: a naive step, a step in buckets, and an
overlapped step with all its bars, the median of ``STEPS`` steps each. One point is one bar: link,
ranks, bucket_mb, version, lane, name, start and end in seconds. The lane "step" is the whole step;
bars of the lanes "compute" and "network" are kept for the overlapped version, rank 0.
"""

import torch
import torch.nn.functional as F

from lsdl_lib import launch
from lsdl_lib.claims import studies
from lsdl_lib.communication.collectives import halving_all_reduce
from lsdl_lib.communication.cost import Link
from lsdl_lib.communication.data_parallel import (
    BucketedDataParallel,
    NaiveDataParallel,
    OverlappedDataParallel,
    Stream,
    recorded,
)
from lsdl_lib.communication.studies.remedies import BATCH, MODEL
from lsdl_lib.measure.virtual import virtual_clock
from lsdl_lib.models import GPT

CHAPTER, NAME = "communication/data_parallelism", "overlap"
COMMAND = "python -m lsdl_lib.communication.studies.overlap"
RANKS = (2, 4, 8)
LINKS = {f"{mbit} Mbit/s": Link.of(mbit / 1000, latency_us=100) for mbit in (50, 200, 1000)}
BUCKETS_MB = (0.05, 0.2, 0.4, 4.0)  # MiB; the last holds the whole gradient
STEPS = 3


def versions(bucket_mb):
    """Return {name: wrapper}, made inside a rank."""
    size = {"bucket_mb": bucket_mb, "first_bucket_mb": bucket_mb}
    return {
        "naive": NaiveDataParallel(GPT(MODEL), all_reduce=halving_all_reduce),
        "bucketed": BucketedDataParallel(GPT(MODEL), all_reduce=Stream(halving_all_reduce), **size),
        "overlapped": OverlappedDataParallel(
            GPT(MODEL), all_reduce=Stream(halving_all_reduce), **size
        ),
    }


def loss_of(model, batch=BATCH):
    """Return the loss of random tokens, (batch, context)."""
    tokens = torch.randint(MODEL.vocabulary, (batch, MODEL.context + 1))
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, -2), tokens[:, 1:].flatten())


def record(models, link, steps=STEPS, batch=BATCH):
    """Return {name: this rank's timelines}; the versions take turns, so that noise is shared.

    Args:
        models: {name: wrapper} of a BlockSequence.
        link: what the virtual clock times messages by.
        steps: steps of each that are kept, after one that is not.
        batch: sequences a rank.
    """
    timelines = {name: [] for name in models}
    for _ in range(steps + 1):
        for name, model in models.items():
            model.zero_grad()
            with virtual_clock(link), recorded(model, model.module.blocks) as timeline:
                loss_of(model, batch).backward()
            timelines[name].append(timeline)
    return {name: kept[1:] for name, kept in timelines.items()}


def by_step(run, name):
    """Return for each step of a version the timelines of all ranks, from a launch of ``record``."""
    return list(zip(*(of_rank[name] for of_rank in run)))


def typical(steps):
    """Return the step whose last rank ends in the median, as a list of timelines."""
    ordered = sorted(steps, key=lambda ranks: max(t.end for t in ranks))
    return ordered[len(ordered) // 2]


def bars_of(run, **setting):
    """Return the points of one setting."""
    points = []

    def add(version, lane, name, start, end):
        bar = {"version": version, "lane": lane, "name": name, "start": start, "end": end}
        points.append(setting | bar)

    for version in run[0]:
        ranks = typical(by_step(run, version))
        add(version, "step", "step", 0.0, max(timeline.end for timeline in ranks))
    for lane, name, start, end in ranks[0].spans():  # of the last version, the overlapped one
        add("overlapped", lane, name, start, end)
    return points


def main(ranks=RANKS, links=LINKS, buckets=BUCKETS_MB, steps=STEPS, folder=None):
    """Run the study and store it."""
    points = []

    def run_all(p):
        return {
            (link, size): record(versions(size), LINKS[link], steps)
            for link in links
            for size in buckets
        }

    for p in ranks:
        run = launch(run_all, p, ranks=p, threads=1, backend="gloo", timeout=3000)
        for link, size in run[0]:
            one = [of_rank[link, size] for of_rank in run]
            points += bars_of(one, link=link, ranks=p, bucket_mb=size)
        print(f"{p} ranks: {run.seconds:.0f} s", flush=True)
    return studies.write(
        CHAPTER,
        NAME,
        points,
        command=COMMAND,
        clock="virtual",
        backend="gloo",
        ranks=list(ranks),
        batch=BATCH,
        folder=folder,
    )


if __name__ == "__main__":
    print(main())
