"""How much work a chapter does: ``smoke`` (seconds), ``laptop`` (the default), ``gpu`` (all GPUs).

The environment variable ``LSDL_TIER`` chooses. Every cell runs at every tier; only sizes change.
"""

import os

TIERS = ("smoke", "laptop", "gpu")


def tier():
    """Return the tier named by ``LSDL_TIER``, ``"laptop"`` when it is not set.

    Raises:
        ValueError: the variable names no tier.
    """
    name = os.environ.get("LSDL_TIER") or "laptop"
    if name not in TIERS:
        raise ValueError(f"LSDL_TIER is {name!r}; set it to one of {', '.join(TIERS)}, or unset it")
    return name


def by_tier(*, smoke, laptop, gpu):
    """Return the argument that belongs to the current tier, for example a problem size."""
    return {"smoke": smoke, "laptop": laptop, "gpu": gpu}[tier()]
