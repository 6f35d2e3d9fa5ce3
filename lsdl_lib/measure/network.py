"""A real network between ranks of one machine, with a bandwidth of your choice (root, Linux).

Each rank moves to a network namespace of its own, with one interface; the interfaces meet at a
bridge. A token bucket (``tc tbf``) on each interface limits what it sends. Messages then cross
the kernel's network stack at that rate: what a rank measures is a wall time on a slow link, no
model. The kernel's counters of the interface are one rank's.

    with network(2, gbit_s=0.1) as names:
        launch(work, names, ranks=2)        # inside: group = join(names)
"""

import contextlib
import ctypes
import os
import subprocess

import torch.distributed as dist

NEW_NETWORK = 0x40000000  # CLONE_NEWNET
# What an idle interface may send at once. Small, or short messages would not feel the limit.
BURST_BYTES = 3_000


@contextlib.contextmanager
def network(ranks, gbit_s=None):
    """Make one namespace a rank, joined by a bridge; yields their names, in rank order.

    Args:
        ranks: number of ranks.
        gbit_s: bandwidth of each rank's sending side; None: as fast as the machine.

    Raises:
        PermissionError: not root.
        FileNotFoundError: no ``ip`` or ``tc`` (Debian: package iproute2).
    """
    if os.geteuid() != 0:
        raise PermissionError("network namespaces need root: run as root, or leave this out")
    tag = f"lsdl{os.getpid()}"
    hub, names = f"{tag}hub", [f"{tag}r{rank}" for rank in range(ranks)]
    with contextlib.ExitStack() as stack:
        for name in (hub, *names):
            _run("ip", "netns", "add", name)
            stack.callback(_run, "ip", "netns", "del", name)
        _run("ip", "-n", hub, "link", "add", "bridge0", "type", "bridge")
        _run("ip", "-n", hub, "link", "set", "bridge0", "up")
        for rank, name in enumerate(names):
            port = f"port{rank}"
            _run("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port)
            _run("ip", "-n", name, "link", "set", port, "netns", hub)
            _run("ip", "-n", hub, "link", "set", port, "master", "bridge0", "up")
            _run("ip", "-n", name, "addr", "add", f"10.87.0.{rank + 1}/24", "dev", "eth0")
            _run("ip", "-n", name, "link", "set", "eth0", "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")
            if gbit_s is not None:
                _limit(name, gbit_s)
        yield names


def join(names):
    """Move this rank to its namespace; return a process group whose messages cross the network.

    The default group stays in the old namespace. Only threads that start after this call move.
    """
    move_to(names[dist.get_rank()])
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    return dist.new_group()


def move_to(namespace):
    """Take this thread, and the threads that it starts from now on, to ``namespace``."""
    handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(handle, NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), f"setns to {namespace}")
    finally:
        os.close(handle)


def _limit(name, gbit_s):
    words = ("rate", f"{gbit_s * 1e9:.0f}bit", "burst", str(BURST_BYTES), "latency", "100ms")
    _run("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", *words)


def _run(*words):
    subprocess.run(words, check=True, timeout=10)
