"""What a collective costs, in closed form, on p ranks with the same link between any two.

Times follow the alpha-beta-gamma model with one port a rank: a rank sends one message and receives
one at a time. n is the whole vector in bytes; for all-gather, reduce-scatter, scatter, gather and
all-to-all the pieces of all ranks together. Where a form needs p to be a power of two it says so.

Sources: Thakur, Rabenseifner & Gropp 2005 (tables 1-2); Patarasuk & Yuan 2009 (ring); Mikami et al.
2018 (torus); Jia et al. 2018 (master-based steps).
"""

from math import ceil, log2

from lsdl_lib.communication.collectives.doubling import largest_power_of_two
from lsdl_lib.communication.collectives.pipelined import segments
from lsdl_lib.communication.collectives.torus import checked_width, squarest_width
from lsdl_lib.communication.cost.links import Link


def _rounds(p):
    return ceil(log2(p)) if p > 1 else 0


def _folds(p):
    """Steps that whole vectors take to reduce p ranks to a power of two, and back: 0 or 1 each."""
    return int(p != largest_power_of_two(p))


def star_all_reduce(p, n, link):
    """2 (p-1) (alpha + n beta) + (p-1) n gamma."""
    return (p - 1) * (2 * link.seconds(n) + n * link.gamma)


def ring_all_reduce(p, n, link):
    """2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma."""
    return 2 * (p - 1) * link.seconds(n / p) + (p - 1) / p * n * link.gamma


def pipelined_all_reduce(p, n, link):
    """2 (p-1) (m alpha + n/p beta); m > 1 segments a chunk, each reduced while the next arrives.

    With one segment a chunk it is the ring.
    """
    m = segments(p, n)
    return ring_all_reduce(p, n, link) if m == 1 else 2 * (p - 1) * m * link.seconds(n / p / m)


def doubling_all_reduce(p, n, link):
    """lg q (alpha + n beta + n gamma), and 2 (alpha + n beta) + n gamma when p is not q = 2^k."""
    step = link.seconds(n) + n * link.gamma
    return log2(largest_power_of_two(p)) * step + _folds(p) * (step + link.seconds(n))


def halving_all_reduce(p, n, link):
    """2 lg q alpha + 2 (q-1)/q n beta + (q-1)/q n gamma, and the folds when p is not q = 2^k."""
    q = largest_power_of_two(p)
    folds = _folds(p) * (2 * link.seconds(n) + n * link.gamma)
    share = (q - 1) / q * n
    return 2 * log2(q) * link.alpha + 2 * share * link.beta + share * link.gamma + folds


def tree_all_reduce(p, n, link):
    """2 ceil(lg p) (alpha + n beta) + ceil(lg p) n gamma."""
    return _rounds(p) * (2 * link.seconds(n) + n * link.gamma)


def torus_all_reduce(p, n, link, width=None, across=None):
    """2 (X-1) alpha + 2 (X-1)/X n beta in rows; 2 (Y-1) alpha' + 2 (Y-1)/Y (n/X) beta' in columns.

    ``across`` is the link of the columns, for two levels; left out, the same as in the rows.
    """
    width = checked_width(width or squarest_width(p), p)
    rows = ring_all_reduce(width, n, link)
    return rows + ring_all_reduce(p // width, n / width, across or link)


ALL_REDUCE = {
    "star": star_all_reduce,
    "ring": ring_all_reduce,
    "doubling": doubling_all_reduce,
    "halving": halving_all_reduce,
    "tree": tree_all_reduce,
    "torus": torus_all_reduce,
}


def tree_broadcast(p, n, link):
    """ceil(lg p) (alpha + n beta)."""
    return _rounds(p) * link.seconds(n)


def star_broadcast(p, n, link):
    """(p-1) (alpha + n beta)."""
    return (p - 1) * link.seconds(n)


def ring_broadcast(p, n, link):
    """2 (p-1) alpha + 2 (p-1)/p n beta."""
    return 2 * (p - 1) * link.seconds(n / p)


def ring_all_gather(p, n, link):
    """(p-1) alpha + (p-1)/p n beta."""
    return (p - 1) * link.seconds(n / p)


def doubling_all_gather(p, n, link):
    """lg p alpha + (p-1)/p n beta; p a power of two."""
    return log2(p) * link.alpha + (p - 1) / p * n * link.beta


def ring_reduce_scatter(p, n, link):
    """(p-1) alpha + (p-1)/p n (beta + gamma)."""
    return ring_all_gather(p, n, link) + (p - 1) / p * n * link.gamma


def halving_reduce_scatter(p, n, link):
    """lg p alpha + (p-1)/p n (beta + gamma); p a power of two."""
    return doubling_all_gather(p, n, link) + (p - 1) / p * n * link.gamma


def pairwise_all_to_all(p, n, link):
    """(p-1) alpha + (p-1)/p n beta; n is one rank's list."""
    return (p - 1) * link.seconds(n / p)


def steps(method, p, width=None):
    """Return the number of steps of an all-reduce, one after the other, on p ranks.

    ``"ring"`` 2 (p-1); ``"halving"`` 2 lg p; ``"doubling"`` lg p; ``"torus"`` 2 (X-1) + 2 (Y-1);
    ``"master"``: the hierarchical all-reduce of Jia et al. 2018 with ``width`` ranks a node,
    4 (width-1) + 2 (p/width-1).

    Raises:
        ValueError: the method is not one of these.
    """
    if method == "master":
        width = checked_width(width, p)
        return 4 * (width - 1) + 2 * (p // width - 1)
    if method not in ALL_REDUCE:
        raise ValueError(f"method={method!r}: give one of {', '.join(ALL_REDUCE)}, master")
    extra = {"width": width} if method == "torus" else {}
    return round(ALL_REDUCE[method](p, 0, Link(alpha=1.0, beta=0.0), **extra))


def crossover_bytes(p, link):
    """Return the size at which the ring begins to beat recursive doubling, gamma left out.

    n* = alpha (2 (p-1) - lg p) / (beta (lg p - 2 (p-1)/p))       p a power of two above 2
    """
    if p != largest_power_of_two(p) or p < 4:
        raise ValueError(
            f"p={p}: give a power of two of at least 4; two ranks never gain by the ring, "
            "and other numbers need the folds"
        )
    lg = log2(p)
    return link.alpha * (2 * (p - 1) - lg) / (link.beta * (lg - 2 * (p - 1) / p))
