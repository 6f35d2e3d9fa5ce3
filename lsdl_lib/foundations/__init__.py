"""Foundations: what computing, memory, sharing cores and one training step cost on a machine.

``roofline`` bounds the rate of an operation, ``operations`` counts FLOPs and bytes, ``rates``
measures a machine, ``strips`` is one matrix product at every intensity, ``sharing`` reads two
clocks at once, and ``balance`` sets computation against communication in one step.
"""

from lsdl_lib.foundations.balance import Step, hiding_examples
from lsdl_lib.foundations.operations import Work
from lsdl_lib.foundations.rates import bandwidths, peak
from lsdl_lib.foundations.roofline import Roofline
from lsdl_lib.foundations.sharing import Clocked, by_both_clocks, least_seconds
from lsdl_lib.foundations.strips import product_by_rows, product_by_strips, strip_work

__all__ = [
    "Clocked",
    "Roofline",
    "Step",
    "Work",
    "bandwidths",
    "by_both_clocks",
    "hiding_examples",
    "least_seconds",
    "peak",
    "product_by_rows",
    "product_by_strips",
    "strip_work",
]
