"""The style: contrast on both themes, marks beside colors, and it ends where it should."""

import itertools

import matplotlib
import pytest

from lsdl_lib import show
from lsdl_lib.show.style import COLORS, MATPLOTLIB

LIGHT, DARK = "#ffffff", "#14181e"  # the backgrounds of the book's theme


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", COLORS)
def test_colors_are_seen_on_light_and_dark_pages(name):
    """WCAG 2.1, 1.4.11: graphical objects have a contrast of at least 3."""
    assert contrast(COLORS[name], LIGHT) >= 3
    assert contrast(COLORS[name], DARK) >= 3


def test_no_two_series_differ_by_color_alone():
    cycle = list(MATPLOTLIB["axes.prop_cycle"])
    assert len(cycle) == len(COLORS)
    for one, other in itertools.combinations(cycle, 2):
        assert one["marker"] != other["marker"]
        assert one["linestyle"] != other["linestyle"]


def test_neighbors_differ_in_grey():
    cycle = [entry["color"] for entry in MATPLOTLIB["axes.prop_cycle"]]
    for one, other in itertools.pairwise(cycle[:5]):
        assert contrast(one, other) > 1.3


def test_it_ends_with_the_block():
    before = matplotlib.rcParams["figure.figsize"]
    with show.style():
        assert matplotlib.rcParams["figure.figsize"] == list(MATPLOTLIB["figure.figsize"])
    assert matplotlib.rcParams["figure.figsize"] == before


def test_without_a_block_it_stays():
    with matplotlib.rc_context():
        show.style()
        assert matplotlib.rcParams["axes.grid"] is True
