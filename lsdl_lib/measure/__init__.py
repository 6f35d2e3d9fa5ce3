"""Measure: wall time, traffic, memory, and numbers with units.

``wall(fn)`` times a function, ``with traffic() as t`` counts bytes on the wire, ``with memory() as
m`` finds the peak of memory and what it was made of.
"""

from lsdl_lib.measure.memory import Memory, memory
from lsdl_lib.measure.traffic import Traffic, traffic
from lsdl_lib.measure.units import format_bytes, format_capacity, format_rate, format_seconds
from lsdl_lib.measure.wall import Timing, median_interval, timed, wall

__all__ = [
    "Memory",
    "Timing",
    "Traffic",
    "format_bytes",
    "format_capacity",
    "format_rate",
    "format_seconds",
    "median_interval",
    "memory",
    "timed",
    "traffic",
    "wall",
]
