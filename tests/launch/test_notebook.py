"""The same from a real Jupyter kernel."""

import time

import psutil
import pytest
from jupyter_client.manager import start_new_kernel

from tests.launch.conftest import ranks_of

LIMIT_S = 5

SETUP = """
import os, signal, sys, time
import torch, torch.distributed as dist
from lsdl_lib import launch
numbers = [n for n in signal.valid_signals() if n not in (signal.SIGKILL, signal.SIGSTOP)]
handlers = {n: signal.getsignal(n) for n in numbers}

def all_reduce_forever():
    while True:
        dist.all_reduce(torch.ones(2))
"""

HANDLERS = "print({n: signal.getsignal(n) for n in numbers} == handlers)"


class Kernel:
    """A kernel, and what its cells gave."""

    def __init__(self):
        self.manager, self.client = start_new_kernel(kernel_name="python3")
        self.run(SETUP)

    def run(self, code, timeout=60):
        """Run a cell; return (stdout, error text or "")."""
        self.client.execute(code)
        return self.collect(timeout)

    def collect(self, timeout):
        out, error = "", ""
        while True:
            message = self.client.get_iopub_msg(timeout=timeout)
            kind, content = message["msg_type"], message["content"]
            if kind == "stream" and content["name"] == "stdout":
                out += content["text"]
            elif kind == "error":
                error = f"{content['ename']}: {content['evalue']}"
            elif kind == "status" and content["execution_state"] == "idle":
                return out, error

    def ranks(self):
        return ranks_of(psutil.Process(self.manager.provisioner.process.pid))


@pytest.fixture(scope="module")
def kernel():
    kernel = Kernel()
    yield kernel
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)


@pytest.fixture(autouse=True)
def clean_afterwards(kernel):
    yield
    assert kernel.run(HANDLERS) == ("True\n", "")
    deadline = time.monotonic() + 1
    while kernel.ranks() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert kernel.ranks() == []


def test_a_cells_function_runs_and_prints_once(kernel):
    kernel.run("scale = 10\ndef work(x):\n    print('rank', dist.get_rank())\n    return x * scale")
    out, error = kernel.run("print(launch(work, 4, ranks=2, timeout=60))")
    assert error == ""
    assert out == "[rank 0] rank 0\n[rank 1] rank 1\n[40, 40]\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ValueError('13')", "LaunchError: rank 1 raised ValueError: 13"),
        ("os._exit(0)", "LaunchError: rank 1 exited with code 0"),
        ("os.kill(os.getpid(), 9)", "LaunchError: rank 1 was killed by SIGKILL"),
    ],
)
def test_a_failing_rank_is_named_in_time(kernel, body, words):
    code = f"def work():\n    if dist.get_rank() == 1:\n        {body}\n    all_reduce_forever()"
    kernel.run(code)
    began = time.monotonic()
    _, error = kernel.run("launch(work, ranks=3, timeout=60)")
    assert time.monotonic() - began < LIMIT_S
    assert error.startswith(words)


def test_a_traceback_shows_the_cells_own_line(kernel):
    kernel.run("def work():\n    return 1 / dist.get_rank()  # the reader's line")
    _, error = kernel.run("launch(work, ranks=2, timeout=60)")
    assert "# the reader's line" in error


def test_a_hang_ends_at_the_timeout(kernel):
    kernel.run(
        "def work():\n    if dist.get_rank() == 1:\n        time.sleep(99)\n    dist.barrier()"
    )
    began = time.monotonic()
    _, error = kernel.run("launch(work, ranks=2, timeout=4)")
    assert time.monotonic() - began < 4 + LIMIT_S
    assert error.startswith("LaunchError: rank 1 did not return within the timeout of 4 s")
    assert "time.sleep(99)" in error


def test_interrupting_the_cell_ends_the_ranks(kernel):
    kernel.client.execute("launch(all_reduce_forever, ranks=3, timeout=60)")
    deadline = time.monotonic() + 30
    while len(kernel.ranks()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.3)
    began = time.monotonic()
    kernel.manager.interrupt_kernel()
    _, error = kernel.collect(timeout=LIMIT_S)
    assert error.startswith("KeyboardInterrupt")
    assert time.monotonic() - began < LIMIT_S
    assert kernel.run("print(launch(dist.get_rank, ranks=2, timeout=60))") == ("[0, 1]\n", "")
