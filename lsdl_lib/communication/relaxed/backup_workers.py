"""Backup workers: synchronous steps that do not wait for the slowest.

Of p workers the server averages the first p - b gradients that come for the present weights, takes
a step, and drops the others when they come: no gradient that counts is stale (Chen et al. 2016). A
worker that is slow for a moment costs its gradient, not everybody's time. b = 0 is synchronous SGD.
"""

from lsdl_lib.communication.relaxed.asynchronous import Asynchronous


class BackupWorkers(Asynchronous):
    """Step on the first ``p - backups`` gradients, drop those of the ``backups`` slowest.

    Raises:
        ValueError: ``backups`` is negative; in a server also: no worker is left to wait for, or
            there are several servers.
    """

    def __init__(self, backups):
        if not backups >= 0:
            raise ValueError(f"backups={backups!r}: give a number of workers, at least 0")
        self.backups = backups

    def check(self, workers, servers):
        """Raise ValueError where nobody would be left, or servers could drop different pushes."""
        if self.backups >= workers:
            raise ValueError(
                f"backups={self.backups} of {workers} workers leave none to wait for: "
                f"give at most {workers - 1}"
            )
        if servers > 1:
            # One could take what the other drops, each then waiting for workers that the other
            # keeps.
            raise ValueError(f"backup workers need one server, got servers={servers}")

    def accepts(self, staleness):
        """Tell whether the gradient is for the present weights."""
        return staleness == 0

    def gathers(self, workers):
        """Return all but the backups."""
        return max(1, workers - self.backups)

    def may_go(self, worker, done, seen, version):
        """Tell whether there are newer weights than the worker had."""
        return seen < version
