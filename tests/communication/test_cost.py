"""Closed forms, exact counts, the simulation and real ranks agree."""

import math

import pytest
import torch

from lsdl_lib import launch
from lsdl_lib.communication import collectives
from lsdl_lib.communication.collectives import torus
from lsdl_lib.communication.cost import Link, TwoLevels, closed_forms, counts, simulate
from lsdl_lib.communication.studies.all_reduce_scale import STEPS
from lsdl_lib.measure import traffic
from tests.communication import checks

LINK = Link(alpha=1e-3, beta=1e-6, gamma=3e-7)


def vectors(p, n):
    return [torch.arange(n, dtype=torch.float64) + 1000 * rank for rank in range(p)]


def simulated(method, p, n, links=LINK, width=None):
    """Simulate, check the sums, return the timeline."""
    steps = STEPS.get(method)
    if method == "torus":
        width = width or torus.squarest_width(p)

        def steps(flat, reduce, messages):
            return torus.torus_steps(flat, reduce, messages, width)

    tensors = vectors(p, n)
    total = sum(vectors(p, n))
    timeline = simulate(steps, tensors, links)
    assert all(torch.equal(tensor, total) for tensor in tensors)
    return timeline


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16])
@pytest.mark.parametrize("method", closed_forms.ALL_REDUCE)
def test_the_simulation_takes_the_time_of_the_closed_form(method, p):
    n = 48 * p  # elements; divisible by p and by the power of two below
    timeline = simulated(method, p, n)
    expected = closed_forms.ALL_REDUCE[method](p, 8 * n, LINK)
    assert math.isclose(timeline.seconds, expected, rel_tol=1e-12, abs_tol=1e-15)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16])
@pytest.mark.parametrize("method", closed_forms.ALL_REDUCE)
def test_the_simulation_sends_what_the_formula_says(method, p):
    n = 48 * p
    timeline = simulated(method, p, n)
    expected = counts.COUNTS[f"{method}_all_reduce"](p, 8 * n)
    assert list(zip(timeline.messages, timeline.sent_bytes)) == expected


def test_every_collective_has_its_counts():
    assert set(counts.COUNTS) == set(collectives.__all__) - {"hierarchical_all_reduce"}


@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 7, 8])
def test_real_ranks_send_what_the_formula_says(p):
    names = [name for name in counts.COUNTS if checks.fits(name, p)]
    n = 48 * p

    def run():
        sent = {}
        for name in names:
            with traffic() as seen:
                checks.call(name, n=n)
            sent[name] = (seen.sent_messages, seen.sent_bytes)
        return sent

    sent = launch(run, ranks=p, timeout=120)
    for name in names:
        assert [of_rank[name] for of_rank in sent] == counts.COUNTS[name](p, 4 * n), name


def test_two_levels_cost_what_the_hierarchical_form_says():
    inside, outside = Link(1e-5, 1e-9), Link(1e-3, 1e-6)
    timeline = simulated("torus", 12, 480, TwoLevels(inside, outside, 4), width=4)
    expected = closed_forms.torus_all_reduce(12, 8 * 480, inside, width=4, across=outside)
    assert math.isclose(timeline.seconds, expected, rel_tol=1e-12)


def test_a_ring_over_two_levels_is_as_slow_as_its_slowest_link():
    inside, outside = Link(1e-5, 1e-9), Link(1e-3, 1e-6)
    timeline = simulated("ring", 8, 480, TwoLevels(inside, outside, 4))
    assert timeline.seconds > 0.9 * closed_forms.ring_all_reduce(8, 8 * 480, outside)


def test_published_step_counts():
    assert closed_forms.steps("halving", 32) == 10  # Goyal et al. 2017, section 4: 32 servers
    assert closed_forms.steps("ring", 32) == 62
    assert closed_forms.steps("torus", 1024, width=32) == 124  # Mikami et al. 2018: 32 x 32
    assert closed_forms.steps("ring", 1024) == 2046
    assert closed_forms.steps("master", 1024, width=16) == 4 * 15 + 2 * 63  # Jia et al. 2018


@pytest.mark.parametrize("p", [4, 8, 64])
def test_the_crossover_is_where_ring_and_doubling_take_the_same_time(p):
    link = Link(alpha=2e-5, beta=1e-9)
    n = closed_forms.crossover_bytes(p, link)
    ring_, doubling_ = closed_forms.ring_all_reduce, closed_forms.doubling_all_reduce
    assert math.isclose(ring_(p, n, link), doubling_(p, n, link), rel_tol=1e-12)
    assert ring_(p, 2 * n, link) < doubling_(p, 2 * n, link)
    assert ring_(p, n / 2, link) > doubling_(p, n / 2, link)


def test_at_two_ranks_ring_and_halving_are_one():
    for n in (0, 8, 10**6):
        assert closed_forms.ring_all_reduce(2, n, LINK) == closed_forms.halving_all_reduce(
            2, n, LINK
        )


def test_reduce_scatter_and_all_gather_make_an_all_reduce():
    n = 8 * 960
    for p in (2, 4, 8):
        for shape in ("ring", "halving"):
            gather = closed_forms.doubling_all_gather if shape == "halving" else None
            gather = gather or closed_forms.ring_all_gather
            scatter = getattr(closed_forms, f"{shape}_reduce_scatter")
            whole = closed_forms.ALL_REDUCE[shape](p, n, LINK)
            assert math.isclose(scatter(p, n, LINK) + gather(p, n, LINK), whole, rel_tol=1e-12)


def test_a_simulation_that_waits_for_nobody_says_who():
    def stuck(flat, reduce, messages):
        if messages.rank == 1:
            yield messages.exchange(receives=[(flat, 0)])

    with pytest.raises(RuntimeError, match=r"ranks \[1\] wait for messages that nobody sends"):
        simulate(stuck, vectors(3, 5), LINK)


def test_a_simulation_notices_sizes_that_differ():
    def uneven(flat, reduce, messages):
        if messages.rank == 0:
            messages.exchange(sends=[(flat, 1)])
        else:
            yield messages.exchange(receives=[(flat[:2], 0)])

    with pytest.raises(ValueError, match="rank 0 sends 5 elements, rank 1 waits for 2"):
        simulate(uneven, vectors(2, 5), LINK)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Link(-1.0, 0.0), r"alpha=-1\.0"),
        (lambda: Link.of(0, 5), "gbit_s=0"),
        (lambda: TwoLevels(LINK, LINK, 0), "ranks_per_node=0"),
        (lambda: closed_forms.steps("square", 4), "method='square'"),
        (lambda: closed_forms.crossover_bytes(6, LINK), "p=6"),
    ],
)
def test_wrong_values_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
