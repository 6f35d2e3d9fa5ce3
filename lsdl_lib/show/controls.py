"""Controls that choose one of a parameter's values: a slider for numbers, a dropdown for texts."""

import html
import numbers

import ipywidgets as widgets

from lsdl_lib.show.style import COLORS, PAGE, TEXT_COLOR

# In the book's pages the widgets bring colors for a light page only, and no ring around a focused
# handle. The arrow of a list is dark everywhere, so the browser draws its own.
LOOK = (
    "html[data-theme] .lsdl-widgets{"
    + "".join(
        f"--jp-widgets-{name}:{value};"
        for name, value in {
            "label-color": TEXT_COLOR,
            "readout-color": TEXT_COLOR,
            "input-color": TEXT_COLOR,
            "input-background-color": "var(--pst-color-surface)",
            "input-border-color": COLORS["grey"],
            "slider-track-color": COLORS["grey"],
            "slider-border-color": COLORS["grey"],
        }.items()
    )
    + "}"
    ".lsdl-widgets select{appearance:auto;background-image:none}"
    ".lsdl-widgets .noUi-handle.noUi-handle"
    f"{{background:{COLORS['blue']};border-color:{COLORS['blue']}}}"
    ".lsdl-widgets .noUi-handle:focus-visible{outline:2px solid;outline-offset:2px}"
)


def labeled(name, values):
    """Return {text: value} of one parameter."""
    if isinstance(values, dict):
        choices = {str(text): value for text, value in values.items()}
    elif isinstance(values, str) or not hasattr(values, "__iter__"):
        raise ValueError(f"{name}={values!r}: give a list of values")
    else:
        values = list(values)
        choices = {_value_text(value): value for value in values}
        if len(choices) < len(values):
            raise ValueError(f"{name}={values}: a value appears twice")
    if not choices:
        raise ValueError(f"{name} has no values")
    return choices


def control(name, choices):
    """Return the widget that chooses one text of ``choices``, {text: value}."""
    # A slider of one value cannot be drawn.
    slides = len(choices) > 1 and all(_is_number(value) for value in choices.values())
    kind = widgets.SelectionSlider if slides else widgets.Dropdown
    return kind(
        options=list(choices),
        index=0,
        description=words(name),
        layout={"width": "auto", "flex": "0 1 24em", "min_width": "15em"},
        style={"description_width": "initial"},
    )


def words(name):
    """Return a parameter's name as it is shown."""
    return name.replace("_", " ")


def _value_text(value):
    if not _is_number(value):
        return str(value)
    return f"{value:,}" if isinstance(value, numbers.Integral) else f"{value:g}"


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


class Described(widgets.VBox):
    """Widgets below each other in the book's look; one line of text where there are no widgets."""

    def __init__(self, summary, children):
        self.summary = summary
        super().__init__(children, layout={"width": "100%"})
        self.add_class("lsdl-widgets")

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle and bundle | {"text/plain": self.summary}


def row(children):
    """Return widgets beside each other, on several lines where the page is narrow."""
    layout = {"flex_flow": "row wrap", "align_items": "center", "width": "100%"}
    return widgets.Box(children, layout=layout)


def head(text):
    """Return the line above the widgets, which also brings their look."""
    title = f'<strong class="lsdl">{html.escape(text)}</strong>'
    return widgets.HTML(f"<style>{PAGE}{LOOK}</style>{title}")
