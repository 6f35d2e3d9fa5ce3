"""Mixing matrices: stochastic, and with the spectral gaps that their papers give."""

import itertools
import math

import numpy as np
import pytest

from lsdl_lib.communication.relaxed.mixing import (
    bipartite_exponential,
    complete,
    exponential,
    hypercube,
    one_peer_exponential,
    product,
    push_weights,
    ring,
    spectral_gap,
    torus,
)
from lsdl_lib.communication.relaxed.stochastic import checked

SIZES = range(1, 18)
GRAPHS = {
    "complete": complete,
    "ring": ring,
    "exponential": exponential,
    "one-peer": one_peer_exponential,
    "torus": lambda p: torus(2, p // 2) if p % 2 == 0 else torus(1, p),
    "hypercube": lambda p: hypercube(p) if p & (p - 1) == 0 else np.eye(p),
    "bipartite": lambda p: bipartite_exponential(p) if p == 1 or p % 2 == 0 else np.eye(p),
}


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_are_doubly_stochastic_and_normal(name, p):
    for weights in checked(GRAPHS[name](p), p):
        assert weights.dtype == np.float64
        assert np.abs(weights @ weights.T - weights.T @ weights).max() < 1e-15
        assert (weights.diagonal() > 0).all()


@pytest.mark.parametrize("name", ["complete", "ring", "exponential", "hypercube", "bipartite"])
def test_case_50_one_rank_keeps_its_own(name):
    (weights,) = checked(GRAPHS[name](1), 1)
    assert weights.tolist() == [[1.0]]
    assert spectral_gap(weights) == 1.0


def test_case_50_sizes_that_a_graph_has_not():
    for p in (3, 5, 7):
        with pytest.raises(ValueError, match=f"bipartite graph of {p} ranks: give an even number"):
            bipartite_exponential(p)
        with pytest.raises(ValueError, match=f"hypercube of {p} ranks: give a power of two"):
            hypercube(p)
    for p, graph in itertools.product((0, -1, 2.0, True), (complete, ring, exponential, hypercube)):
        with pytest.raises(ValueError, match="give a whole number, at least 1"):
            graph(p)


@pytest.mark.parametrize("p", range(2, 18))
def test_ring_has_the_gap_of_its_cosines(p):
    sizes = sorted(abs(1 + 2 * math.cos(2 * math.pi * k / p)) / 3 for k in range(p))
    assert spectral_gap(ring(p)) == pytest.approx(1 - sizes[-2], abs=1e-12)
    if p > 4:
        slowest = (1 + 2 * math.cos(2 * math.pi / p)) / 3
        assert spectral_gap(ring(p)) == pytest.approx(1 - slowest, abs=1e-12)


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (2, 5), (3, 3), (3, 4), (4, 4)])
def test_torus_has_the_gap_of_its_two_rings(rows, columns):
    sizes = sorted(
        abs(1 + 2 * math.cos(2 * math.pi * a / rows) + 2 * math.cos(2 * math.pi * b / columns)) / 5
        for a in range(rows)
        for b in range(columns)
    )
    assert spectral_gap(torus(rows, columns)) == pytest.approx(1 - sizes[-2], abs=1e-12)


def test_torus_joins_the_four_neighbors():
    weights = torus(3, 4)
    assert np.flatnonzero(weights[5]).tolist() == [1, 4, 5, 6, 9]
    assert np.flatnonzero(weights[0]).tolist() == [0, 1, 3, 4, 8]


@pytest.mark.parametrize("p", [2, 4, 6, 8, 10, 12, 16, 32, 50, 64])
def test_exponential_graph_of_even_size_has_the_gap_of_the_paper(p):
    """Ying et al. 2021: 2 / (1 + ceil(log2 n)) for even n, larger for odd n."""
    paper = 2 / (1 + math.ceil(math.log2(p)))
    assert spectral_gap(exponential(p)) == pytest.approx(paper, abs=1e-12)
    odd = 2 / (1 + math.ceil(math.log2(p + 1)))
    assert spectral_gap(exponential(p + 1)) > odd - 1e-12


