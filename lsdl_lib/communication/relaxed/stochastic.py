"""What a mixing matrix must be: for so many ranks, not negative, and stochastic.

column-stochastic: sum_i W_ij = 1 for each j       a rank hands out what it has, no more
row-stochastic:    sum_j W_ij = 1 for each i       equal vectors stay equal
"""

import hashlib

import numpy as np

TOLERANCE = 1e-12  # of sums of p weights that are rounded in float64


def checked(mixing, p, rows=True):
    """Return ``mixing``, a matrix or a list of them, as a list of matrices for p ranks.

    Args:
        mixing: (p, p), or a list of such.
        rows: rows must add up to 1 too, not only columns.

    Raises:
        ValueError: it is not for p ranks, has a negative weight, or its sums are not 1.
    """
    rounds = [np.asarray(one, dtype=np.float64) for one in _listed(mixing)]
    if not rounds:
        raise ValueError("no mixing matrix: give one, or a list of at least one")
    for number, weights in enumerate(rounds):
        where = f"mixing matrix {number}"
        if weights.shape != (p, p):
            raise ValueError(f"{where} has shape {weights.shape}: give ({p}, {p}) for {p} ranks")
        if not (weights >= 0).all():
            raise ValueError(f"{where} has the weight {weights.min()}: give weights of at least 0")
        for axis, name in ((0, "column"), (1, "row"))[: 1 + rows]:
            sums = weights.sum(axis)
            worst = int(np.abs(sums - 1).argmax())
            if not abs(sums[worst] - 1) <= TOLERANCE:
                more = "" if name == "column" else ", or use push-sum, which needs columns alone"
                raise ValueError(
                    f"{name} {worst} of {where} adds up to {sums[worst]:.6g}: scale it to 1{more}"
                )
    return rounds


def fingerprint(mixing):
    """Return a short text that tells matrices apart, to compare them between ranks."""
    rounds = [np.asarray(one, dtype=np.float64) for one in _listed(mixing)]
    digest = hashlib.sha256(b"".join(one.tobytes() for one in rounds)).hexdigest()
    return f"{len(rounds)} of {[one.shape for one in rounds[:1]]}, digest {digest[:8]}"


def _listed(mixing):
    matrix = isinstance(mixing, np.ndarray) and mixing.ndim == 2
    return [mixing] if matrix else list(mixing)
