"""Figures as SVG: the same bytes, nothing leaks into the page, cleaning drops no mark."""

import re
import xml.etree.ElementTree as ET

import matplotlib.pyplot as plt
import numpy as np
import pytest

from lsdl_lib.show import style
from lsdl_lib.show.svg import _rendered, svg


def test_two_builds_give_the_same_bytes(draw):
    assert svg(draw(), "a") == svg(draw(), "a")
    assert svg(draw(2.0), "a") != svg(draw(), "a")


def test_nothing_of_the_machine_is_inside(draw):
    text = svg(draw(), "a")
    for piece in ("metadata", "matplotlib", "<style", "<?xml", "DOCTYPE", "xmlns"):
        assert piece not in text
    assert not re.search(r"20\d\d-\d\d-\d\d", text)


def test_it_is_an_image_with_a_text_alternative(draw):
    root = ET.fromstring(svg(draw(), 'ring < star & "more"\n two'))
    assert root.get("role") == "img"
    assert root.get("aria-label") == 'ring < star & "more" two'


@pytest.mark.parametrize("alt", ["", "  \n"])
def test_an_empty_alternative_is_refused(draw, alt):
    fig = draw()
    with pytest.raises(ValueError, match="alt is empty"):
        svg(fig, alt)
    plt.close(fig)


def test_only_figures_are_drawn():
    with pytest.raises(TypeError, match="'a picture' is no matplotlib Figure"):
        svg("a picture", "a")


def test_letters_stay_letters_and_black_is_the_text_color(draw):
    root = ET.fromstring(svg(draw(), "a"))
    texts = ["".join(e.itertext()) for e in root.iter("text")]
    assert {"ranks", "time, s", "ring", "star"} <= set(texts)
    assert "fill:currentColor" in root.get("style")
    assert "#000000" not in svg(draw(), "a")
    fig, ax = plt.subplots()
    ax.plot([1, 2], [1, 2], color="black")
    assert "stroke:currentColor" in svg(fig, "a")


def test_there_is_no_background():
    fig, ax = plt.subplots()
    ax.plot([1, 2])
    assert "#ffffff" not in svg(fig, "a")


def test_it_shrinks_with_the_page(draw):
    root = ET.fromstring(svg(draw(), "a"))
    assert "width:100%" in root.get("style")
    assert "height:auto" in root.get("style")
    assert root.get("width") is None
    assert len(root.get("viewBox").split()) == 4


def test_identifiers_of_two_pictures_differ_and_all_exist(draw):
    seen = []
    for scale in (1.0, 2.0):
        text = svg(draw(scale), "a")
        own = re.findall(r' id="([^"]+)"', text)
        assert len(own) == len(set(own)) > 0
        assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text)) == set(own)
        seen.append(set(own))
    assert seen[0].isdisjoint(seen[1])


def test_cleaning_keeps_every_mark():
    """Each tick, marker, line and letter of matplotlib's own file is still there, in its order."""
    fig, ax = plt.subplots()
    ax.loglog(np.logspace(0, 3, 9), np.logspace(1, 2, 9), "o-")
    ax.fill_between([1, 10], [20, 30], [30, 50], alpha=0.5)
    ax.text(10, 40, "half\nway", alpha=0.5)
    raw = ET.fromstring(_rendered(fig))
    plain = "{http://www.w3.org/2000/svg}"

    def marks(root, prefix):
        found = []
        for element in root.iter():
            tag = element.tag.removeprefix(prefix)
            if tag in ("use", "path", "text", "tspan", "rect", "image"):
                invisible = (element.get("style") or "").replace(" ", "") == "fill:none"
                if not invisible:
                    found.append((tag, (element.text or "").strip()))
        return found

    clean = ET.fromstring(svg(fig, "a"))
    assert marks(clean, "") == marks(raw, plain)
    assert len(marks(raw, plain)) > 50


def test_transparent_neighbors_are_not_put_into_one_group():
    fig, ax = plt.subplots()
    ax.plot([1, 2], [1, 2], color="red", alpha=0.5)
    ax.plot([2, 1], [1, 2], color="red", alpha=0.5)
    root = ET.fromstring(svg(fig, "a"))
    assert not [g for g in root.iter("g") if re.search(r"(^|;)opacity", g.get("style") or "")]


def test_pictures_are_small():
    with style():
        fig, ax = plt.subplots()
        x = np.logspace(0, 6, 20)
        for power in (0.5, 0.6, 0.7, 0.8):
            ax.loglog(x, x**power, label=f"power {power}")
        ax.set(xlabel="message, bytes", ylabel="time, s")
        ax.legend()
        assert len(svg(fig, "a")) < 25_000


def test_the_figure_is_closed(draw):
    svg(draw(), "a")
    assert plt.get_fignums() == []
