"""Ranks on this machine: start them, listen, and leave none behind.

Python's ``multiprocessing`` starts the ranks with its *forkserver* method: one server process
imports torch once and forks itself for every rank, so a launch costs a fork and not an import.
Ranks meet through a store that the parent holds, at a port that the system chose.

The main module is not re-run in the ranks (cloudpickle carries what the function needs), so a
script needs no ``if __name__ == "__main__"`` guard.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import types
from multiprocessing import connection

import torch.distributed as dist

from lsdl_lib.launch import rank as rank_module
from lsdl_lib.launch.context import cores
from lsdl_lib.launch.outcome import NO_ANSWER, Results, death, hang, own_frames, root_cause
from lsdl_lib.launch.progress import Bars
from lsdl_lib.launch.wire import dump_work

# After the first failure, wait this long for the errors of other ranks: the cause may come second.
SETTLE_S = 0.5
# How long ranks may take to write their stacks when they hang.
STACK_S = 2.5
# What the fork server imports once for all ranks: torch, and what most functions of the book use.
# torch imports its compiler where a rank makes its first optimizer, which takes seconds each time.
PRELOAD = [
    "torch.distributed",
    "torch._dynamo",
    "lsdl_lib.launch.rank",
    "lsdl_lib.measure",
    "lsdl_lib.communication.collectives",
]
LOOPBACK = {"linux": "lo", "darwin": "lo0"}

_starting = threading.Lock()


def run_here(fn, args, ranks, timeout, backend, threads):
    """Run ``fn(*args)`` in ``ranks`` new processes; arguments as in :func:`lsdl_lib.launch`."""
    began = time.monotonic()
    work = dump_work(fn, args)
    with tempfile.TemporaryDirectory(prefix="lsdl-", ignore_cleanup_errors=True) as folder:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        crew = Crew(timeout, folder)
        try:
            for rank in range(ranks):
                crew.start(
                    rank_module.Order(
                        rank=rank,
                        ranks=ranks,
                        backend=backend,
                        threads=threads or max(1, cores() // ranks),
                        timeout=timeout,
                        store_port=store.port,
                        folder=folder,
                        environment=_environment(),
                        work=work,
                    )
                )
            crew.listen()
        finally:
            crew.end()
        output = _print_output(folder, ranks)
        if crew.failures:
            raise root_cause(crew.failures).error(output)
        device = "cuda" if backend == "nccl" else "cpu"
        values = [pickle.loads(crew.results[rank]) for rank in range(ranks)]
        seconds = time.monotonic() - began
        return Results(values, backend=backend, device=device, seconds=seconds, output=output)


class Crew:
    """The ranks of one launch, as the parent sees them: processes, pipes, results, failures."""

    def __init__(self, timeout, folder):
        self.timeout = timeout
        self.folder = folder
        self.results = {}  # rank -> bytes
        self.failures = []
        self._processes = {}
        self._returned = set()  # ranks whose function is done
        self._pipes = {}  # rank -> connection, while the rank may still send
        self._bars = Bars()

    def start(self, order):
        """Start one rank."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=rank_module.main, args=(order, theirs), daemon=True)
        with _starting, _no_main_module():
            process.start()
        theirs.close()
        self._processes[order.rank] = process
        self._pipes[order.rank] = ours

    def listen(self):
        """Take messages until every rank has ended, one has failed, or the time is over."""
        deadline = time.monotonic() + self.timeout
        while self._pipes:
            if self.failures:
                deadline = min(deadline, self.failures[0].when + SETTLE_S)
            ready = connection.wait(self._pipes.values(), max(0.0, deadline - time.monotonic()))
            for rank in [rank for rank, pipe in self._pipes.items() if pipe in ready]:
                self._receive(rank)
            if not ready and time.monotonic() >= deadline:
                if not self.failures:
                    self.failures.append(hang(self._stacks(), self._returned, self.timeout))
                return

    def _receive(self, rank):
        try:
            kind, *message = self._pipes[rank].recv()
        except (EOFError, ConnectionResetError):
            self._pipes.pop(rank).close()
            if rank not in self.results and all(f.rank != rank for f in self.failures):
                process = self._processes[rank]
                process.join(SETTLE_S)  # the pipe closes a little before the exit code is known
                self.failures.append(death(rank, process.exitcode, time.monotonic()))
            return
        if kind == "progress":
            self._bars.report(*message)
        elif kind == "returned":
            self._returned.add(rank)
        elif kind == "result":
            self.results[rank] = message[0]
        else:
            self.failures.append(message[0])

    def _stacks(self):
        """Return rank -> Python stack, for the ranks that have not ended."""
        stacks = {}
        for rank in self._pipes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._processes[rank].pid, signal.SIGUSR1)
        deadline = time.monotonic() + STACK_S
        for rank in self._pipes:
            path = rank_module.output_path(self.folder, rank, "stack")
            text, before = _read(path), None
            while (not text or text != before) and time.monotonic() < deadline:
                time.sleep(0.05)
                before, text = text, _read(path)
            stacks[rank] = own_frames(text) or NO_ANSWER
        return stacks

    def end(self):
        """End every rank that is still there, with what it started, and wait for it."""
        self._bars.close()
        for process in self._processes.values():
            if process.is_alive():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()  # if it did not live to make its own group
        for process in self._processes.values():
            process.join()
        for pipe in self._pipes.values():
            pipe.close()
        self._pipes.clear()


def _environment():
    """The ranks' environment: ours as it is now, with gloo on the loopback interface."""
    environment = dict(os.environ)
    if sys.platform in LOOPBACK:
        # A laptop's host name often resolves to an address that nothing answers at.
        environment.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK[sys.platform])
    return environment


@contextlib.contextmanager
def _no_main_module():
    """Hide ``__main__`` while a rank starts: multiprocessing would re-run it there."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _print_output(folder, ranks):
    """Print what the ranks printed, once and in rank order; return what went to stdout."""
    printed = []
    for stream, target in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        for rank in range(ranks):
            text = _read(rank_module.output_path(folder, rank, stream))
            lines = "".join(f"[rank {rank}] {line}\n" for line in text.splitlines())
            target.write(lines)
            if stream == "stdout":
                printed.append(lines)
        target.flush()
    return "".join(printed)


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""
