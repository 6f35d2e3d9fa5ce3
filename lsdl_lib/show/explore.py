"""An explorer of results that were run: sliders and dropdowns choose among stored pictures.

It works in a page without a kernel: every picture is there, a ``Stack`` a parameter shows one of
its children, and a link in the browser moves the stack when its slider moves. With parameters of
sizes a, b, c there are a b c pictures and 1 + a + a b links (the largest parameter innermost).
"""

import itertools
import math

import ipywidgets as widgets
from ipywidgets.widgets.widget_string import HTMLStyle
from matplotlib.figure import Figure

from lsdl_lib.show.controls import Described, control, head, labeled, row, words
from lsdl_lib.show.figure import described, framed
from lsdl_lib.show.style import style
from lsdl_lib.show.svg import svg

MOST_FRAMES = 40


class Explorer(Described):
    """The widget that :func:`explore` returns."""

    def __init__(self, summary, children, links):
        super().__init__(summary, children)
        self.links = links  # a link that nobody holds is closed


def explore(figure_function, *, label="", runs=None, **parameters):
    """Show one picture for every combination of parameters, chosen with sliders and dropdowns.

    ``show.explore(draw, label="Time", runs=run_of, ranks=[2, 4], method=["ring", "star"])``

    Args:
        figure_function: called as ``figure_function(ranks=2, method="ring")`` for each combination;
            returns a matplotlib Figure, or ``(Figure, alt)`` with a text alternative. Left out, the
            text is made from ``label``, the values and the names of axes and lines.
        label: what is explored, shown above the controls.
        runs: names the stored run that a picture shows, such as ``results.where``: one text for
            all, or a function of the same values. No picture is interpolated, so each has a run.
        parameters: name -> values, in the order of the controls. Numbers get a slider, texts a
            dropdown, a single value no control. A dict gives each value its text:
            ``size={"1 MB": 1_000_000}``.

    Raises:
        ValueError: no parameter, a parameter without values, more than 40 combinations, or a
            picture that names no run.
        TypeError: the function returned no Figure.
    """
    choices = {name: labeled(name, values) for name, values in parameters.items()}
    if not choices:
        raise ValueError("explore needs a parameter; for one picture use show.figure")
    _check_number({name: len(texts) for name, texts in choices.items()})
    frames = {}
    for labels in itertools.product(*choices.values()):
        values = {name: choices[name][text] for name, text in zip(choices, labels)}
        setting = ", ".join(f"{words(n)} = {text}" for n, text in zip(choices, labels))
        frames[labels] = _frame(figure_function, values, setting, label, runs)
    return _assembled(frames, choices, label)


def _check_number(sizes):
    total = math.prod(sizes.values())
    if total > MOST_FRAMES:
        product = " x ".join(f"{size} {name}" for name, size in sizes.items())
        largest = max(sizes, key=sizes.get)
        fitting = MOST_FRAMES * sizes[largest] // total
        raise ValueError(
            f"{product} = {total} pictures, at most {MOST_FRAMES} fit a page: "
            + (f"give {largest} at most {fitting} values" if fitting else "leave out a parameter")
        )


def _frame(figure_function, values, setting, label, runs):
    with style():
        made = figure_function(**values)
        fig, alt = made if isinstance(made, tuple) else (made, None)
        if not isinstance(fig, Figure):
            raise TypeError(f"the figure function returned {fig!r} for {setting}, not a Figure")
        alt = alt or f"{label or 'Figure'}, {setting}. {described(fig)}"
        image = svg(fig, alt)
    run = runs(**values) if callable(runs) else runs
    if not run:
        raise ValueError(f"the picture of {setting} names no run: give runs=")
    return framed(image, f"{setting}. Run: {run}")


def _assembled(frames, choices, label):
    only = {name: next(iter(texts)) for name, texts in choices.items() if len(texts) == 1}
    free = [name for name in choices if name not in only]
    controls = {name: control(name, choices[name]) for name in free}
    # The parameter with most values innermost: fewest stacks.
    order = sorted(free, key=lambda name: len(choices[name]))
    shared = {"layout": widgets.Layout(margin="0", width="100%"), "style": HTMLStyle()}
    links = []

    def stack(chosen):
        if len(chosen) == len(choices):
            return widgets.HTML(frames[tuple(chosen[name] for name in choices)], **shared)
        name = order[len(chosen) - len(only)]
        children = [stack({**chosen, name: text}) for text in choices[name]]
        result = widgets.Stack(children, selected_index=0, layout={"width": "100%"})
        links.append(widgets.jsdlink((controls[name], "index"), (result, "selected_index")))
        return result

    title = label or "Explore"
    summary = f"{title}; " + "; ".join(
        f"{words(name)}: {', '.join(texts)}" for name, texts in choices.items()
    )
    return Explorer(
        f"{summary}; {len(frames)} pictures of stored runs",
        [head(title), row(list(controls.values())), stack(only)],
        links,
    )
