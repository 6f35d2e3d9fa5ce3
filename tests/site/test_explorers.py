"""Explorers work in the built page, without a kernel and with the keyboard alone."""

import pytest

from tools import toc

pytestmark = pytest.mark.browser

# Pictures and texts of the output that are on screen; the controls' own readout left out.
PICTURE = """(output) => [...output.querySelectorAll("svg, img, .widget-html")]
  .filter((e) => e.getBoundingClientRect().height > 0 && e.checkVisibility())
  .map((e) => e.tagName + (e.outerHTML || "").length + e.outerHTML).join()"""
CONTROLS = "[role=slider], .jupyter-widgets select, .jupyter-widgets input[type=radio]"


def explorers(page):
    """Return the outputs of cells that hold a widget's controls."""
    return page.locator("div.cell_output").filter(has=page.locator(CONTROLS))


@pytest.mark.parametrize("name", toc.chapters())
def test_every_control_moves_its_picture_by_keyboard(visit, name):
    page = visit(name)
    page.wait_for_selector(".jupyter-widgets")
    outputs = explorers(page)
    assert outputs.count(), "the chapter has no explorer"
    for output in outputs.all():
        for control in output.locator(CONTROLS).all():
            before = output.evaluate(PICTURE)
            control.focus()
            assert control.evaluate("e => e === document.activeElement")
            key = "ArrowDown" if control.evaluate("e => e.tagName") == "SELECT" else "ArrowRight"
            page.keyboard.press(key)
            page.wait_for_timeout(300)
            after = output.evaluate(PICTURE)
            assert after != before, f"{key} on {control.evaluate('e => e.outerHTML')[:200]}"
            page.keyboard.press("ArrowUp" if key == "ArrowDown" else "ArrowLeft")
            page.wait_for_timeout(300)
            assert output.evaluate(PICTURE) == before
    assert page.problems == []


@pytest.mark.parametrize("name", toc.chapters())
def test_prediction_shows_its_answer_only_after_a_choice(visit, name):
    page = visit(name)
    boxes = page.locator(".lsdl-predict")
    assert boxes.count(), "the chapter asks for no prediction"
    for box in boxes.all():
        answer = box.locator("details")
        assert not answer.is_visible()
        box.locator("input").first.focus()
        page.keyboard.press("Space")
        assert answer.is_visible()
