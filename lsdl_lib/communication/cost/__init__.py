"""What collectives cost: closed forms, a step-by-step simulation that agrees, and links."""

from lsdl_lib.communication.cost import closed_forms, counts
from lsdl_lib.communication.cost.fitting import Fit, fit_link
from lsdl_lib.communication.cost.links import PRESETS, Link, MeasuredLink, TwoLevels
from lsdl_lib.communication.cost.simulation import Timeline, simulate

__all__ = [
    "PRESETS",
    "Fit",
    "Link",
    "MeasuredLink",
    "Timeline",
    "TwoLevels",
    "closed_forms",
    "counts",
    "fit_link",
    "simulate",
]
