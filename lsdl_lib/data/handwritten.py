"""scikit-learn's digits: 1,797 real handwritten digits, 8 by 8 pixels, shipped with the package.

Splits are stratified: with n_c samples of class c in random order, the k-th gets the key
(k + 1/2) / n_c, and the samples sorted by key are cut into test, validation and training set. Each
split then holds every class in proportion, to within one sample or so.

All writers are in all splits (scikit-learn's copy does not say who wrote what), so that the test
error is that of known writers. Source: Alpaydin and Kaynak, UCI "Optical Recognition of Handwritten
Digits", 1998.
"""

import torch

from .dataset import Dataset


def digits(validation=300, test=300, *, seed=0):
    """Return the digits, pixels scaled from 0..16 to 0..1.

    Args:
        validation: number of validation samples.
        test: number of test samples; the rest of the 1,797 is for training.
        seed: of the split. The same numbers and seed give the same split.

    Returns:
        Dataset: samples (N, 1, 8, 8), float32.

    Raises:
        ValueError: the two sizes are negative or leave no sample for training.
    """
    from sklearn.datasets import load_digits  # a second of imports, only for those who ask

    bunch = load_digits()
    x = torch.from_numpy(bunch.images).float().div_(16).unsqueeze(1)  # (1797, 1, 8, 8)
    y = torch.from_numpy(bunch.target).long()  # (1797,)
    if validation < 0 or test < 0 or validation + test >= len(x):
        raise ValueError(
            f"validation={validation} and test={test} must be at least 0 and leave some of the "
            f"{len(x)} samples for training"
        )
    order = _stratified_order(y, seed)
    test_rows, val_rows, train_rows = order.split([test, validation, len(x) - test - validation])
    return Dataset(
        name="digits",
        classes=10,
        train_x=x[train_rows],
        train_y=y[train_rows],
        val_x=x[val_rows],
        val_y=y[val_rows],
        test_x=x[test_rows],
        test_y=y[test_rows],
    )


def _stratified_order(labels, seed):
    """Return a seeded order of all samples; every prefix holds the classes in proportion."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.empty(len(labels), dtype=torch.float64)
    for label in labels.unique():
        rows = (labels == label).nonzero().squeeze(1)
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        keys[shuffled] = (torch.arange(len(rows), dtype=torch.float64) + 0.5) / len(rows)
    return keys.argsort(stable=True)
