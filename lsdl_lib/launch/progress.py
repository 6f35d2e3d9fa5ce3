"""A progress bar for work that happens in ranks: rank 0 reports, the parent draws.

A rank cannot draw on the page, since its output is collected and printed once. So rank 0 sends
counts to the parent, at most ten a second, and the parent feeds a ``tqdm.auto`` bar.
``TQDM_DISABLE=1`` turns the bars off (tqdm's own variable).
"""

import time

from tqdm.auto import tqdm

from lsdl_lib.launch.context import here

SECONDS_BETWEEN_REPORTS = 0.1
DELAY_S = 0.5  # work that is done sooner shows no bar


def progress(iterable, desc=""):
    """Yield from ``iterable``, showing rank 0's progress; on other ranks only yield.

    Use it inside a function that ``launch`` runs: ``for step in progress(range(100), "train"):``.
    In a plain process it is a ``tqdm.auto`` bar.
    """
    place = here()
    if place is None:
        yield from tqdm(iterable, desc=desc, leave=False)
        return
    if place.rank != 0:
        yield from iterable
        return
    total = len(iterable) if hasattr(iterable, "__len__") else None
    last = float("-inf")
    done = 0
    for item in iterable:
        yield item
        done += 1
        if time.monotonic() - last > SECONDS_BETWEEN_REPORTS:
            place.report(desc, done, total)
            last = time.monotonic()
    place.report(desc, done, done)


class Bars:
    """The parent's side: one bar a description, drawn from the reports of rank 0."""

    def __init__(self):
        self._bars = {}

    def report(self, desc, done, total):
        """Move the bar called ``desc`` to ``done`` of ``total`` (None: not known)."""
        if desc not in self._bars:
            self._bars[desc] = tqdm(desc=desc, total=total, leave=False, delay=DELAY_S)
        bar = self._bars[desc]
        bar.update(done - bar.n)
        if done == total:
            bar.close()
            del self._bars[desc]

    def close(self):
        """Remove all bars."""
        for bar in self._bars.values():
            bar.close()
        self._bars.clear()
