"""Does the virtual clock tell the wall time? Two ranks, one a core, three networks.

For each network the link is fitted by ping-pong first. Then each workload runs in pairs, once by
the wall clock and once on the virtual clock with that link; the ratio virtual / wall should be 1.
Workloads: a matrix product (compute), a ring all-reduce (communicate), one after the other, and
overlapped.

Run: ``python benchmarks/virtual_clock.py`` (the limited networks need root and iproute2).
"""

import contextlib
import os
import time

import torch
import torch.distributed as dist
from pairs import Pairs, report

from lsdl_lib import launch
from lsdl_lib.communication.collectives import ring_all_reduce
from lsdl_lib.communication.cost import Link
from lsdl_lib.communication.cost.fitting import SIZES, fit_line, ping_pong
from lsdl_lib.measure import median_interval
from lsdl_lib.measure.network import join, network
from lsdl_lib.measure.virtual import virtual_clock

PAIRS = 30
NETWORKS = {"loopback": None, "1 Gbit/s": 1.0, "100 Mbit/s": 0.1}
BYTES = {"loopback": 16_000_000, "1 Gbit/s": 8_000_000, "100 Mbit/s": 1_000_000}


def workloads(group, n_bytes):
    vector, matrix = torch.ones(n_bytes // 4), torch.rand(300, 300)

    def compute():
        for _ in range(25):
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

    return [compute, communicate, one_after_the_other, overlapped]


def compare(names, n_bytes):
    """Return {workload: (virtual seconds, wall seconds)} of the later rank, pair by pair."""
    group = join(names) if names else dist.group.WORLD
    sizes = [n for n in SIZES if n <= 4 * n_bytes]
    alpha, beta = fit_line(sizes, ping_pong(sizes, 10, group))
    fitted = torch.tensor([alpha, beta], dtype=torch.float64)
    dist.broadcast(fitted, 0)
    link = Link(*fitted.tolist())
    found = {}
    for work in workloads(group, n_bytes):
        times = []
        for _ in range(PAIRS + 2):
            dist.barrier()
            with virtual_clock(link) as clock:
                work()
            virtual = clock.now
            dist.barrier()
            began = time.perf_counter()
            work()
            wall = time.perf_counter() - began
            both = torch.tensor([virtual, wall], dtype=torch.float64)
            dist.all_reduce(both, op=dist.ReduceOp.MAX)
            times.append(both.tolist())
        found[work.__name__] = list(zip(*times[2:]))
    return link, found


if __name__ == "__main__":
    for name, gbit_s in NETWORKS.items():
        limited = gbit_s is not None
        if limited and os.geteuid() != 0:
            print(f"{name}: left out, a limited network needs root")
            continue
        with network(2, gbit_s) if limited else contextlib.nullcontext() as names:
            link, found = launch(compare, names, BYTES[name], ranks=2, threads=1, timeout=600)[0]
        print(f"{name}: fitted {link.gbit_s:.3f} Gbit/s, latency {link.alpha * 1e6:.0f} us")
        for work, (virtual, wall) in found.items():
            ratios = [a / b for a, b in zip(virtual, wall)]
            low, high = median_interval(ratios)
            middle = sorted(ratios)[len(ratios) // 2]
            result = Pairs(middle, low, high, virtual, wall)
            report(f"virtual clock over wall clock, {work}", result, network=name, ranks=2)
