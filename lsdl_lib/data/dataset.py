"""A labeled data set in memory, in three splits: one to fit, one to choose, one to report.

Standardizing uses the training split's own statistics, one pair for each channel c::

    x'[n, c, ...] = (x[n, c, ...] - mean_c) / std_c

so that nothing of the other two splits leaks into training.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

_SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and labels of three disjoint splits.

    Shapes, with N samples in a split and C channels: images are ``(N, C, height, width)``, signals
    ``(N, C, length)``; labels are ``(N,)``, int64, in ``0 .. classes - 1``. Samples are float32,
    except CIFAR-10's raw bytes, which stay uint8 until ``standardized``.

    Tune on ``val_x``, ``val_y``. Read ``test_x``, ``test_y`` once, at the end.

    Raises:
        ValueError: a split has more samples than labels, or fewer.
    """

    name: str
    classes: int
    train_x: Tensor
    train_y: Tensor
    val_x: Tensor
    val_y: Tensor
    test_x: Tensor
    test_y: Tensor

    def __post_init__(self):
        for split in _SPLITS:
            x, y = getattr(self, f"{split}_x"), getattr(self, f"{split}_y")
            if len(x) != len(y):
                raise ValueError(f"{self.name}: {split}_x has {len(x)} samples, {split}_y {len(y)}")

    def standardized(self):
        """Return a copy whose training channels have mean 0 and standard deviation 1.

        The same affine map is applied to all three splits. A channel that is constant in the
        training split is only centred. Byte samples become float32.
        """
        x = self.train_x if self.train_x.is_floating_point() else self.train_x.float()
        others = [axis for axis in range(x.dim()) if axis != 1]
        variance, mean = torch.var_mean(x, dim=others, correction=0, keepdim=True)
        std = torch.where(variance > 0, variance.sqrt(), 1.0)

        def scaled(samples):
            # One fresh tensor, then in place: 50,000 CIFAR images are 600 MB as float32.
            return samples.to(x.dtype, copy=True).sub_(mean).div_(std)

        names = [f"{split}_x" for split in _SPLITS]
        return replace(self, **{name: scaled(getattr(self, name)) for name in names})

    def to(self, device=None, dtype=None):
        """Return a copy on ``device``, with the samples (never the labels) as ``dtype``."""
        moved = {}
        for split in _SPLITS:
            moved[f"{split}_x"] = getattr(self, f"{split}_x").to(device=device, dtype=dtype)
            moved[f"{split}_y"] = getattr(self, f"{split}_y").to(device=device)
        return replace(self, **moved)
