"""A prediction box: the reader chooses, then sees what was measured. No kernel, no script.

Plain HTML: radio buttons, and a ``details`` element that a style rule shows once one is chosen.
"""

import hashlib
import html
import re

from lsdl_lib.show.style import COLORS, PAGE

LOOK = (
    f".lsdl-predict{{border:1px solid #7f7f7f80;border-left:4px solid {COLORS['blue']};"
    "border-radius:4px;"
    "padding:.5em 1em;margin:0;min-width:0}"
    ".lsdl-predict legend{font-weight:bold;font-size:1em;float:left;width:100%;margin:0 0 .4em}"
    ".lsdl-predict label{display:block;clear:both;padding:.15em 0}"
    ".lsdl-predict details{display:none;margin-top:.4em}"
    # The choice stands before the answer in the page, so a sibling rule can see it.
    ".lsdl-predict div:has(input:checked)~details{display:block}"
    ".lsdl-predict summary{cursor:pointer;text-decoration:underline}"
)


class Prediction:
    """A question, its choices and its answer, as :func:`predict` checked them."""

    def __init__(self, question, choices, answer, why):
        self.question = question
        self.choices = choices
        self.answer = answer
        self.why = why

    def _repr_html_(self):
        # A name of its own, or two boxes on a page would share one choice.
        name = "p" + hashlib.sha256(repr(self).encode()).hexdigest()[:10]
        options = "".join(
            f'<label><input type="radio" name="{name}"> {_inline(choice)}</label>'
            for choice in self.choices
        )
        return (
            f'<style>{PAGE}{LOOK}</style><fieldset class="lsdl lsdl-predict">'
            f"<legend>Predict: {_inline(self.question)}</legend><div>{options}</div>"
            "<details><summary>You have chosen. Compare with the run</summary>"
            f"<p><strong>{_inline(self.answer)}</strong></p><p>{_inline(self.why)}</p>"
            "</details></fieldset>"
        )

    def __repr__(self):
        lines = [f"Predict: {self.question}"]
        lines += [f"  ( ) {choice}" for choice in self.choices]
        return "\n".join([*lines, f"Choose, then compare: {self.answer}. {self.why}"])


def predict(question, choices, answer, why):
    """Show a question whose answer appears only after the reader has chosen one.

    ``show.predict("How many bytes does a rank send?", ["n", "2n", "p n"], "2n", "Because …")``

    Args:
        question: one sentence. As in all texts of the box, code stands between backticks and a
            formula between dollar signs.
        choices: at least two texts or numbers, all different.
        answer: the right one of ``choices``.
        why: the reason, for readers who chose another.

    Raises:
        ValueError: fewer than two choices, two equal ones, an answer that is no choice, or an empty
            text.
    """
    choices = [str(choice) for choice in choices]
    if len(choices) < 2 or len(set(choices)) < len(choices):
        raise ValueError(f"choices={choices}: give at least two, all different")
    if str(answer) not in choices:
        raise ValueError(f"answer={answer!r} is none of the choices {choices}")
    for name, text in {"question": question, "why": why}.items():
        if not str(text).strip():
            raise ValueError(f"{name} is empty")
    return Prediction(str(question), choices, str(answer), str(why))


def _inline(text):
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
    # The class and the brackets are those that the book's MathJax and JupyterLab's both look for.
    return re.sub(r"\$([^$]+)\$", r'<span class="math">\\(\1\\)</span>', text)
