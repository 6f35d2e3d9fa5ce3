"""Mixing matrices: who averages with whom, and with what weight.

    x_i <- sum_j W_ij x_j            W: (p, p), not negative, x_i: the vector of rank i

Rank i receives from rank j where W_ij is above 0.

- Where every column adds up to 1, the sum of all x_i is conserved: nothing gets lost on the way.
- Where every row does too (doubly stochastic), equal vectors stay equal, and if the graph holds
  together, all x_i go to the average.
- How fast says the second largest eigenvalue by size. Where W W^T = W^T W, as in all graphs of
  this module but :func:`push_weights`,

      sum_i |x_i - average|^2  shrinks in a round to at most  |lambda_2|^2 of it,

  and 1 - |lambda_2| is the spectral gap: 1 is exact in one round, 0 may never end.

| graph | messages a rank and round | spectral gap |
| --- | --- | --- |
| complete | p - 1 | 1 |
| ring | 2 | 1 - largest of abs(1 + 2 cos(2 pi k / p)) / 3, k = 1 … p - 1: O(1/p^2) |
| torus | 4 | O(1/p) if square |
| exponential | ceil(log2 p) | 2 / (1 + ceil(log2 p)) for even p |
| one-peer exponential | 1 | exact after log2 p rounds if p is a power of two |

(Lian et al. 2017; Assran et al. 2019; the last two rows: Ying et al. 2021.)
A matrix is a numpy array of float64; a graph that changes is a list of them, taken in turn.
"""

import numpy as np


def complete(p):
    """Return the matrix of 1/p: each round is an all-reduce, by p - 1 messages a rank."""
    return np.full((_size(p), p), 1 / p)


def ring(p):
    """Return the ring: 1/3 for a rank itself and for each of its two neighbors."""
    return _circulant(p, (1, -1))


def torus(rows, columns):
    """Return the torus: 1/5 for a rank itself and for each of its four neighbors.

    Rank r is in row r // columns. Where a side has two ranks or one, neighbors coincide, and their
    weights add up.
    """
    down, right = np.eye(_size(rows)), np.eye(_size(columns))
    along_rows = np.kron(_shift(rows, 1) + _shift(rows, -1), right)
    along_columns = np.kron(down, _shift(columns, 1) + _shift(columns, -1))
    return (np.eye(rows * columns) + along_rows + along_columns) / 5


def exponential(p):
    """Return the static exponential graph: rank i sends to i + 1, i + 2, i + 4, … below i + p."""
    return _circulant(p, _powers(p))


def one_peer_exponential(p):
    """Return the one-peer exponential graph: in round k rank i sends to i + 2^k alone.

    Doubly stochastic, of ceil(log2 p) matrices. For a power of two their product is 1/p everywhere.
    """
    return [_circulant(p, (offset,)) for offset in _powers(p)] or [np.eye(p)]


def hypercube(p):
    """Return the hypercube, a dimension a round: ranks that differ in bit k average in pairs.

    Symmetric, and exact after log2 p rounds.

    Raises:
        ValueError: p is not a power of two.
    """
    if _size(p) & (p - 1):
        raise ValueError(f"a hypercube of {p} ranks: give a power of two, or use another graph")
    return [_pairs([rank ^ offset for rank in range(p)]) for offset in _powers(p)] or [np.eye(p)]


def bipartite_exponential(p):
    """Return pairs of an even and an odd rank: in round k, even i and i + 1, i + 3, i + 5, i + 9, …

    A rank either opens an exchange or answers one, always the same, so that no circle of ranks can
    wait for each other (Lian et al. 2018 need this where ranks do not keep step).

    Raises:
        ValueError: p is odd and above 1.
    """
    if _size(p) > 1 and p % 2:
        raise ValueError(f"a bipartite graph of {p} ranks: give an even number of ranks")
    if p == 1:
        return [np.eye(1)]
    offsets = [1, *(1 + offset for offset in _powers(p) if 1 < offset < p - 1)]
    return [
        _pairs([(rank + (offset if rank % 2 == 0 else -offset)) % p for rank in range(p)])
        for offset in offsets
    ]


def push_weights(out_neighbors):
    """Return the column-stochastic matrix of a directed graph: each rank splits evenly.

    A rank with d out-neighbors keeps 1 / (d + 1) and sends as much to each. Rows need not add up
    to 1: with such a matrix use push-sum.

    Args:
        out_neighbors: for each rank the ranks that it sends to.

    Raises:
        ValueError: a neighbor is not a rank, is the rank itself, or is named twice.
    """
    p = _size(len(out_neighbors))
    weights = np.eye(p)
    for rank, neighbors in enumerate(out_neighbors):
        if len({*neighbors, rank}) != len(neighbors) + 1 or not {*neighbors} <= {*range(p)}:
            raise ValueError(
                f"rank {rank} sends to {list(neighbors)}: name other ranks from 0 to {p - 1}, "
                "each once"
            )
        weights[[*neighbors, rank], rank] = 1 / (len(neighbors) + 1)
    return weights


def spectral_gap(weights):
    """Return 1 - |lambda_2|, from the second largest eigenvalue by size; 1 for one rank."""
    sizes = np.sort(np.abs(np.linalg.eigvals(weights)))[::-1]
    return 1.0 if len(sizes) == 1 else float(1 - sizes[1])


def product(rounds):
    """Return what several rounds do together, the first matrix applied first."""
    result = np.eye(len(rounds[0]))
    for weights in rounds:
        result = weights @ result
    return result


def _circulant(p, offsets):
    """Return equal weights for the rank itself and for the ranks that are ``offsets`` behind it."""
    shifts = [_shift(_size(p), offset) for offset in (0, *offsets)]
    return sum(shifts) / len(shifts)


def _shift(p, offset):
    """Return the matrix that brings rank j's vector to rank j + offset."""
    return np.roll(np.eye(p), offset, axis=0)


def _pairs(partner):
    return (np.eye(len(partner)) + np.eye(len(partner))[partner]) / 2


def _powers(p):
    return [2**k for k in range((_size(p) - 1).bit_length())]


def _size(p):
    if not isinstance(p, int) or isinstance(p, bool) or p < 1:
        raise ValueError(f"{p!r} ranks: give a whole number, at least 1")
    return p
