"""Asynchronous: apply each gradient as it comes, and answer at once.

Nobody waits for anybody. Nothing bounds how old a gradient may be: a worker that takes as long as
the others take for 100 pushes brings one of staleness 100 (Dean et al. 2012; Li et al. 2014).

This is also the interface of the other consistency models, which say when a server waits:
:mod:`stale_synchronous` and :mod:`backup_workers`. A model has no state; the server tells it what
it must know.
"""


class Asynchronous:
    """No bound, no waiting. The base of the consistency models."""

    def check(self, workers, servers):
        """Raise ValueError where the model cannot work with so many workers and servers."""

    def accepts(self, staleness):
        """Tell whether a gradient of this staleness counts; otherwise it is dropped."""
        return True

    def gathers(self, workers):
        """Return how many gradients make an update, their average, with so many workers left."""
        return 1

    def may_go(self, worker, done, seen, version):
        """Tell whether a worker that has pushed may go on now.

        Args:
            worker: its rank.
            done: {worker: pushes so far} of those that have not left.
            seen: the version that the worker's last gradient was computed on.
            version: the server's.
        """
        return True
