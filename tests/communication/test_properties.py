"""Properties over drawn settings: of the simulated collectives, and of real ranks.

Simulated ranks are cheap, so hypothesis draws, fails and shrinks as usual, up to 64 ranks. For real
ranks it draws a batch once, the same each time, and one launch a world size runs what it drew.
"""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from lsdl_lib import launch
from lsdl_lib.communication.collectives import (
    all_to_all,
    broadcast,
    reduce,
    ring,
    scatter,
    torus,
    tree,
)
from lsdl_lib.communication.cost import Link, simulate
from lsdl_lib.communication.cost.simulation import World, finish
from lsdl_lib.communication.studies.all_reduce_scale import STEPS
from tests.communication import checks

LINK = Link(alpha=1e-3, beta=1e-6, gamma=3e-7)
# A busy machine is no failure; the same examples each time, for a page that always builds.
drawn = settings(max_examples=30, deadline=None, derandomize=True, database=None)
ranks_ = st.integers(1, 64)
elements_ = st.integers(0, 150)


def inputs(p, n):
    """p vectors of whole numbers in (p, n), different everywhere; int64 wraps around."""
    bits = np.arange(p * n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return bits.astype(np.int64).reshape(p, n)


def vectors(table):
    return [torch.from_numpy(row.copy()) for row in table]


def steps_of(method, p, data):
    if method != "torus":
        return STEPS[method]
    width = data.draw(st.sampled_from([d for d in range(1, p + 1) if p % d == 0]), "width")
    return lambda flat, reduce, messages: torus.torus_steps(flat, reduce, messages, width)


@pytest.mark.parametrize("method", [*STEPS, "torus"])
@drawn
@given(p=ranks_, n=elements_, data=st.data())
def test_simulated_all_reduces_add_exactly_and_conserve_bytes(method, p, n, data):
    table = inputs(p, n)
    tensors = vectors(table)
    timeline = simulate(steps_of(method, p, data), tensors, LINK)
    total = torch.from_numpy(table.sum(axis=0))
    assert all(torch.equal(tensor, total) for tensor in tensors)
    received = [0] * p
    for _, to, size, start, end in timeline.events:
        received[to] += size
        assert start < end <= timeline.seconds
    # Every rank must send and receive something: each holds a share and needs the others'.
    assert sum(timeline.sent_bytes) == sum(received)
    if p > 1 and n > 0:
        assert sum(received) >= 2 * (p - 1) * 8 * n // p
        assert all(sent > 0 for sent in timeline.sent_bytes) or n < p


def run_all(p, steps):
    """Simulate p ranks, ``steps(rank)`` each; return what they did."""
    world = World(p, LINK)
    for rank in world.ranks:
        rank.steps = steps(rank)
    return finish(world)


ROOTED = {
    "star_broadcast": broadcast.star_steps,
    "tree_broadcast": tree.broadcast_steps,
    "ring_broadcast": broadcast.ring_steps,
    "star_reduce": reduce.star_steps,
    "tree_reduce": tree.reduce_steps,
}


@pytest.mark.parametrize("name", ROOTED)
@drawn
@given(p=ranks_, n=elements_, data=st.data())
def test_simulated_broadcasts_and_reduces_at_any_root(name, p, n, data):
    root = data.draw(st.integers(0, p - 1), "root")
    table = inputs(p, n)
    tensors = vectors(table)
    if name.endswith("broadcast"):
        run_all(p, lambda rank: ROOTED[name](tensors[rank.rank], rank, root))
        assert all(torch.equal(tensor, torch.from_numpy(table[root])) for tensor in tensors)
    else:
        run_all(p, lambda r: ROOTED[name](tensors[r.rank], torch.Tensor.add_, r, root))
        assert torch.equal(tensors[root], torch.from_numpy(table.sum(axis=0)))


@pytest.mark.parametrize("method", ["star", "tree"])
@drawn
@given(p=ranks_, m=st.integers(0, 9), data=st.data())
def test_simulated_scatter_and_gather_are_each_others_inverse(method, p, m, data):
    root = data.draw(st.integers(0, p - 1), "root")
    pieces, back = vectors(inputs(p, m)), vectors(np.zeros((p, m), np.int64))
    mine = vectors(np.zeros((p, m), np.int64))
    there = getattr(scatter, f"{method}_scatter_steps")
    again = getattr(scatter, f"{method}_gather_steps")
    mine[root].copy_(pieces[root])
    run_all(p, lambda rank: there(mine[rank.rank], pieces, rank, root))
    assert all(torch.equal(mine[k], pieces[k]) for k in range(p))
    back[root].copy_(mine[root])
    run_all(p, lambda rank: again(mine[rank.rank], back, rank, root))
    assert all(torch.equal(back[k], pieces[k]) for k in range(p))


@pytest.mark.parametrize("method", ["direct", "pairwise"])
@drawn
@given(p=st.integers(1, 20), data=st.data())
def test_simulated_all_to_all_transposes_pieces_of_any_size(method, p, data):
    sizes = data.draw(
        st.lists(st.lists(st.integers(0, 4), min_size=p, max_size=p), min_size=p, max_size=p)
    )
    give = [[torch.full((sizes[i][j],), 100 * i + j) for j in range(p)] for i in range(p)]
    take = [[torch.zeros(sizes[j][i], dtype=torch.int64) for j in range(p)] for i in range(p)]
    for i in range(p):
        take[i][i].copy_(give[i][i])
    steps = getattr(all_to_all, f"{method}_steps")
    run_all(p, lambda rank: steps(give[rank.rank], take[rank.rank], rank))
    assert all(torch.equal(take[i][j], give[j][i]) for i in range(p) for j in range(p))


@drawn
@given(p=ranks_, data=st.data())
def test_simulated_ring_gathers_pieces_of_any_size(p, data):
    sizes = data.draw(st.lists(st.integers(0, 5), min_size=p, max_size=p))
    chunks = [
        [torch.full((sizes[k],), k + 1 if k == rank else 0) for k in range(p)] for rank in range(p)
    ]
    run_all(p, lambda rank: ring.all_gather_steps(chunks[rank.rank], rank))
    assert all(chunk.tolist() == [k + 1] * sizes[k] for of in chunks for k, chunk in enumerate(of))


def draw_examples(name, number):
    """Draw (p, the arguments of ``checks.is_right``) for one collective."""
    examples = []

    @seed(NAMES.index(name))
    @settings(max_examples=number, deadline=None, database=None)
    @given(
        p=st.sampled_from([p for p in range(2, 9) if checks.fits(name, p)]),
        n=st.one_of(st.integers(0, 20), st.integers(0, 3000)),
        dtype=st.sampled_from((*checks.FLOATS, *checks.WHOLE, torch.complex64)),
        layout=st.sampled_from(list(checks.LAYOUTS)),
        uneven=st.booleans(),
        seed=st.integers(0, 2**30),
        data=st.data(),
    )
    def collect(p, n, dtype, layout, uneven, seed, data):
        op = data.draw(st.sampled_from(checks.operations(dtype)))
        root = data.draw(st.integers(0, p - 1))
        examples.append((p, (name, n, dtype, op, layout, root, uneven, seed)))

    collect()
    return examples


NAMES = checks.ALL_REDUCES + checks.OTHERS
EXAMPLES = [example for name in NAMES for example in draw_examples(name, 12)]


def failing_examples(examples):
    assert dist.get_world_size() > 1
    return [example for example in examples if not checks.is_right(*example)]


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 6, 7, 8])
def test_drawn_calls_on_real_ranks_are_right_and_leave_what_lies_beside(ranks):
    mine = [example for p, example in EXAMPLES if p == ranks]
    assert len(mine) >= 10
    assert launch(failing_examples, mine, ranks=ranks, timeout=120) == [[]] * ranks


def test_the_drawn_calls_are_of_every_kind():
    by_argument = [set(found) for found in zip(*(arguments for _, arguments in EXAMPLES))]
    assert by_argument[0] == set(NAMES)
    assert by_argument[2] == {*checks.FLOATS, *checks.WHOLE, torch.complex64}
    assert by_argument[4] == set(checks.LAYOUTS)
