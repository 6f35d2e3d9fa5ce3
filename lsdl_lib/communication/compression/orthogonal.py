"""Orthonormal vectors that span what some given vectors span, for many matrices at once.

Gram-Schmidt takes from each vector its part along those before it and divides by what is left. Of
dependent vectors only rounding errors are left, and those are not orthogonal to anything. Low-rank
gradients are dependent soon: a projection on such "orthonormal" vectors counts a direction twice.
So the vectors are orthogonalized by reflections (Householder 1958), which cannot fail. In few
columns that is also faster here than Gram-Schmidt's many small steps.
"""

import torch


def orthogonalize(vectors, generator):
    """Make vectors orthonormal, in place.

    A vector of zeros says nothing of where to look. A random one takes its place, so that the
    span has all its dimensions. Vectors that are dependent otherwise are completed by the
    reflections themselves.

    Args:
        vectors: (matrices, r, n), finite, r at most n; each (r, n) block holds r vectors.
        generator: for the random vectors, in the same state on every rank; on their device.
    """
    zero = vectors.abs().amax(dim=-1, keepdim=True) == 0
    if zero.any():
        like = {"dtype": vectors.dtype, "device": vectors.device, "generator": generator}
        torch.where(zero, torch.randn(vectors.shape, **like), vectors, out=vectors)
    vectors.copy_(torch.linalg.qr(vectors.mT).Q.mT)
