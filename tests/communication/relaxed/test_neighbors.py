"""Whom a rank sends to, as a mixing matrix says."""

from lsdl_lib.communication.relaxed import mixing
from lsdl_lib.communication.relaxed.neighbors import out_neighbors


def test_neighbors_of_a_ring():
    assert set(out_neighbors(mixing.ring(5), 0)) == {1, 4}


def test_column_r_says_where_rank_r_sends():
    weights = mixing.push_weights([[1], [2, 0], []])
    assert [set(out_neighbors(weights, rank)) for rank in range(3)] == [{1}, {0, 2}, set()]


def test_nobody_sends_to_itself():
    assert list(out_neighbors(mixing.complete(1), 0)) == []
