"""The kernel's own counts of what a rank in a network namespace of its own sends and receives.

A namespace has its own interface and sockets, so the kernel's counters there are one rank's: the
payload of its TCP connections (exact), and the bytes that crossed its interface (with headers).
"""

import re
import subprocess
import time

import torch.distributed as dist

from lsdl_lib.measure import traffic

HEADER = 48  # bytes that gloo puts before each message, and sends as each notice


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


def settled():
    """Wait until nothing moves, then return the kernel's counts."""
    counts = kernel_counts()
    while True:
        time.sleep(0.06)  # longer than an acknowledgement may be delayed
        again = kernel_counts()
        if again == counts:
            return counts
        counts = again


def count_both(cases):
    """Run {name: function}; return {name: (our Traffic's numbers, the kernel's)} of this rank.

    The group that ``launch`` made keeps its sockets in the old namespace: its barriers are not seen
    here and separate the cases.
    """
    found = {}
    before = settled()
    for name, case in cases.items():
        dist.barrier()
        with traffic() as t:
            case()
        dist.barrier()
        after = settled()
        ours = t.sent_bytes, t.received_bytes, t.sent_messages, t.received_messages
        found[name] = ours, tuple(b - a for a, b in zip(before, after, strict=True))
        before = after
    return found


def assert_alike(ours, kernel, what):
    """Assert that our count is the kernel's, but for the headers."""
    sent, received, sent_messages, received_messages = ours
    payload_out, payload_in, interface_out, interface_in = kernel
    for mine, theirs, out, back in (
        (sent, payload_out, sent_messages, received_messages),
        (received, payload_in, received_messages, sent_messages),
    ):
        # The payload is our bytes and whole headers: one a message, one for the notice of
        # each receive that is posted, and at most one for the notice of each send.
        headers, rest = divmod(theirs - mine, HEADER)
        assert rest == 0, f"{what}: {ours} {kernel}"
        assert out + back <= headers <= 2 * out + back, f"{what}: {headers} {ours}"
    for mine, theirs in ((sent, interface_out), (received, interface_in)):
        if mine > 1_000_000:
            assert 1 <= theirs / mine <= 1.06, f"{what}: {ours} {kernel}"