@pytest.mark.parametrize("p", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("graph", [one_peer_exponential, hypercube])
def test_one_peer_graphs_average_exactly_in_log2_p_rounds(graph, p):
    rounds = graph(p)
    assert len(rounds) == math.log2(p)
    assert np.abs(product(rounds) - 1 / p).max() < 1e-15
    assert np.abs(product([np.eye(p), *rounds[:-1]]) - 1 / p).max() > 0.5 / p, "and not before"


@pytest.mark.parametrize("p", [3, 5, 6, 7])
def test_one_peer_rounds_of_other_sizes_are_not_exact(p):
    rounds = one_peer_exponential(p)
    assert len(rounds) == math.ceil(math.log2(p))
    assert np.abs(product(rounds) - 1 / p).max() > 0.01
    assert np.abs(product(rounds * 60) - 1 / p).max() < 1e-9


def test_rank_i_sends_to_the_ranks_ahead():
    for offset, weights in zip((1, 2, 4), one_peer_exponential(6)):
        for rank in range(6):
            assert np.flatnonzero(weights[:, rank]).tolist() == sorted({rank, (rank + offset) % 6})
    assert np.flatnonzero(exponential(8)[:, 3]).tolist() == [3, 4, 5, 7]


@pytest.mark.parametrize("p", [2, 4, 6, 8, 10, 16])
def test_bipartite_rounds_pair_even_with_odd_and_join_all(p):
    rounds = bipartite_exponential(p)
    for weights in rounds:
        assert (weights == weights.T).all()
        for rank in range(p):
            (partner,) = set(np.flatnonzero(weights[rank])) - {rank}
            assert (partner - rank) % 2 == 1
    assert np.abs(product(rounds * 200) - 1 / p).max() < 1e-9


@pytest.mark.parametrize("p", [3, 5, 8])
def test_a_round_shrinks_the_distance_by_the_second_eigenvalue(p):
    for graph in (ring(p), exponential(p), complete(p)):
        second = 1 - spectral_gap(graph)
        x = np.random.default_rng(p).normal(size=(p, 1000))
        before, after = (((y - y.mean(0)) ** 2).sum() for y in (x, graph @ x))
        assert after <= second**2 * before * (1 + 1e-12) + 1e-24
    # The bound is met: by the eigenvector, a wave around the ring.
    wave = np.cos(2 * np.pi * np.arange(p) / p)
    eigenvalue = (1 + 2 * math.cos(2 * math.pi / p)) / 3
    assert np.abs(ring(p) @ wave - eigenvalue * wave).max() < 1e-12


def test_product_applies_the_first_matrix_first():
    first, second = push_weights([[1], [], []]), push_weights([[], [2], []])
    assert np.array_equal(product([first, second]), second @ first)
    assert not np.array_equal(second @ first, first @ second)


def test_push_weights_split_evenly():
    weights = push_weights([[1, 2], [0], []])
    assert weights.T.tolist() == [[1 / 3, 1 / 3, 1 / 3], [1 / 2, 1 / 2, 0], [0, 0, 1]]
    assert weights.sum(0) == pytest.approx([1, 1, 1], abs=1e-15)
    assert weights.sum(1)[0] != pytest.approx(1), "it is only column-stochastic"
    for wrong in ([[1, 1], []], [[0], []], [[2], []], [[-1], []]):
        with pytest.raises(ValueError, match=r"rank 0 sends to .*: name other ranks from 0 to 1"):
            push_weights(wrong)


def test_sums_are_checked_to_rounding():
    for p in (3, 7, 49):
        checked(np.full((p, p), 1 / p), p)
    with pytest.raises(ValueError, match="column 0 of mixing matrix 1"):
        checked([np.eye(2), np.array([[0.5, 0.5], [0.5 - 1e-9, 0.5]])], 2)
    assert len(checked(np.stack([np.eye(2)] * 3), 2)) == 3
