"""Script: write one draw of MNIST-1D to an ``.npz`` file.

It runs as a process of its own because the package ``mnist1d`` seeds the global generators of NumPy
and ``random``, and imports ``requests`` and ``matplotlib.pyplot``, which a training process should
not carry. It asks for the package's own generator; nothing is downloaded.

Usage: ``python generate_mnist1d.py SEED VALIDATION_SEED VALIDATION_SAMPLES OUT.npz``
"""

import sys

import numpy as np


def generate(seed, validation_seed, validation_samples):
    """Return the arrays of one draw: the package's default arguments, plus a validation draw.

    Returns:
        dict: ``train_x`` (4000, 40), ``test_x`` (1000, 40) and ``val_x`` (validation_samples, 40),
        float32; ``train_y``, ``test_y`` and ``val_y``, int64.
    """
    from mnist1d.data import get_dataset_args, make_dataset

    arguments = get_dataset_args()
    arguments.seed = seed
    draw = make_dataset(arguments)
    arguments.seed, arguments.num_samples = validation_seed, validation_samples
    arguments.train_split = 1.0
    fresh = make_dataset(arguments)
    return {
        "train_x": draw["x"].astype(np.float32),
        "train_y": draw["y"].astype(np.int64),
        "val_x": fresh["x"].astype(np.float32),
        "val_y": fresh["y"].astype(np.int64),
        "test_x": draw["x_test"].astype(np.float32),
        "test_y": draw["y_test"].astype(np.int64),
    }


if __name__ == "__main__":
    *numbers, out = sys.argv[1:]
    np.savez(out, **generate(*map(int, numbers)))
