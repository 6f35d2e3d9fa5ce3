"""Explorers: every combination shows its own picture, by links that a browser follows alone."""

import itertools
import re
import zlib

import ipywidgets as widgets
import matplotlib.pyplot as plt
import numpy as np
import pytest

from lsdl_lib import show


@pytest.fixture
def explore(draw):
    """Explores pictures that differ for every combination."""

    def explore(**arguments):
        def figure(**values):
            return draw(1 + zlib.crc32(repr(values).encode()) % 97)

        return show.explore(figure, runs="gloo, 2 ranks", **arguments)

    return explore


def blank(**values):
    """A figure that is quick to draw."""
    fig = plt.figure()
    fig.text(0.5, 0.5, repr(values))
    return fig


def shown(explorer):
    """Return the HTML that a browser shows now: follow the links, then the stacks."""
    for link in explorer.links:
        (source, index), (target, selected) = link.source, link.target
        setattr(target, selected, getattr(source, index))
    node = explorer.children[2]
    while isinstance(node, widgets.Stack):
        node = node.children[node.selected_index]
    return node.value


def controls(explorer):
    return list(explorer.children[1].children)


def test_every_combination_shows_its_picture(explore):
    parameters = {"ranks": [2, 4, 8], "method": ["ring", "star"], "batch_size": [32, 64]}
    explorer = explore(label="Time", **parameters)
    images = set()
    for chosen in itertools.product(*(range(len(v)) for v in parameters.values())):
        for control, index in zip(controls(explorer), chosen):
            control.index = index
        html = shown(explorer)
        values = [v[i] for v, i in zip(parameters.values(), chosen)]
        setting = "ranks = {}, method = {}, batch size = {}".format(*values)
        assert f'aria-label="Time, {setting}. time, s against ranks; shown: ring, star"' in html
        assert f"{setting}. Run: gloo, 2 ranks</figcaption>" in html
        images.add(re.search(r"<svg.*</svg>", html)[0])
    assert len(images) == 12


def test_a_single_value_needs_no_control(explore):
    explorer = explore(size=[8], ranks=[2, 4], method=["ring"])
    assert [c.description for c in controls(explorer)] == ["ranks"]
    controls(explorer)[0].index = 1
    assert "size = 8, ranks = 4, method = ring. Run: gloo, 2 ranks" in shown(explorer)
    assert "size = 8. Run" in shown(explore(size=[8]))


def test_links_live_in_the_browser(explore):
    """A link of the kernel (``link``, ``observe``) would do nothing in a page without one."""
    explorer = explore(ranks=[2, 4], method=["ring", "star"])
    assert {link._model_name for link in explorer.links} == {"DirectionalLinkModel"}
    stacks = [w for w in widgets_below(explorer) if isinstance(w, widgets.Stack)]
    assert len(stacks) == 3
    assert {id(link.target[0]) for link in explorer.links} == {id(s) for s in stacks}


def widgets_below(widget):
    for child in getattr(widget, "children", ()):
        yield child
        yield from widgets_below(child)


def test_the_largest_parameter_is_innermost():
    explorer = show.explore(blank, runs="r", ranks=list(range(1, 11)), method=["ring", "star"])
    assert len(explorer.links) == 1 + 2


def test_numbers_slide_and_texts_drop_down():
    sizes = {"1 MB": 10**6, "2 MB": 2 * 10**6}
    rates = np.array([0.1, 1e-5])
    explorer = show.explore(
        blank, runs="r", ranks=[2, 4], rate=rates, size=sizes, method=["a", "b"], one=[3]
    )
    kinds = [type(c).__name__ for c in controls(explorer)]
    assert kinds == ["SelectionSlider"] * 3 + ["Dropdown"]
    texts = [c.options for c in controls(explorer)]
    assert texts == [("2", "4"), ("0.1", "1e-05"), ("1 MB", "2 MB"), ("a", "b")]


def test_the_function_gets_the_values_themselves(draw):
    got = []

    def figure(**values):
        got.append(values)
        return draw()

    show.explore(figure, runs="r", size={"1 MB": 10**6}, fast=[True, False])
    assert got == [{"size": 10**6, "fast": True}, {"size": 10**6, "fast": False}]


def test_two_builds_give_the_same_pictures(explore):
    frames = [
        [w.value for w in widgets_below(explore(ranks=[2, 4])) if isinstance(w, widgets.HTML)]
        for _ in "ab"
    ]
    assert frames[0] == frames[1]
    assert len(frames[0]) == 1 + 2


def test_every_picture_names_its_run(draw):
    explorer = show.explore(
        lambda ranks: draw(), runs=lambda ranks: f"gloo, {ranks} ranks", ranks=[2, 4]
    )
    assert "Run: gloo, 2 ranks" in shown(explorer)
    controls(explorer)[0].index = 1
    assert "Run: gloo, 4 ranks" in shown(explorer)


def test_a_picture_without_a_run_is_refused(draw):
    for runs in (None, "", lambda ranks: None):
        with pytest.raises(ValueError, match="the picture of ranks = 2 names no run"):
            show.explore(lambda ranks: draw(), runs=runs, ranks=[2])


def test_an_own_alternative_is_taken(draw):
    explorer = show.explore(lambda ranks: (draw(), f"{ranks} & more"), runs="r", ranks=[2])
    assert 'aria-label="2 &amp; more"' in shown(explorer)


REFUSED = [
    ({}, "needs a parameter"),
    ({"ranks": []}, "ranks has no values"),
    ({"ranks": "24"}, "ranks='24': give a list"),
    ({"ranks": 4}, "ranks=4: give a list"),
    ({"ranks": [2, 2]}, "a value appears twice"),
    ({"a": range(10), "b": range(5)}, r"10 a x 5 b = 50 pictures, at most 40 .* give a at most 8"),
    ({"a": range(7), "b": range(7), "c": range(7)}, "343 pictures.*leave out a parameter"),
]


@pytest.mark.parametrize(("parameters", "says"), REFUSED, ids=[r[1] for r in REFUSED])
def test_what_cannot_be_explored_is_refused(parameters, says):
    def never(**values):
        raise AssertionError("nothing is drawn before the parameters are known to fit")

    with pytest.raises(ValueError, match=says):
        show.explore(never, runs="r", **parameters)


def test_forty_pictures_fit():
    explorer = show.explore(blank, runs="r", a=range(8), b=range(5))
    pictures = [w for w in widgets_below(explorer) if "<svg" in getattr(w, "value", "")]
    assert len(pictures) == 40


def test_only_figures_are_shown():
    with pytest.raises(TypeError, match="returned 3 for ranks = 2"):
        show.explore(lambda ranks: 3, runs="r", ranks=[2])


def test_in_a_terminal_it_is_one_line(explore):
    bundle = explore(label="Time", ranks=[2, 4], method=["ring"])._repr_mimebundle_()
    assert bundle["text/plain"] == "Time; ranks: 2, 4; method: ring; 2 pictures of stored runs"
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_the_label_is_text(explore):
    assert "<b>" not in explore(label="<b>", ranks=[2]).children[0].value
