"""Our all-reduces against gloo's own, and where the time goes.

Ours is recursive doubling up to 64 KiB and the pipelined ring above, as a library would choose by
size. Both run on the same group, in interleaved pairs; small ones several times a run, so that the
clock's own cost does not count. Beside the ratio each record has the account of one call on rank 0,
for ours and for gloo: processor seconds of all its threads, context switches, page faults, bytes
and messages sent.

For the large sizes a third candidate sends the ring's messages, whole chunks, one step after the
other, straight by ``send`` and ``recv``, and reduces nothing. What it takes is what these two calls
cost: no all-reduce made of them can be faster than that but by cutting chunks finer.

Run: ``python benchmarks/all_reduce.py``
"""

import resource
import time

import torch
import torch.distributed as dist
from pairs import paired, report

from lsdl_lib import launch
from lsdl_lib.communication.collectives import doubling_all_reduce, pipelined_all_reduce
from lsdl_lib.measure import format_seconds, traffic

SIZES = {"1 KiB": 2**10, "64 KiB": 2**16, "4 MiB": 2**22, "32 MiB": 2**25}
CALLS = {"1 KiB": 50, "64 KiB": 30, "4 MiB": 3, "32 MiB": 1}  # in one run
PAIRS = 100  # the intervals must be narrow enough to tell 1.05 from 1.1
RANKS = [2, 4]


def ours(size):
    """Return our all-reduce for vectors of this size."""
    return doubling_all_reduce if SIZES[size] <= 2**16 else pipelined_all_reduce


def only_messages(vector):
    """Exchange what a ring all-reduce exchanges, (n,), and reduce nothing."""
    group, rank, p = dist.group.WORLD, dist.get_rank(), dist.get_world_size()
    sent, arrived = (chunk.view(torch.uint8) for chunk in vector.view(2, -1)[:, : len(vector) // p])
    for _ in range(2 * (p - 1)):
        send = group.send([sent], (rank + 1) % p, 0)
        group.recv([arrived], (rank - 1) % p, 0).wait()
        send.wait()


def times(fn, calls):
    def run():
        for _ in range(calls):
            fn()

    return run


def account(fn, calls):
    """Return what one call of ``fn`` costs this rank."""
    with traffic() as seen:
        fn()
    dist.barrier()
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
    times(fn, calls)()
    dist.barrier()  # the other threads' work on this call is done too
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "processor_seconds": (time.process_time() - began) / calls,
        "switches": (after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw) / calls,
        "page_faults": (after.ru_minflt - before.ru_minflt) / calls,
        "sent_bytes": seen.sent_bytes,
        "sent_messages": seen.sent_messages,
    }


def compare(size):
    """Run on every rank: report the ratio, and return the two accounts."""
    vector = torch.zeros(SIZES[size] // 4)
    mine, fn = (lambda: ours(size)(vector)), (lambda: dist.all_reduce(vector))
    calls = CALLS[size]
    result = paired(times(mine, calls), times(fn, calls), PAIRS, before=dist.barrier)
    accounts = {"ours": account(mine, 4 * calls), "gloo": account(fn, 4 * calls)}
    if SIZES[size] <= 2**16:
        return result, accounts, None
    bare = times(lambda: only_messages(vector), calls)
    return result, accounts, paired(bare, times(fn, calls), PAIRS, before=dist.barrier)


if __name__ == "__main__":
    for ranks in RANKS:
        for size in SIZES:
            result, accounts, bare = launch(compare, size, ranks=ranks, threads=1, timeout=300)[0]
            name = f"all-reduce against gloo's, {ours(size).__name__}"
            report(name, result, size=size, ranks=ranks, calls=CALLS[size], accounts=accounts)
            for who, cost in accounts.items():
                print(
                    f"    {who}: {format_seconds(cost['processor_seconds'])} of processor, "
                    f"{cost['switches']:.0f} switches, {cost['page_faults']:.0f} page faults, "
                    f"{cost['sent_messages']} messages, {cost['sent_bytes']:,} bytes"
                )
            if bare:
                name = "only the messages, by send and recv, against gloo's all-reduce"
                report(name, bare, size=size, ranks=ranks, calls=CALLS[size])
