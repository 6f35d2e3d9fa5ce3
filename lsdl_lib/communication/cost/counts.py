"""How many messages and bytes each rank sends, exactly, for every collective.

Each function returns one pair (messages, bytes) a rank, in rank order, for p ranks and n bytes,
where p divides the number of elements (and q, the largest power of two that is at most p, where
halving is used). n is the whole vector; for all-gather, reduce-scatter, scatter and gather the
pieces of all ranks together; for all-to-all one rank's list. The root, if any, is rank 0.
"""

from lsdl_lib.communication.collectives.doubling import largest_power_of_two
from lsdl_lib.communication.collectives.pipelined import segments
from lsdl_lib.communication.collectives.scatter import subtree
from lsdl_lib.communication.collectives.torus import checked_width, squarest_width


def star_broadcast(p, n):
    """The root sends p-1 vectors."""
    return [(p - 1, (p - 1) * n)] + [(0, 0)] * (p - 1)


def star_reduce(p, n):
    """Every rank but the root sends its vector."""
    return [(0, 0)] + [(1, n)] * (p - 1)


def star_all_reduce(p, n):
    """The root sends p-1 vectors, every other rank one."""
    return _sum(star_reduce(p, n), star_broadcast(p, n))


def ring_all_gather(p, n):
    """p-1 messages of n/p."""
    return [(p - 1, (p - 1) * n // p)] * p


def ring_all_reduce(p, n):
    """2 (p-1) messages of n/p."""
    return _sum(ring_all_gather(p, n), ring_all_gather(p, n))


def pipelined_all_reduce(p, n):
    """2 (p-1) m messages, 2 (p-1)/p n bytes; m segments a chunk."""
    (_, sent), *_ = ring_all_reduce(p, n)
    return [(2 * (p - 1) * segments(p, n), sent)] * p


def ring_broadcast(p, n):
    """The root sends p-1 chunks, then all pass chunks around."""
    return _sum(star_scatter(p, n), ring_all_gather(p, n))


def doubling_all_reduce(p, n):
    """lg q vectors; the p-q ranks beyond send theirs once and get the result once."""
    return _folded(p, n, [(q_rounds(p), q_rounds(p) * n)] * largest_power_of_two(p))


def halving_all_reduce(p, n):
    """2 lg q messages, 2 (q-1)/q n bytes; the ranks beyond q as in doubling."""
    q = largest_power_of_two(p)
    return _folded(p, n, [(2 * q_rounds(p), 2 * (q - 1) * n // q)] * q)


def halving_reduce_scatter(p, n):
    """lg p messages, (p-1)/p n bytes; p a power of two."""
    return [(q_rounds(p), (p - 1) * n // p)] * p


def tree_broadcast(p, n):
    """Rank r sends one vector to each child r + 2^k, for the 2^k above r."""
    children = [sum(r < 2**k and r + 2**k < p for k in range(p)) for r in range(p)]
    return [(count, count * n) for count in children]


def tree_reduce(p, n):
    """Every rank but the root sends one vector."""
    return star_reduce(p, n)


def tree_all_reduce(p, n):
    """A tree reduce, then a tree broadcast."""
    return _sum(tree_reduce(p, n), tree_broadcast(p, n))


def torus_all_reduce(p, n, width=None):
    """2 (X-1) messages of n/X in the row, 2 (Y-1) of n/(X Y) in the column."""
    x = checked_width(width or squarest_width(p), p)
    y = p // x
    messages = 2 * (x - 1) + 2 * (y - 1)
    return [(messages, 2 * (x - 1) * n // x + 2 * (y - 1) * n // p)] * p


def star_scatter(p, n):
    """The root sends p-1 pieces."""
    return [(p - 1, (p - 1) * n // p)] + [(0, 0)] * (p - 1)


def star_gather(p, n):
    """Every rank but the root sends its piece."""
    return [(0, 0)] + [(1, n // p)] * (p - 1)


def tree_scatter(p, n):
    """A rank sends each child the pieces of the child's subtree."""
    sent = [(0, 0)] * p
    for child in range(1, p):
        parent = child - subtree(child, p)
        sent[parent] = (sent[parent][0] + 1, sent[parent][1] + _below(child, p) * n // p)
    return sent


def tree_gather(p, n):
    """Every rank but the root sends the pieces of its subtree."""
    return [(0, 0)] + [(1, _below(rank, p) * n // p) for rank in range(1, p)]


def pairwise_all_to_all(p, n):
    """p-1 messages of n/p."""
    return ring_all_gather(p, n)


COUNTS = {
    "star_broadcast": star_broadcast,
    "tree_broadcast": tree_broadcast,
    "ring_broadcast": ring_broadcast,
    "star_reduce": star_reduce,
    "tree_reduce": tree_reduce,
    "star_all_reduce": star_all_reduce,
    "ring_all_reduce": ring_all_reduce,
    "pipelined_all_reduce": pipelined_all_reduce,
    "doubling_all_reduce": doubling_all_reduce,
    "halving_all_reduce": halving_all_reduce,
    "tree_all_reduce": tree_all_reduce,
    "torus_all_reduce": torus_all_reduce,
    "star_scatter": star_scatter,
    "tree_scatter": tree_scatter,
    "star_gather": star_gather,
    "tree_gather": tree_gather,
    "ring_all_gather": ring_all_gather,
    "doubling_all_gather": halving_reduce_scatter,
    "ring_reduce_scatter": ring_all_gather,
    "halving_reduce_scatter": halving_reduce_scatter,
    "direct_all_to_all": pairwise_all_to_all,
    "pairwise_all_to_all": pairwise_all_to_all,
}


def q_rounds(p):
    """Return lg q for the largest power of two q that is at most p."""
    return largest_power_of_two(p).bit_length() - 1


def _below(place, p):
    """Return how many ranks the binomial subtree at ``place`` holds."""
    return min(subtree(place, p), p - place)


def _sum(one, other):
    return [(a + c, b + d) for (a, b), (c, d) in zip(one, other)]


def _folded(p, n, core):
    """Add the vectors that p - q ranks hand to the first q, and get back."""
    beyond = p - len(core)
    served = [(m + 1, b + n) if rank < beyond else (m, b) for rank, (m, b) in enumerate(core)]
    return served + [(1, n)] * beyond
