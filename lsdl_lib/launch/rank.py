"""What one rank's process does, from its start to its last message.

The parent talks to a rank through one pipe. The rank sends, as tuples: ``("progress", …)`` at any
time, ``("returned",)`` when its function is done, then ``("result", bytes)`` or
``("error", Failure)``, then ends. A rank that ends without one
of the last two died.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import connection

import cloudpickle
import torch
import torch.distributed as dist

from lsdl_lib.launch.context import Place, at
from lsdl_lib.launch.outcome import Failure, is_about_communication
from lsdl_lib.launch.wire import dump_result

# A group's own timeout lies behind the launch's, so that a hang is reported once, with all stacks.
GROUP_TIMEOUT_MARGIN_S = 60


@dataclass(frozen=True)
class Order:
    """All that a rank must know; sent when it starts."""

    rank: int
    ranks: int
    backend: str
    threads: int
    timeout: float  # seconds
    store_port: int
    folder: str  # for what the rank prints, and its stack if it hangs
    environment: dict
    work: bytes  # cloudpickle of (fn, args)


def output_path(folder, rank, stream):
    """Return where rank ``rank`` writes ``stream``: ``"stdout"``, ``"stderr"`` or ``"stack"``."""
    return os.path.join(folder, f"{rank}.{stream}")


def main(order, pipe):
    """Run the order's function as one rank and send its result or error through ``pipe``."""
    _follow_parent()
    _redirect(order)
    os.environ.clear()
    os.environ.update(order.environment)
    os.environ.update(RANK=str(order.rank), LOCAL_RANK=str(order.rank))
    os.environ.update(WORLD_SIZE=str(order.ranks), LOCAL_WORLD_SIZE=str(order.ranks))
    lock = threading.Lock()  # progress may be reported from a thread of the function's own

    def send(*message):
        with lock:
            pipe.send(message)

    try:
        result = _run(order, send)
        send("result", dump_result(result, order.rank))
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        summary = f"exited with code {code} before it returned a result (sys.exit)"
        send("error", Failure(order.rank, "exited", time.monotonic(), summary))
    except BaseException as error:
        send("error", describe(error, order.rank))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        pipe.close()
        # No exit handlers: a process group whose peers are gone may block in them.
        os._exit(0)


def _run(order, send):
    torch.set_num_threads(order.threads)
    if order.backend == "nccl":
        refuse_forked_cuda()
        torch.cuda.set_device(order.rank)
        device = torch.device("cuda", order.rank)
    else:
        device = torch.device("cpu")
    fn, args = cloudpickle.loads(order.work)
    store = dist.TCPStore(
        "127.0.0.1", order.store_port, is_master=False, timeout=timedelta(seconds=order.timeout)
    )
    dist.set_debug_level_from_env()  # torch read it when the fork server imported it
    with unchecked_group():
        dist.init_process_group(
            order.backend,
            store=store,
            rank=order.rank,
            world_size=order.ranks,
            timeout=timedelta(seconds=order.timeout + GROUP_TIMEOUT_MARGIN_S),
            device_id=device if order.backend == "nccl" else None,
        )
    with at(Place(order.rank, device, lambda *report: send("progress", *report))):
        result = fn(*args)
        send("returned")
        # No rank leaves while another may still read from it.
        dist.barrier()
    dist.destroy_process_group()
    return result


@contextlib.contextmanager
def unchecked_group():
    """Make a group without torch's check of its collectives, also at debug level DETAIL.

    Torch 2.13 compares numbers that on gloo count messages too. Where ranks have sent and received
    different numbers of messages, the next collective fails, right as it is: the barrier at the
    end of every launch, for one.
    """
    level = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.OFF)
    try:
        yield
    finally:
        dist.set_debug_level(level)


def refuse_forked_cuda():
    """Raise when this process was forked from one that had already used CUDA.

    CUDA cannot be used then. It happens when a module that the fork server imports touches the GPU
    at import.
    """
    if torch.cuda._is_in_bad_fork():
        raise RuntimeError(
            "CUDA was initialized in the fork server, so no rank can use a GPU: a module imported "
            "there uses the GPU at import. Restart Python, or use backend='gloo'"
        )


def describe(error, rank):
    """Return the :class:`Failure` for an exception, with its traceback below our own frames."""
    own = error.__traceback__
    while own is not None and own.tb_frame.f_code.co_filename == __file__:
        own = own.tb_next
    lines = traceback.format_exception(type(error), error, own or error.__traceback__)
    summary = "raised " + traceback.format_exception_only(type(error), error)[-1].strip()
    about = is_about_communication(error)
    return Failure(rank, "raised", time.monotonic(), summary, "".join(lines), about)


def _follow_parent():
    """End this rank and all that it started when the parent is gone; leave interrupts to it."""
    with contextlib.suppress(OSError):
        os.setsid()  # a group of its own: the parent can end a rank's children with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()

    def watch():
        connection.wait([parent.sentinel])
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _redirect(order):
    """Send what the rank prints, C++ code included, to files that the parent reads at the end."""
    sys.stdout.flush()
    sys.stderr.flush()
    for stream, number in (("stdout", 1), ("stderr", 2)):
        with open(output_path(order.folder, order.rank, stream), "wb") as file:
            os.dup2(file.fileno(), number)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
    stack = open(output_path(order.folder, order.rank, "stack"), "wb")  # noqa: SIM115, for ever
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=False)
