import socket
import time

import psutil
import pytest


def ranks_of(process):
    """The processes that the fork server of ``process`` has started and that still run."""
    found = []
    for child in process.children():
        with_children = child.children(recursive=True)
        found += [p for p in with_children if p.status() != psutil.STATUS_ZOMBIE]
    return found


@pytest.fixture
def no_rank_left():
    """After the test, no rank of this process is left within a second."""
    yield
    deadline = time.monotonic() + 1
    while ranks_of(psutil.Process()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ranks_of(psutil.Process()) == []


@pytest.fixture
def free_port():
    """A port that nothing listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
