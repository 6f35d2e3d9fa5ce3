"""The count against what the kernel counted, each rank in a network namespace of its own.

A namespace has its own interface and sockets, so the kernel's counters there are one rank's: the
payload of its TCP connections (exact), and the bytes that crossed its interface (with headers).
"""

import re
import subprocess
import time

import pytest
import torch
import torch.distributed as dist

from lsdl_lib import launch
from lsdl_lib.measure import traffic
from lsdl_lib.measure.network import join, network

pytestmark = pytest.mark.root

P = 3
HEADER = 48  # bytes that gloo puts before each message, and sends as each notice
LARGE = 1_000_003  # floats
HUGE = 4_000_001  # floats: chunks above 2 MiB, where gloo's reduce sends more than it must


@pytest.fixture
def namespaces():
    with network(P) as names:
        yield names


def kernel_counts():
    """Bytes so far: (TCP payload sent and acknowledged, received, interface out, in)."""
    sockets = subprocess.run(["ss", "-tin"], check=True, capture_output=True, text=True).stdout
    payload = [
        sum(int(found) for found in re.findall(rf"{field}:(\d+)", sockets))
        for field in ("bytes_acked", "bytes_received")
    ]
    with open("/proc/thread-self/net/dev") as file:
        (line,) = (line for line in file if "eth0" in line)
    fields = line.split(":")[1].split()
    return (*payload, int(fields[8]), int(fields[0]))


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


def count_both(namespaces):
    """Return {case: (our Traffic's numbers, the kernel's)} of this rank.

    The group that ``launch`` made keeps its sockets in the old namespace: its barriers are not seen
    here and separate the cases.
    """
    group = join(namespaces)
    found = {}
    before = settled()
    for name, case in cases(group).items():
        dist.barrier()
        with traffic() as t:
            case()
        dist.barrier()
        after = settled()
        ours = t.sent_bytes, t.received_bytes, t.sent_messages, t.received_messages
        found[name] = ours, tuple(b - a for a, b in zip(before, after, strict=True))
        before = after
    return found


def settled():
    """Wait until nothing moves, then return the kernel's counts."""
    counts = kernel_counts()
    while True:
        time.sleep(0.06)  # longer than an acknowledgement may be delayed
        again = kernel_counts()
        if again == counts:
            return counts
        counts = again


def test_our_count_is_the_kernel_s(namespaces):
    ranks = launch(count_both, namespaces, ranks=P, timeout=100, backend="gloo", threads=1)
    for rank, found in enumerate(ranks):
        for name, (ours, kernel) in found.items():
            sent, received, sent_messages, received_messages = ours
            payload_out, payload_in, interface_out, interface_in = kernel
            for mine, theirs, out, back in (
                (sent, payload_out, sent_messages, received_messages),
                (received, payload_in, received_messages, sent_messages),
            ):
                # The payload is our bytes and whole headers: one a message, one for the notice of
                # each receive that is posted, and at most one for the notice of each send.
                headers, rest = divmod(theirs - mine, HEADER)
                assert rest == 0, f"{name}, rank {rank}: {ours} {kernel}"
                assert out + back <= headers <= 2 * out + back, f"{name}, rank {rank}: {headers}"
            for mine, theirs in ((sent, interface_out), (received, interface_in)):
                if mine > 1_000_000:
                    assert 1 <= theirs / mine <= 1.06, f"{name}, rank {rank}: {ours} {kernel}"
