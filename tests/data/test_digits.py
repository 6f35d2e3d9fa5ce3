import pytest
import torch
from sklearn.datasets import load_digits

from lsdl_lib import data


def rows(x):
    return [tuple(row) for row in x.flatten(1).tolist()]


def test_every_sample_is_in_exactly_one_split():
    digits = data.digits()
    ours = sorted(
        (row, label)
        for split in ("train", "val", "test")
        for row, label in zip(
            rows(getattr(digits, f"{split}_x")), getattr(digits, f"{split}_y").tolist()
        )
    )
    bunch = load_digits()
    assert ours == sorted(zip(rows(torch.tensor(bunch.images) / 16), bunch.target.tolist()))


@pytest.mark.parametrize(("validation", "test"), [(300, 300), (17, 0), (0, 450), (500, 1000)])
def test_sizes_and_stratification(validation, test):
    digits = data.digits(validation, test)
    total = torch.bincount(torch.cat([digits.train_y, digits.val_y, digits.test_y])).double()
    for split, size in (("val", validation), ("test", test), ("train", 1797 - validation - test)):
        x, y = getattr(digits, f"{split}_x"), getattr(digits, f"{split}_y")
        assert x.shape == (size, 1, 8, 8)
        assert (y.bincount(minlength=10) - total * size / 1797).abs().max() <= 1.5


def test_the_seed_decides_the_split():
    first, again, other = data.digits(seed=3), data.digits(seed=3), data.digits(seed=4)
    assert torch.equal(first.test_x, again.test_x)
    assert not torch.equal(first.test_x, other.test_x)


def test_values():
    digits = data.digits()
    assert digits.train_x.dtype == torch.float32
    assert (digits.train_x.min(), digits.train_x.max()) == (0, 1)
    assert digits.train_y.dtype == torch.int64


@pytest.mark.parametrize(("validation", "test"), [(-1, 10), (10, -1), (1000, 797)])
def test_sizes_that_do_not_fit(validation, test):
    with pytest.raises(ValueError, match=f"validation={validation} and test={test}"):
        data.digits(validation, test)


def test_global_random_state_is_kept():
    before = torch.get_rng_state()
    data.digits()
    assert torch.equal(before, torch.get_rng_state())
