"""Sharing the samples of an epoch among ranks, so that p ranks train on exactly what one would.

All ranks compute the same seeded order of the N samples; epoch e of seed s has its own. Rank r of p
takes every p-th sample of it::

    order = permutation(N; s, e)        rank r: order[r], order[r + p], order[r + 2p], ...

Conserved: over the ranks, every sample occurs exactly once an epoch, for any N and p. Nothing is
padded, so that shards may differ in length by one sample. (torch's ``DistributedSampler`` repeats
samples to make the shards equal, and counts them twice.)

Invariant: with a global batch of G samples and p dividing G, the k-th batches of the ranks make up
``order[kG : (k + 1)G]`` - the same global batch at any p. This is why data-parallel training equals
training in a single process.
"""

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import Sampler


def epoch_order(samples, *, seed, epoch, shuffle=True):
    """Return the order of all samples in one epoch, (samples,), int64; the same on every rank.

    The pair (seed, epoch) is hashed, so that epoch 1 of seed 0 is not epoch 0 of seed 1.
    """
    if not shuffle:
        return torch.arange(samples)
    return torch.from_numpy(np.random.default_rng([seed, epoch]).permutation(samples))


class ShardedSampler(Sampler):
    """This rank's samples, one index at a time, for ``torch.utils.data.DataLoader``.

    With ``DataLoader(batch_size=G // ranks)`` the ranks' k-th batches are the k-th global batch.

    Args:
        samples: N, the length of the data set.
        rank: of the caller; left out, that of the default process group (0 without one).
        ranks: that share the samples; left out, the size of that group (1 without one).
        seed: of all orders.
        shuffle: ``False`` keeps the samples in their own order.
        drop_uneven: leave out the last ``N % ranks`` samples of the order, so that all ranks have
            the same number. Which they are differs from epoch to epoch.

    Raises:
        ValueError: negative samples or seed, no ranks, or a rank outside ``0 .. ranks - 1``.
    """

    def __init__(self, samples, *, rank=None, ranks=None, seed=0, shuffle=True, drop_uneven=False):
        self.rank, self.ranks = _place(rank, ranks)
        self.samples, self.seed = _count("samples", samples), _count("seed", seed)
        self.shuffle, self.drop_uneven = shuffle, drop_uneven
        self.epoch = 0

    def set_epoch(self, epoch):
        """Choose the order of epoch ``epoch``. Call it on every rank before each epoch."""
        self.epoch = _count("epoch", epoch)

    def indices(self):
        """Return this rank's samples of the current epoch, (len(self),), int64."""
        order = epoch_order(self.samples, seed=self.seed, epoch=self.epoch, shuffle=self.shuffle)
        return order[self.rank :: self.ranks][: len(self)]

    def __iter__(self):
        return iter(self.indices().tolist())

    def __len__(self):
        if self.drop_uneven:
            return self.samples // self.ranks
        return (self.samples - self.rank + self.ranks - 1) // self.ranks


class ShardedBatches:
    """This rank's share of each global batch, as index tensors.

    ``for rows in batches: loss = f(x[rows], y[rows])``. Every rank yields the same number of
    batches. The last global batch is short where G does not divide N: shares then differ by one
    sample and may be empty. With such a batch the mean of the ranks' mean losses is not the mean
    loss; sum the losses and divide by ``global_size(k)``, or leave it out with ``drop_last``.

    Args:
        samples: N, the length of the data set.
        global_batch: G, samples a step over all ranks.
        rank: as in ``ShardedSampler``.
        ranks: as in ``ShardedSampler``.
        seed: of all orders.
        shuffle: ``False`` keeps the samples in their own order.
        drop_last: leave out a last, short global batch.

    Raises:
        ValueError: the ranks do not divide the global batch, or as in ``ShardedSampler``.
    """

    def __init__(
        self,
        samples,
        global_batch,
        *,
        rank=None,
        ranks=None,
        seed=0,
        shuffle=True,
        drop_last=False,
    ):
        self.sampler = ShardedSampler(samples, rank=rank, ranks=ranks, seed=seed, shuffle=shuffle)
        ranks = self.sampler.ranks
        if global_batch < 1 or global_batch % ranks:
            nearest = max(1, round(global_batch / ranks)) * ranks
            raise ValueError(
                f"global_batch={global_batch} is not a multiple of ranks={ranks}; take {nearest}"
            )
        self.global_batch, self.drop_last = global_batch, drop_last

    def set_epoch(self, epoch):
        """Choose the order of epoch ``epoch``. Call it on every rank before each epoch."""
        self.sampler.set_epoch(epoch)

    def global_size(self, k):
        """Return the number of samples of the k-th global batch: G, or what is left at the end."""
        if not 0 <= k < len(self):
            raise ValueError(f"there is no batch {k}; an epoch has {len(self)}")
        return min(self.global_batch, self.sampler.samples - k * self.global_batch)

    def __iter__(self):
        share = self.global_batch // self.sampler.ranks
        rows = self.sampler.indices()
        for k in range(len(self)):
            yield rows[k * share : (k + 1) * share]  # (share,), int64; shorter only in the last

    def __len__(self):
        whole, rest = divmod(self.sampler.samples, self.global_batch)
        return whole + (rest > 0 and not self.drop_last)


def _place(rank, ranks):
    grouped = dist.is_available() and dist.is_initialized()
    if ranks is None:
        ranks = dist.get_world_size() if grouped else 1
    if rank is None:
        rank = dist.get_rank() if grouped else 0
    if ranks < 1 or not 0 <= rank < ranks:
        raise ValueError(f"rank={rank} of ranks={ranks}: ranks are numbered 0 .. ranks - 1")
    return rank, ranks


def _count(name, value):
    if value < 0:
        raise ValueError(f"{name}={value} is negative")
    return value
