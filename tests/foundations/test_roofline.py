"""The roofline at its ridge point, on both sides of it, and at its ends."""

import pytest

from lsdl_lib.foundations import Roofline, Work, operations

ROOF = Roofline(peak_flop_s=120e9, bandwidth_byte_s=15e9)


def test_slope_and_roof_meet_at_the_ridge_point():
    assert ROOF.ridge == 8
    assert ROOF.attainable(8) == 120e9
    assert ROOF.attainable(4) == 60e9
    assert ROOF.attainable(16) == 120e9
    assert ROOF.attainable(0) == 0


@pytest.mark.parametrize(
    ("intensity", "name"), [(0, "memory"), (7.999, "memory"), (8, "compute"), (100, "compute")]
)
def test_the_bottleneck_changes_at_the_ridge_point(intensity, name):
    assert ROOF.bottleneck(intensity) == name


@pytest.mark.parametrize(
    ("flops", "n_bytes", "seconds"),
    [
        (240e9, 15e9, 2.0),  # 16 FLOP/byte: computing takes 2 s, moving 1 s
        (120e9, 60e9, 4.0),  # 2 FLOP/byte: moving takes 4 s
        (120e9, 15e9, 1.0),  # at the ridge point both take 1 s
        (0, 30e9, 2.0),  # a copy
    ],
)
def test_time_is_that_of_the_slower_of_the_two(flops, n_bytes, seconds):
    assert ROOF.seconds(Work(flops, n_bytes)) == seconds


@pytest.mark.parametrize("intensity", [0.25, 8, 100])
def test_time_and_attainable_rate_agree(intensity):
    work = Work(flops=intensity * 1e9, n_bytes=1e9)
    assert ROOF.seconds(work) == pytest.approx(work.flops / ROOF.attainable(work.intensity))


def test_the_roofline_of_2009():
    """Williams et al. 2009, figure 1a: two dual-core Opterons, 17.6 GFLOP/s and 15 GB/s."""
    opteron = Roofline(17.6e9, 15e9)
    assert opteron.ridge == pytest.approx(1.17, abs=0.01)
    assert opteron.bottleneck(operations.triad(10**6, element=8).intensity) == "memory"
    assert opteron.bottleneck(operations.matmul(512, 512, 512, element=8).intensity) == "compute"


@pytest.mark.parametrize("name", ["peak_flop_s", "bandwidth_byte_s"])
@pytest.mark.parametrize("value", [0, -2.5, float("nan")])
def test_a_rate_that_is_not_above_0_is_named(name, value):
    numbers = {"peak_flop_s": 1.0, "bandwidth_byte_s": 1.0, name: value}
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        Roofline(**numbers)
