"""Start ranks and return their results: on this machine, or in a ``torchrun`` job that is there.

``launch(fn, *args, ranks=4)`` runs ``fn(*args)`` in four processes with a process group and
returns four results. See :func:`launch` for the rules.
"""

from lsdl_lib.launch.api import launch
from lsdl_lib.launch.context import device, on_main, ranks_that_fit
from lsdl_lib.launch.outcome import LaunchError, Results
from lsdl_lib.launch.progress import progress

__all__ = ["LaunchError", "Results", "device", "launch", "on_main", "progress", "ranks_that_fit"]
