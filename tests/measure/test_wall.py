import time

import numpy as np
import pytest
import torch

from lsdl_lib.measure import Timing, median_interval, wall


def test_warm_up_runs_do_not_count():
    pauses = iter([0.05, 0.05, 0.002, 0.002, 0.002, 0.002, 0.002, 0.002, 0.002])
    timing = wall(lambda: time.sleep(next(pauses)), repeats=7, warmup=2)
    assert len(timing.samples) == 7
    assert 0.002 <= timing.low <= timing.median <= timing.high
    assert timing.median < 0.04
    assert list(pauses) == []


def test_one_slow_run_does_not_move_the_median():
    pauses = iter([0.002] * 5 + [0.1] + [0.002] * 5)
    timing = wall(lambda: time.sleep(next(pauses)), repeats=11, warmup=0)
    assert max(timing.samples) > 0.09
    assert timing.median < 0.05


def test_a_gpu_is_synchronized_before_and_after_each_run(monkeypatch):
    events = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: events.append("synchronize"))
    wall(lambda: events.append("run"), repeats=2, warmup=1, device="cuda")
    assert events == ["run"] * 1 + ["synchronize", "run", "synchronize"] * 2


def test_repr_has_units():
    timing = Timing(0.0123, 0.0121, 0.0130, (0.0121, 0.0123, 0.0130))
    assert repr(timing) == (
        "Timing(12.3 ms, 95 % interval of the median 12.1 ms to 13.0 ms, 3 runs)"
    )


@pytest.mark.parametrize(("repeats", "warmup", "word"), [(0, 0, "repeats"), (3, -1, "warmup")])
def test_wrong_numbers_are_named(repeats, warmup, word):
    with pytest.raises(ValueError, match=word):
        wall(lambda: None, repeats=repeats, warmup=warmup)


@pytest.mark.parametrize(
    ("n", "k"),  # largest k with 2 P(B < k) <= 0.05, B binomial(n, 1/2); tables of the sign test
    [(6, 1), (9, 2), (10, 2), (15, 4), (20, 6), (25, 8), (30, 10), (50, 18)],
)
def test_interval_is_the_sign_test_s(n, k):
    assert median_interval(list(range(1, n + 1))) == (k, n + 1 - k)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_too_few_samples_give_the_whole_range(n):
    assert median_interval(list(range(n))) == (0, n - 1)


@pytest.mark.parametrize("n", [7, 30])
def test_interval_covers_the_median_of_a_skewed_distribution(n):
    draws = np.random.default_rng(0).lognormal(sigma=2.0, size=(4000, n))  # median 1
    inside = [low <= 1 <= high for low, high in map(median_interval, draws)]
    # at least 95 %, less three standard errors; and not everything, or it would tell nothing
    assert 0.95 - 3 * 0.0035 < np.mean(inside) < 0.995
