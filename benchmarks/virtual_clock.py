"""Does the virtual clock tell the wall time? And is it the same on one core and on two?

Two ranks, one a core, on three networks: for each the link is fitted first; then each workload runs
in pairs, once by the wall clock and once on the virtual clock with that link. The ratio virtual /
wall should be 1. Workloads: a matrix product (compute), a ring all-reduce (communicate), one after
the other, overlapped, and a straggler.

Four ranks on one core and on two: the ratio of the same workload's virtual times should be 1, where
the wall time doubles.

Run: ``python benchmarks/virtual_clock.py`` (the limited networks need root and iproute2).
"""

import contextlib
import os
import statistics
import time

import torch
import torch.distributed as dist
from pairs import LEAST_PAIRS, Pairs, report

from lsdl_lib import launch
from lsdl_lib.communication.collectives import ring_all_reduce
from lsdl_lib.communication.cost import Link
from lsdl_lib.communication.cost.fitting import SIZES, fit_here
from lsdl_lib.measure import median_interval
from lsdl_lib.measure.network import join, network
from lsdl_lib.measure.virtual import virtual_clock

WARMUP = 2
NETWORKS = {"loopback": None, "1 Gbit/s": 1.0, "100 Mbit/s": 0.1}
BYTES = {"loopback": 16_000_000, "1 Gbit/s": 8_000_000, "100 Mbit/s": 1_000_000}
MODELED = Link.of(gbit_s=1, latency_us=50)  # of the four ranks


def workloads(group, n_bytes):
    """Return functions to time, by name."""
    vector, matrix = torch.ones(n_bytes // 4), torch.rand(300, 300)

    def compute(products=25):
        for _ in range(products):
            matrix @ matrix

    def communicate():
        ring_all_reduce(vector, group=group)

    def one_after_the_other():
        compute()
        communicate()

    def overlapped():
        handle = ring_all_reduce(vector, group=group, async_op=True)
        compute()
        handle.wait()

    def straggler():
        compute(75 if dist.get_rank() == 1 else 25)
        communicate()

    return {
        work.__name__: work
        for work in (compute, communicate, one_after_the_other, overlapped, straggler)
    }


def latest(*seconds):
    """Return the later rank's numbers."""
    both = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    return both.tolist()


def virtual_seconds(work, link):
    dist.barrier()
    with virtual_clock(link) as clock:
        work()
    return clock.now


def wall_seconds(work):
    dist.barrier()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def against_wall(names, n_bytes):
    """Return the fit of the link and {workload: (virtual seconds, wall seconds)}, pair by pair."""
    group = join(names) if names else dist.group.WORLD
    fit = fit_here([n for n in SIZES if n <= 2 * n_bytes], 20, group)
    found = {}
    for name, work in workloads(group, n_bytes).items():
        times = []
        for pair in range(WARMUP + LEAST_PAIRS):
            first = pair % 2 and wall_seconds(work)
            virtual = virtual_seconds(work, fit.measured)
            times.append(latest(virtual, first or wall_seconds(work)))
        found[name] = list(zip(*times[WARMUP:]))
    return fit, found


def stay_on(cores):
    """Keep this rank's threads on these cores."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)


def one_core_against_two(n_bytes):
    """Return {workload: (virtual, on one core; on two)} and the same of wall seconds."""
    one, both = {min(os.sched_getaffinity(0))}, os.sched_getaffinity(0)
    virtual, walls = {}, {}
    for name, work in workloads(dist.group.WORLD, n_bytes).items():
        times = []
        for pair in range(WARMUP + LEAST_PAIRS):
            row = {}
            for cores in (one, both) if pair % 2 else (both, one):
                stay_on(cores)
                row[len(cores)] = virtual_seconds(work, MODELED), wall_seconds(work)
            times.append(latest(*row[1], *row[len(both)]))
        columns = list(zip(*times[WARMUP:]))
        virtual[name], walls[name] = (columns[0], columns[2]), (columns[1], columns[3])
    return virtual, walls


def tell(name, a, b, **facts):
    """Report the ratio a / b of paired seconds."""
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    low, high = median_interval(ratios)
    report(name, Pairs(statistics.median(ratios), low, high, a, b), **facts)


if __name__ == "__main__":
    for name, gbit_s in NETWORKS.items():
        limited = gbit_s is not None
        if limited and os.geteuid() != 0:
            print(f"{name}: left out, a limited network needs root")
            continue
        with network(2, gbit_s) if limited else contextlib.nullcontext() as names:
            arguments = names, BYTES[name]
            fit, found = launch(against_wall, *arguments, ranks=2, threads=1, timeout=600)[0]
        print(f"{name}: fitted {fit.link.gbit_s:.3f} Gbit/s, latency {fit.link.alpha * 1e6:.0f} us")
        fitted = {"gbit_s": round(fit.link.gbit_s, 4), "alpha_us": round(fit.link.alpha * 1e6)}
        for work, (virtual, wall) in found.items():
            what = f"virtual clock over wall clock, {work}"
            tell(what, virtual, wall, network=name, ranks=2, link=fitted)
    virtual, walls = launch(one_core_against_two, 4_000_000, ranks=4, threads=1, timeout=600)[0]
    for work in virtual:
        tell(f"virtual clock, one core over two, {work}", *virtual[work], ranks=4)
        tell(f"wall clock, one core over two, {work}", *walls[work], ranks=4)
