"""Data sets that need no network, and samplers that shard them over ranks."""

from .characters import CharacterCorpus, characters, random_windows, windows
from .cifar import cifar10
from .dataset import Dataset
from .handwritten import digits
from .sharding import ShardedBatches, ShardedSampler, epoch_order
from .signals import mnist1d

__all__ = [
    "CharacterCorpus",
    "Dataset",
    "ShardedBatches",
    "ShardedSampler",
    "characters",
    "cifar10",
    "digits",
    "epoch_order",
    "mnist1d",
    "random_windows",
    "windows",
]
