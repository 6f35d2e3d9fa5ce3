"""ATOMO: send few of a matrix's singular vectors, drawn at random so that the mean is right.

    M = sum of l_i u_i v_i'                singular value decomposition, l_i >= 0
    send (l_i / p_i) u_i and v_i           with probability p_i
    C(M) = sum over those sent of (l_i / p_i) u_i v_i',  expectation M

    variance  E ||C(M) - M||^2 = sum of l_i^2 (1 / p_i - 1)

Of all probabilities with sum s, the expected number of pairs sent, the variance is least for

    p_i = min(1, l_i / t),  t such that they sum to s

that is s l_i / sum of the l, where no one of these exceeds 1. Those that do are sent always, and
what is left of s is shared by the others in the same way (Wang et al. 2018, algorithm 1).

The same holds for any orthogonal pieces ("atoms") of a gradient, its entries too. Singular vectors
are the fewest where gradients have a low rank; a decomposition a step is their price. A message of
a matrix (n, m) has s (n + m) numbers on average: choose s well below n m / (n + m).
"""

import torch

from lsdl_lib.communication.compression.matrices import matrix_shape, working_type
from lsdl_lib.communication.compression.randomness import RandomCompressor


class Atomo(RandomCompressor):
    """Send s pairs of singular vectors a matrix on average; other tensors as they are.

    Half types are decomposed and sent in float32.

    Args:
        pairs: s, the expected number of pairs; at or above the smaller side all are sent.
        seed: of the random numbers.

    Raises:
        ValueError: ``pairs`` is not above 0.
    """

    by_tensor, same_size = True, False

    def __init__(self, pairs, seed=0):
        super().__init__(seed)
        if not pairs > 0:
            raise ValueError(f"pairs={pairs!r}: give the expected number of pairs, above 0")
        self.pairs = pairs

    def compress(self, vector, key=0):
        """Return ((l / p) u, (k n,); v, (k m,)) of the k pairs drawn; (tensor,) if no matrix."""
        sides = matrix_shape(vector.shape)
        if sides is None:
            return (vector.flatten(),)
        matrix = vector.reshape(sides).to(working_type(vector.dtype))
        if not torch.isfinite(matrix).all():  # no decomposition; the other ranks must hear of it
            return tuple(matrix.new_full((side,), torch.nan) for side in sides)
        u, sizes, v = torch.linalg.svd(matrix, full_matrices=False)
        p = probabilities(sizes, self.pairs)
        sent = self.draw(p)
        left = u.mT[sent] * (sizes.double() / p)[sent, None].to(u.dtype)
        return left.flatten(), v[sent].flatten()

    def decompress(self, message, like):
        """Return the sum of the pairs sent."""
        sides = matrix_shape(like.shape)
        if sides is None:
            return message[0].view_as(like)
        left, right = (part.view(-1, side) for part, side in zip(message, sides))
        return (left.T @ right).view_as(like).to(like.dtype)

    def draw(self, p):
        """Return which pairs are sent, (k,) bool: each alone, with its probability."""
        # In float64: float32 has no numbers in [0, 1) that are random below 2**-24.
        generator = self.generator(p.device)
        return torch.rand(p.shape, dtype=p.dtype, device=p.device, generator=generator) < p


def probabilities(sizes, total):
    """Return the probabilities of least variance, (k,) float64.

    Args:
        sizes: (k,), at least 0, the largest first.
        total: their sum, if there are as many sizes above 0; else all of these have 1.
    """
    sizes = sizes.double()
    rest = sizes.flip(0).cumsum(0).flip(0)  # of this one and those after it
    left = total - torch.arange(len(sizes), device=sizes.device)
    # The first that needs no clipping when all before it have 1: so do those after it.
    fits = sizes * left <= rest
    first = int(fits.int().argmax()) if fits.any() else len(sizes)
    p = torch.ones_like(sizes)
    if first < len(sizes):
        share = left[first] / rest[first] if rest[first] > 0 else 0.0
        p[first:] = (sizes[first:] * share).clamp(max=1)  # one rounding above 1
    return p
