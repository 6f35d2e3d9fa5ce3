"""Compare two callables fairly: interleaved pairs, the median ratio and its 95 % interval.

Runs go A B, B A, A B, ...: both sides see the same machine, warm or busy, and neither always goes
first. Each pair gives one ratio a / b. Their median has a distribution-free interval, from order
statistics (``lsdl_lib.measure.median_interval``). "At most 1.05" means that the interval's upper
end is below it.

In a script of this folder::

    from pairs import paired, report

    report("launch against spawn", paired(launch_four, spawn_four))
"""

import datetime
import json
import platform
import re
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from lsdl_lib.launch import on_main
from lsdl_lib.launch.context import cores
from lsdl_lib.measure import format_seconds, median_interval, timed

LEAST_PAIRS = 30
FOLDER = Path("_build/benchmarks")  # under the current directory, where records are written


@dataclass(frozen=True)
class Pairs:
    """The outcome of one comparison.

    Attributes:
        ratio: median of the per-pair ratios a / b; below 1, A is faster.
        low, high: 95 % interval of the median ratio.
        a_seconds, b_seconds: seconds of each run, pair by pair.
    """

    ratio: float
    low: float
    high: float
    a_seconds: tuple[float, ...]
    b_seconds: tuple[float, ...]

    def __str__(self):
        a, b = (statistics.median(side) for side in (self.a_seconds, self.b_seconds))
        return (
            f"{self.ratio:.3f} x (95 %: {self.low:.3f} to {self.high:.3f}, "
            f"{len(self.a_seconds)} pairs; {format_seconds(a)} against {format_seconds(b)})"
        )


def paired(a, b, pairs=LEAST_PAIRS, *, warmup=2, before=None, device=None, clock=time.perf_counter):
    """Run ``a()`` and ``b()`` in interleaved pairs; return the :class:`Pairs`.

    Args:
        a: function without arguments, for us.
        b: the same for the peer; both do the same work.
        pairs: at least 30.
        warmup: pairs run first that do not count.
        before: called before each run, untimed: a barrier where several ranks compare together.
        device: where they work, synchronized around each run; left out, this rank's device.
        clock: function that gives seconds.

    Raises:
        ValueError: fewer than 30 pairs, or a run of B that took no time.
    """
    if pairs < LEAST_PAIRS:
        raise ValueError(f"pairs is {pairs}; give at least {LEAST_PAIRS}, or the interval is wide")

    def run(fn):
        if before is not None:
            before()
        return timed(fn, device, clock)

    a_seconds, b_seconds = [], []
    for pair in range(-warmup, pairs):
        order = ((a, a_seconds), (b, b_seconds))
        for fn, seconds in order if pair % 2 == 0 else reversed(order):
            taken = run(fn)
            if pair >= 0:
                seconds.append(taken)
    if min(b_seconds) <= 0:
        raise ValueError("a run of b took no time by this clock: give it more work")
    ratios = [ours / theirs for ours, theirs in zip(a_seconds, b_seconds, strict=True)]
    low, high = median_interval(ratios)
    return Pairs(statistics.median(ratios), low, high, tuple(a_seconds), tuple(b_seconds))


def report(name, result, *, folder=FOLDER, **facts):
    """Print one line and write ``<folder>/<name>.json``; return the record, a dict.

    Only the process that speaks for all does so (rank 0); the others just get the record.

    Args:
        name: what was compared with what.
        result: what :func:`paired` returned.
        folder: where the record goes.
        facts: what a reader must know to read it: ranks, bytes, backend, ...; a dict goes into the
            record alone.
    """
    record = {
        "name": name,
        **facts,
        "ratio": result.ratio,
        "low": result.low,
        "high": result.high,
        "pairs": len(result.a_seconds),
        "a_seconds": list(result.a_seconds),
        "b_seconds": list(result.b_seconds),
        "machine": machine(),
    }
    if on_main():
        short = {key: value for key, value in facts.items() if not isinstance(value, dict)}
        details = ", ".join(f"{key} {value}" for key, value in short.items())
        print(f"{name}{f' [{details}]' if details else ''}: {result}")
        words = re.sub(r"\W+", "-", f"{name} {details}".lower()).strip("-")
        path = Path(folder) / f"{words}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
    return record


def machine():
    """Return what a ratio depends on: cores, threads, GPUs, versions, date."""
    return {
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())],
        "system": platform.system(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
