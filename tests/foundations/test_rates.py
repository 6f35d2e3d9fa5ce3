"""Measured rates: the right count over the right time. Times are fed in, so nothing is slow."""

import pytest
import torch

from lsdl_lib.foundations import bandwidths, peak, rates
from lsdl_lib.launch import device
from lsdl_lib.measure import Timing


@pytest.fixture
def half_a_second(monkeypatch):
    """The best of every timed run takes half a second; the runs themselves are kept."""
    runs = []

    def wall(fn, *, repeats, device):
        runs.append((fn, repeats, device))
        return Timing(0.7, 0.5, 0.9, (0.9, 0.5, 0.7))

    monkeypatch.setattr(rates, "wall", wall)
    return runs


def test_peak_counts_two_flops_a_multiply_add(half_a_second):
    assert peak((8, 100), repeats=3) == {8: 2 * 8**3 / 0.5, 100: 2 * 100**3 / 0.5}
    assert [(repeats, place) for _, repeats, place in half_a_second] == [(3, device())] * 2


def test_peak_multiplies_matrices_of_the_dtype(half_a_second):
    peak((6,), dtype=torch.bfloat16)
    seen = []
    original = torch.mm
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "mm", lambda a, b, out: seen.append((a, b, original(a, b, out=out))))
        half_a_second[0][0]()
    ((a, b, out),) = seen
    assert a.shape == b.shape == out.shape == (6, 6)
    assert a.dtype == out.dtype == torch.bfloat16


@pytest.mark.parametrize(("kernel", "arrays"), [("copy", 2), ("triad", 3)])
def test_bandwidth_counts_each_array_once(half_a_second, kernel, arrays):
    size = rates.LEAST_BYTES  # already more than the least: the kernel runs once
    assert bandwidths([size], kernel) == {size: arrays * size / 0.5}


@pytest.mark.parametrize(("kernel", "arrays"), [("copy", 2), ("triad", 3)])
def test_small_arrays_are_passed_over_many_times(half_a_second, kernel, arrays):
    size = 4096
    times = rates.LEAST_BYTES // (arrays * size)
    assert bandwidths([size], kernel) == {size: times * arrays * size / 0.5}
    calls = []
    name = {"copy": "copy_", "triad": "add"}[kernel]
    owner = torch.Tensor if kernel == "copy" else torch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, lambda *args, **kwargs: calls.append(kwargs))
        half_a_second[0][0]()
    assert len(calls) == times


def test_a_size_between_two_elements_counts_whole_elements(half_a_second):
    (rate,) = bandwidths([4 * rates.LEAST_BYTES + 3], "copy").values()
    assert rate == 2 * 4 * rates.LEAST_BYTES / 0.5


def test_triad_is_b_plus_3_c(half_a_second):
    run = rates._repeated("triad", 5, 1, device())
    added = []
    original = torch.add
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "add", lambda *a, **k: added.append(original(*a, **k)))
        run()
    assert added[0].tolist() == [11.0] * 5  # 2 + 3 * 3


def test_a_real_measurement_is_a_rate_of_this_machine():
    (flop_s,) = peak((64,), repeats=3).values()
    (byte_s,) = bandwidths([2**16], "copy", repeats=3).values()
    assert 1e6 < flop_s < 1e16  # from a very busy core to a very fast GPU
    assert 1e6 < byte_s < 1e14


def test_values_that_make_no_sense_are_named():
    with pytest.raises(ValueError, match="kernel='scale'"):
        bandwidths([2**20], "scale")
    with pytest.raises(ValueError, match=r"sizes=\[3\]"):
        bandwidths([3])
    with pytest.raises(ValueError, match=r"sizes=\(0,\)"):
        peak((0,))
