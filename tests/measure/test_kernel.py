"""The count against what the kernel counted, each rank in a network namespace of its own.

How it counts is in ``kernel_counts.py``; our own collectives are in ``tests/communication``.
"""

import pytest
import torch
import torch.distributed as dist

from lsdl_lib import launch
from lsdl_lib.measure.network import join, network
from tests.measure.kernel_counts import assert_alike, count_both

pytestmark = pytest.mark.root

P = 3
LARGE = 1_000_003  # floats
HUGE = 4_000_001  # floats: chunks above 2 MiB, where gloo's reduce sends more than it must


@pytest.fixture
def namespaces():
    with network(P) as names:
        yield names


def cases(group):
    rank = dist.get_rank()
    to, of = (rank + 1) % P, (rank - 1) % P
    x, wide, huge = torch.ones(LARGE), torch.ones(P * LARGE), torch.ones(HUGE)
    many, others = list(wide.chunk(P)), [torch.empty(LARGE) for _ in range(P)]

    def wait(*works):
        for work in works:
            work.wait()

    def sparse():
        where = torch.arange(rank, 3 * LARGE, 3)[None, :LARGE]
        entries = torch.sparse_coo_tensor(where, x, (3 * LARGE,), check_invariants=False)
        dist.all_reduce(entries.coalesce(), group=group)

    return {
        "isend and irecv": lambda: wait(dist.isend(x, to, group), dist.irecv(others[0], of, group)),
        "send to one": lambda: (
            dist.send(x, 1, group) if rank == 0 else rank == 1 and dist.recv(x, 0, group)
        ),
        "all_reduce": lambda: dist.all_reduce(x, group=group),
        "all_reduce, 5 floats": lambda: dist.all_reduce(x[:5], group=group),
        "all_reduce, sparse": sparse,
        "broadcast": lambda: dist.broadcast(x, 1, group),
        "reduce": lambda: dist.reduce(x, 1, group=group),
        "reduce, large chunks": lambda: dist.reduce(huge, 0, group=group),
        "all_gather": lambda: dist.all_gather(others, x, group),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(wide, x, group),
        "reduce_scatter": lambda: dist.reduce_scatter(x, many, group=group),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(x, wide, group=group),
        "all_to_all": lambda: dist.all_to_all(others, many, group),
        "all_to_all_single": lambda: dist.all_to_all_single(wide.clone(), wide, group=group),
        "gather": lambda: dist.gather(x, others if rank == 0 else None, 0, group),
        "scatter": lambda: dist.scatter(x, many if rank == 0 else None, 0, group),
        "barrier": lambda: dist.barrier(group),
        "monitored_barrier": lambda: dist.monitored_barrier(group),
    }


def count_cases(namespaces):
    return count_both(cases(join(namespaces)))


def test_our_count_is_the_kernel_s(namespaces):
    ranks = launch(count_cases, namespaces, ranks=P, timeout=100, backend="gloo", threads=1)
    for rank, found in enumerate(ranks):
        for name, (ours, kernel) in found.items():
            assert_alike(ours, kernel, f"{name}, rank {rank}")
