import random
import sys

import numpy as np
import pytest
import torch

from lsdl_lib import data
from lsdl_lib.data import signals

GENERATE = signals._generate
HEAVY = ("mnist1d", "requests", "matplotlib.pyplot")


def random_states():
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The data made with an empty cache, then read from it; what making it changed here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        before, loaded = random_states(), set(sys.modules)  # other tests may have loaded much
        data.mnist1d()
        effects = {
            "random states kept": random_states() == before,
            "imports": [name for name in HEAVY if name in set(sys.modules) - loaded],
        }
        patch.setattr(signals, "_generate", None)  # from here on, only the cache
        yield data.mnist1d(), effects


# What make_dataset(get_dataset_args()) of mnist1d 0.0.2.post1 returns, called directly: first and
# last labels, start of the first signal, end of the last, mean square of all.
PACKAGE_DRAW = {
    "train": (
        [2, 6, 4, 5, 6, 6, 6, 0, 3, 1, 6, 9],
        [8, 5, 4, 8],
        [-0.332006, -0.471910, -0.778697, -1.009741],
        [-0.813744, -1.216245, -1.464942, -1.650993],
        0.995302,
    ),
    "test": (
        [2, 6, 3, 9, 4, 3, 1, 9, 5, 2, 0, 7],
        [5, 9, 6, 4],
        [-0.078771, -0.210732, -0.091751, 0.282671],
        [0.447233, 0.659876, 0.877734, 1.193152],
        1.018794,
    ),
}


def test_random_state_is_kept_and_no_heavy_import_is_left(made):
    assert made[1] == {"random states kept": True, "imports": []}


@pytest.mark.parametrize("split", PACKAGE_DRAW)
def test_train_and_test_are_the_packages_own_draw(made, split):
    first_labels, last_labels, start, end, mean_square = PACKAGE_DRAW[split]
    x, y = getattr(made[0], f"{split}_x").flatten(1), getattr(made[0], f"{split}_y").tolist()
    assert (y[:12], y[-4:]) == (first_labels, last_labels)
    assert x[0, :4].tolist() == pytest.approx(start, abs=1e-6)
    assert x[-1, -4:].tolist() == pytest.approx(end, abs=1e-6)
    assert x.square().mean().item() == pytest.approx(mean_square, abs=1e-6)


def test_shapes_and_types(made):
    sizes = {"train": 4000, "val": 1000, "test": 1000}
    for split, samples in sizes.items():
        x, y = getattr(made[0], f"{split}_x"), getattr(made[0], f"{split}_y")
        assert (x.shape, x.dtype) == ((samples, 1, 40), torch.float32)
        assert (y.shape, y.dtype) == ((samples,), torch.int64)
        assert y.unique().tolist() == list(range(10))


def test_validation_is_a_fresh_draw_of_the_same_kind(made):
    train, val = made[0].train_x.flatten(1), made[0].val_x.flatten(1)
    assert torch.cdist(val, train).min() > 1e-2  # no sample is in both
    assert made[0].val_y.bincount().tolist() == [100] * 10
    means = torch.stack([made[0].train_x[made[0].train_y == label].mean(0) for label in range(10)])
    others = torch.stack([made[0].val_x[made[0].val_y == label].mean(0) for label in range(10)])
    assert (means - others).abs().max() < 0.4
    assert means.abs().max() > 0.4


@pytest.mark.parametrize("seed", [-1, 2**31, 1.5, "42"])
def test_seed_out_of_range(seed):
    with pytest.raises(ValueError, match=f"seed is {seed!r}"):
        data.mnist1d(seed)


def test_failing_generator_names_the_interpreter(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(signals, "_generate", GENERATE)
    monkeypatch.setattr(signals, "VALIDATION_SAMPLES", "many")
    with pytest.raises(RuntimeError, match=r"(?s)exit status 1.*mnist1d installed.*'many'"):
        data.mnist1d()
