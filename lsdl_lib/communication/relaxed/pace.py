"""Fast and slow workers on demand, and virtual time that is the same on every run.

Who comes when decides what asynchronous training does. On the virtual clock computation takes the
processor time that it takes here, which differs a little from run to run, so pushes that come
almost together may change places. On a scripted clock computation takes what ``spend`` says and
nothing else: the same order every time.
"""

import contextlib
import time

from lsdl_lib.measure import virtual


def spend(seconds):
    """Be busy for that long: the virtual clock advances if one runs here, else the rank sleeps."""
    clock = virtual.current()
    if clock is None:
        time.sleep(seconds)
        return
    clock.stop()
    clock.now += seconds
    clock.go()


@contextlib.contextmanager
def scripted_clock(links):
    """Run the body on a :class:`ScriptedClock`, the same on every rank; yields it.

    It times the messages of ``lsdl_lib.communication``. Torch's own collectives take no time.

    Args:
        links: as for :func:`lsdl_lib.measure.virtual.virtual_clock`.
    """
    with virtual.use(ScriptedClock(links)) as clock:
        yield clock


class ScriptedClock(virtual.VirtualClock):
    """A virtual clock that only messages and :func:`spend` move."""

    def stop(self):
        """Count no processor time."""

    def go(self):
        """Count no processor time."""

    def fork(self):
        """Return the scripted clock of work that runs beside this thread, on the same ports."""
        self._beside += 1
        return ScriptedClock(self.links, self._ports, self.now)
