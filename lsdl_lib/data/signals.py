"""MNIST-1D: ten classes of noisy one-dimensional signals, 40 numbers each, made on this machine.

A template of 12 numbers for each digit is padded, scaled, shifted, sheared and covered with noise.
A small network trains on it in seconds, yet the gaps between methods are large: in the paper a
linear model gets 32 % of it right and a convolutional network 94 %.

Train and test (4,000 and 1,000) are the package's own draw with its own default arguments. It has
no validation split, so that a further draw of 1,000, with another seed, serves: nothing is taken
from the training set. Each draw is scaled by its own mean and deviation, as the package does.

Cost: about 6 s once; then milliseconds, from the cache. Source: Greydanus and Kobak, "Scaling Down
Deep Learning with MNIST-1D", 2024, arXiv:2011.14439.
"""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import torch

from .cache import cached_arrays
from .dataset import Dataset

VALIDATION_SAMPLES = 1000
_SEEDS = 2**31  # NumPy's generator takes seeds below 2**32; the upper half draws validation sets


def mnist1d(seed=42):
    """Return MNIST-1D: 4,000 training, 1,000 validation and 1,000 test signals of shape (1, 40).

    The first call for a seed makes the data in a process of its own (see ``generate_mnist1d``) and
    keeps it in the cache folder. The random state of this process does not change. Ranks that start
    with an empty cache each make the data: call this once before you launch them.

    Args:
        seed: of the draw; 42 is the package's own.

    Returns:
        Dataset: ``train_x`` (4000, 1, 40), ``val_x`` and ``test_x`` (1000, 1, 40), float32.

    Raises:
        ValueError: the seed is not an integer from 0 to 2**31 - 1.
        RuntimeError: the generating process failed; the message holds what it printed.
    """
    if not isinstance(seed, int) or not 0 <= seed < _SEEDS:
        raise ValueError(f"seed is {seed!r}; give an integer from 0 to {_SEEDS - 1}")
    arrays = cached_arrays(
        f"mnist1d-{version('mnist1d')}-seed{seed}.npz", lambda path: _generate(seed, path)
    )
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    for split in ("train", "val", "test"):
        tensors[f"{split}_x"] = tensors[f"{split}_x"].unsqueeze(1)  # (N, 40) -> (N, 1, 40)
    return Dataset(name="MNIST-1D", classes=10, **tensors)


def _generate(seed, path):
    script = Path(__file__).with_name("generate_mnist1d.py")
    numbers = [str(seed), str(seed + _SEEDS), str(VALIDATION_SAMPLES)]
    # -P: a file called random.py in the reader's folder must not stand in for the real one.
    done = subprocess.run(
        [sys.executable, "-P", str(script), *numbers, str(path)],
        env={**os.environ, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"making MNIST-1D failed (exit status {done.returncode}); is the package mnist1d "
            f"installed for {sys.executable}?\n{done.stderr}"
        )
