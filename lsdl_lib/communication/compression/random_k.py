"""Random-k: send k numbers at random places that all ranks draw alike, so only values travel.

    unbiased   (n/k) rand_k(x)      E = x,   E||(n/k) rand_k(x) - x||^2 = (n/k - 1) ||x||^2
    else       rand_k(x)                     E||rand_k(x) - x||^2 = (1 - k/n) ||x||^2

The ranks' messages are about the same coordinates, so they can be added on the way: an all-reduce
of k values, where top-k gathers p messages of k pairs. But it does not look for the large ones
(Stich et al. 2018; Vogels et al. 2019).

Under :class:`ErrorFeedback` use ``unbiased=False``. Scaled by n/k, a number that is sent leaves an
error of (n/k - 1) times its size behind, which error feedback would add, and scale, again.
"""

import torch

from lsdl_lib.communication.compression.compressor import Compressor
from lsdl_lib.communication.compression.top_k import checked_share, number_kept


class RandomK(Compressor):
    """Keep a random share of the numbers, at least one.

    Args:
        share: k/n, above 0 and at most 1.
        unbiased: scale by n/k.
        seed: of the places; the same on every rank.

    Raises:
        ValueError: another share.
    """

    def __init__(self, share, *, unbiased=True, seed=0):
        self.share, self.unbiased = checked_share(share), unbiased
        # On every rank the same generator, on no device: it draws one number a message.
        self._generator = torch.Generator().manual_seed(seed)

    def compress(self, vector, key=0):
        """Return (seed of the places, (1,) int64; values, (k,)).

        The seed is for who does not draw alike; :meth:`aggregate` sends values only.
        """
        seed = torch.randint(2**31, (1,), generator=self._generator)
        n = vector.numel()
        values = vector[self.places(seed, vector)]
        # 0 x infinity is NaN: a number that is not finite is seen though its place is not drawn.
        values = torch.where(torch.isfinite(vector).all(), values, torch.nan)
        return seed.to(vector.device), values * (n / max(1, values.numel()) if self.unbiased else 1)

    def decompress(self, message, like):
        """Return the sent numbers in their places, (n,), and 0 elsewhere."""
        seed, values = message
        return torch.zeros_like(like).index_put_((self.places(seed, like),), values)

    def aggregate(self, vector, peers, key=0, shapes=None):
        """Average with an all-reduce of the values, k numbers."""
        seed, values = self.compress(vector, key)
        residual = vector - self.decompress((seed, values), vector)
        return self.decompress((seed, peers.mean_(values)), vector), residual

    def places(self, seed, like):
        """Return the k places of n, (k,) int64, that a seed stands for."""
        n = like.numel()
        generator = torch.Generator(like.device).manual_seed(int(seed))
        order = torch.randperm(n, generator=generator, device=like.device)
        return order[: number_kept(self.share, n)]

    def state_dict(self):
        """Return the generator's state."""
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state):
        """Go on with a saved generator's numbers."""
        self._generator.set_state(state["generator"].cpu())
