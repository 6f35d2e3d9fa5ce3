import pytest

from lsdl_lib.measure import format_bytes, format_capacity, format_rate, format_seconds


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (1500000, "1.50 MB"),
        (999_600, "1.00 MB"),
        (44_695_848, "44.7 MB"),
        (2.5e9, "2.50 GB"),
        (-1500, "-1.50 kB"),
        (0.5, "0.50 B"),
    ],
)
def test_traffic_is_decimal(number, text):
    assert format_bytes(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1000, "1000 B"),
        (1024, "1.00 KiB"),
        (1536 * 2**20, "1.50 GiB"),
        (80 * 2**30, "80.0 GiB"),
        (1023.7 * 2**20, "1.00 GiB"),
        (3 * 2**60, "3072 PiB"),
    ],
)
def test_capacity_is_binary(number, text):
    assert format_capacity(number) == text


def test_rate_counts_bits():
    assert format_rate(8 * 1.25e9) == "10.0 Gbit/s"
    assert format_rate(100e6) == "100 Mbit/s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1.234, "1.23 s"),
        (0.00123, "1.23 ms"),
        (45e-6, "45.0 us"),
        (3e-9, "3.00 ns"),
        (59.9, "59.9 s"),
        (59.99, "1 min 00 s"),
        (125, "2 min 05 s"),
        (-0.5, "-500 ms"),
        (2e-12, "0.00 ns"),
    ],
)
def test_seconds(seconds, text):
    assert format_seconds(seconds) == text
