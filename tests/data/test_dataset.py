import pytest
import torch

from lsdl_lib.data import Dataset


def dataset(**changes):
    parts = {}
    for place, split in enumerate(("train", "val", "test")):
        samples = 6 - place
        parts[f"{split}_x"] = torch.arange(samples * 8.0).view(samples, 2, 4) * (place + 1)
        parts[f"{split}_y"] = torch.arange(samples) % 3
    return Dataset(**{"name": "numbers", "classes": 3, **parts, **changes})


def test_standardized_uses_training_statistics_of_each_channel():
    raw = dataset()
    scaled = raw.standardized()
    for channel in range(2):
        train = raw.train_x[:, channel].numpy()
        for split in ("train", "val", "test"):
            before = getattr(raw, f"{split}_x")[:, channel].numpy()
            after = getattr(scaled, f"{split}_x")[:, channel].numpy()
            assert after == pytest.approx((before - train.mean()) / train.std(), abs=1e-6)
    assert scaled.train_x.mean(dim=(0, 2)).tolist() == pytest.approx([0, 0], abs=1e-6)
    assert scaled.train_x.std(dim=(0, 2), correction=0).tolist() == pytest.approx([1, 1])
    assert scaled.train_y is raw.train_y


def test_standardized_leaves_the_original_alone():
    raw = dataset()
    raw.standardized()
    assert torch.equal(raw.train_x, dataset().train_x)


def test_standardized_bytes_become_float32():
    raw = dataset(train_x=torch.arange(48, dtype=torch.uint8).view(6, 2, 4))
    assert raw.standardized().train_x.dtype == torch.float32


def test_standardized_keeps_float64():
    raw = dataset().to(dtype=torch.float64)
    assert raw.standardized().val_x.dtype == torch.float64


def test_constant_channel_is_only_centred():
    x = dataset().train_x.clone()
    x[:, 1] = 3.0
    scaled = dataset(train_x=x).standardized()
    assert torch.equal(scaled.train_x[:, 1], torch.zeros(6, 4))
    assert torch.equal(scaled.val_x[:, 1], dataset().val_x[:, 1] - 3.0)


def test_to_casts_samples_only():
    moved = dataset().to(dtype=torch.float64)
    assert moved.test_x.dtype == torch.float64
    assert moved.test_y.dtype == torch.int64


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="val_x has 5 samples, val_y 2"):
        dataset(val_y=torch.arange(2))
