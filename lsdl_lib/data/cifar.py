"""CIFAR-10 from its binary version: 60,000 color images, 32 by 32, ten classes.

The book does not download it. You point at the folder with the unpacked ``cifar-10-binary.tar.gz``
(https://www.cs.toronto.edu/~kriz/cifar.html): ``data_batch_1.bin`` to ``data_batch_5.bin`` and
``test_batch.bin``. A record is 3,073 bytes::

    label (1 byte, 0..9) | red 32 x 32 | green 32 x 32 | blue 32 x 32      rows from the top

Cost: 180 MB in memory as bytes, four times that after ``Dataset.standardized``. Source: Krizhevsky,
"Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from pathlib import Path

import numpy as np
import torch

from .dataset import Dataset

RECORD_BYTES = 3073
_TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_TEST_FILE = "test_batch.bin"


def cifar10(folder, validation=5000, *, seed=0, records_per_file=10_000):
    """Read CIFAR-10 from ``folder``, or from ``folder/cifar-10-batches-bin``.

    Args:
        folder: where the six files are.
        validation: images taken from the training files for validation, chosen at random.
        seed: of that choice.
        records_per_file: 10,000 in the real files; a file of another length is refused.

    Returns:
        Dataset: images (N, 3, 32, 32), uint8, red first; 45,000, 5,000 and 10,000 of them.

    Raises:
        FileNotFoundError: the folder or one of the files is missing; the message names it.
        ValueError: a file has the wrong size or a label above 9, or ``validation`` leaves no image
            for training.
    """
    folder = _locate(Path(folder))
    parts = [_read(folder / name, records_per_file) for name in _TRAIN_FILES]
    images = torch.cat([part[0] for part in parts])
    labels = torch.cat([part[1] for part in parts])
    test_x, test_y = _read(folder / _TEST_FILE, records_per_file)
    if not 0 <= validation < len(images):
        raise ValueError(f"validation={validation} must be from 0 to {len(images) - 1}")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    val_rows, train_rows = order[:validation].sort().values, order[validation:].sort().values
    return Dataset(
        name="CIFAR-10",
        classes=10,
        train_x=images[train_rows],
        train_y=labels[train_rows],
        val_x=images[val_rows],
        val_y=labels[val_rows],
        test_x=test_x,
        test_y=test_y,
    )


def _locate(folder):
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder; give the one with CIFAR-10's unpacked binary version"
        )
    inner = folder / "cifar-10-batches-bin"
    folder = inner if inner.is_dir() else folder
    missing = [name for name in (*_TRAIN_FILES, _TEST_FILE) if not (folder / name).is_file()]
    if missing:
        python_version = " It holds the Python version: take the binary one."
        hint = python_version if (folder / "data_batch_1").exists() else ""
        raise FileNotFoundError(
            f"{folder} has no {', '.join(missing)}.{hint} Unpack cifar-10-binary.tar.gz from "
            "https://www.cs.toronto.edu/~kriz/cifar.html and give the folder with its .bin files"
        )
    return folder


def _read(path, records):
    size, wanted = path.stat().st_size, records * RECORD_BYTES
    if size != wanted:
        raise ValueError(
            f"{path} has {size} bytes, not {wanted} ({records} records of {RECORD_BYTES} bytes); "
            "the download or the unpacking was cut short: fetch it again"
        )
    table = np.fromfile(path, dtype=np.uint8).reshape(records, RECORD_BYTES)
    labels = torch.from_numpy(table[:, 0].astype(np.int64))
    if labels.max() > 9:
        record = int((labels > 9).nonzero()[0])
        raise ValueError(f"{path}: record {record} has label {int(labels[record])}, above 9")
    return torch.from_numpy(table[:, 1:].reshape(records, 3, 32, 32)), labels
