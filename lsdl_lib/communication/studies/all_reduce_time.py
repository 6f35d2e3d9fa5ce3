"""The time of every all-reduce on real ranks, on the virtual clock, over sizes and links.

    python -m lsdl_lib.communication.studies.all_reduce_time        about 4 minutes on 2 cores

Real processes exchange real messages; time follows the preset links and the processor time of each
rank. One point: method, link, ranks, bytes, seconds (when the last rank was done; the median of
``repeats`` calls).
"""

import statistics

import torch

from lsdl_lib import launch
from lsdl_lib.claims import studies
from lsdl_lib.communication import collectives
from lsdl_lib.communication.cost import PRESETS, closed_forms
from lsdl_lib.measure.virtual import virtual_clock

CHAPTER, NAME = "communication/collectives", "all-reduce-time"
COMMAND = "python -m lsdl_lib.communication.studies.all_reduce_time"
METHODS = tuple(closed_forms.ALL_REDUCE)
RANKS = (2, 3, 4, 6, 8)
SIZES = tuple(960 * 4**k for k in range(8))  # 1 kB to 16 MB; 2, 3, 4, 6 and 8 divide them


def virtual_times(n_bytes, calls, links=PRESETS, repeats=1):
    """Run on every rank: time all-reduces of ``n_bytes`` on the virtual clock.

    Args:
        n_bytes: of the float32 vector, a multiple of 4.
        calls: pairs (method, name of the link).
        links: ``{name: Link or TwoLevels}``.
        repeats: calls of each.

    Returns:
        ``{(method, link name): [seconds, …]}`` of this rank.
    """
    tensor, times = torch.zeros(n_bytes // 4), {}
    for method, link in calls:
        all_reduce = getattr(collectives, f"{method}_all_reduce")
        times[method, link] = []
        for _ in range(repeats):
            with virtual_clock(links[link]) as clock:
                all_reduce(tensor)
            times[method, link].append(clock.now)
    return times


def last_rank(ranks, call):
    """Return the median over the repeats of the time of the last rank.

    Args:
        ranks: what the ranks' ``virtual_times`` returned.
        call: (method, name of the link).
    """
    return statistics.median(map(max, zip(*(times[call] for times in ranks))))


def repeats_of(n_bytes):
    """Return how often a size is timed: small messages vary more and cost less."""
    return 7 if n_bytes < 10**6 else 3 if n_bytes < 10**7 else 1


def main(ranks=RANKS, sizes=SIZES, folder=None):
    """Run the sweep and store it."""
    calls = [(method, link) for link in PRESETS for method in METHODS]
    points = []
    for p in ranks:
        for n in sizes:
            run = launch(
                virtual_times,
                n,
                calls,
                PRESETS,
                repeats_of(n),
                ranks=p,
                threads=1,
                backend="gloo",
                timeout=600,
            )
            points += [
                {
                    "method": method,
                    "link": link,
                    "ranks": p,
                    "bytes": n,
                    "repeats": repeats_of(n),
                    "seconds": last_rank(run, (method, link)),
                }
                for method, link in calls
            ]
            print(f"{p} ranks, {n:,} bytes: {run.seconds:.1f} s", flush=True)
    return studies.write(
        CHAPTER,
        NAME,
        points,
        command=COMMAND,
        clock="virtual",
        backend="gloo",
        ranks=list(ranks),
        folder=folder,
    )


if __name__ == "__main__":
    print(main())
