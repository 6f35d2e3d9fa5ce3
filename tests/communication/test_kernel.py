"""Messages and bytes of every collective: the formula, our count, and the kernel's.

Each rank runs in a network namespace of its own: see ``tests/measure/kernel_counts.py``.
"""

import pytest

from lsdl_lib import launch
from lsdl_lib.communication import collectives
from lsdl_lib.communication.cost import counts
from lsdl_lib.measure.network import join, network
from tests.communication import checks
from tests.measure.kernel_counts import assert_alike, count_both

pytestmark = pytest.mark.root

ELEMENTS = 2_400_000  # float32; 3, 4 and all smaller chunks divide it


def count_all(namespaces, names):
    group = join(namespaces)
    return count_both(
        {name: lambda name=name: checks.call(name, group, ELEMENTS) for name in names}
    )


def formula(name, p):
    if name == "hierarchical_all_reduce":  # ``checks.call`` gives it nodes of one rank
        return counts.torus_all_reduce(p, 4 * ELEMENTS, width=1)
    return counts.COUNTS[name](p, 4 * ELEMENTS)


@pytest.mark.parametrize("p", [3, 4])
def test_formula_count_and_kernel_agree_for_every_collective(p):
    names = [name for name in collectives.__all__ if checks.fits(name, p)]
    with network(p) as namespaces:
        ranks = launch(
            count_all, namespaces, names, ranks=p, timeout=200, backend="gloo", threads=1
        )
    for name in names:
        counted = [found[name] for found in ranks]
        ours = [(messages, sent) for (sent, _, messages, _), _ in counted]
        assert ours == formula(name, p), name
        for rank, (mine, kernel) in enumerate(counted):
            assert_alike(mine, kernel, f"{name}, rank {rank} of {p}")
        # What is sent is received, in the kernel's numbers too.
        assert sum(kernel[0] for _, kernel in counted) == sum(kernel[1] for _, kernel in counted)
