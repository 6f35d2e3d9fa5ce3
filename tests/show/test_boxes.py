"""Static figures, tables of results and prediction boxes."""

import re

import matplotlib.pyplot as plt
import pytest

from lsdl_lib import show


def test_a_figure_has_its_alternative_and_caption(draw):
    picture = show.figure(draw(), alt="Two lines < cross", caption="gloo & 2 ranks")
    html = picture._repr_html_()
    assert 'role="img" aria-label="Two lines &lt; cross"' in html
    assert re.search(
        r"<figure.*<svg.*</svg><figcaption[^>]*>gloo &amp; 2 ranks</figcaption></figure>", html
    )
    assert repr(picture) == "Figure: Two lines < cross (gloo & 2 ranks)"


def test_a_figure_needs_its_alternative(draw):
    with pytest.raises(TypeError, match="alt"):
        show.figure(draw)
    fig = draw()
    with pytest.raises(ValueError, match="alt is empty"):
        show.figure(fig, alt=" ")
    plt.close(fig)


def test_results_are_compared():
    table = show.compare(
        [["ring", 2.0, 1.9]], ["method", "the paper, s", "ours, s"], caption="Time"
    )
    assert repr(table).splitlines()[-1] == "ring               2      1.9"
    assert "<caption>Time</caption>" in table._repr_html_()


def predict(**changes):
    given = {"question": "How many bytes does `p` send of $n$?", "choices": ["n", "2n < 3n"]}
    return show.predict(**given | {"answer": "n", "why": "Because."} | changes)


def test_a_prediction_hides_its_answer_until_one_is_chosen():
    html = predict()._repr_html_()
    assert html.count('<input type="radio"') == 2
    assert len(set(re.findall(r'name="([^"]+)"', html))) == 1
    assert ".lsdl-predict details{display:none" in html
    assert "div:has(input:checked)~details{display:block}" in html
    assert html.index("<input") < html.index("<details>") < html.index("Because.")
    assert "<script" not in html


def test_a_prediction_shows_code_and_formulas_and_nothing_else():
    html = predict()._repr_html_()
    assert "<code>p</code>" in html
    assert '<span class="math">\\(n\\)</span>' in html
    assert "2n &lt; 3n" in html


def test_two_predictions_on_a_page_do_not_share_a_choice():
    names = {re.search(r'name="([^"]+)"', predict(why=w)._repr_html_())[1] for w in "ab"}
    assert len(names) == 2
    assert predict()._repr_html_() == predict()._repr_html_()


def test_a_prediction_in_a_terminal():
    text = repr(predict())
    assert text.startswith("Predict: How many")
    assert "( ) 2n < 3n" in text
    assert text.endswith("compare: n. Because.")


REFUSED = [
    ({"choices": ["n"]}, "at least two"),
    ({"choices": ["n", "n"]}, "all different"),
    ({"answer": "4n"}, "answer='4n' is none of the choices"),
    ({"question": " "}, "question is empty"),
    ({"why": ""}, "why is empty"),
]


@pytest.mark.parametrize(("changes", "says"), REFUSED, ids=[r[1] for r in REFUSED])
def test_a_prediction_that_cannot_work_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        predict(**changes)


def test_numbers_are_choices():
    assert predict(choices=[1, 2, 3], answer=2).answer == "2"
