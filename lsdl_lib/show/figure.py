"""A static figure: inline SVG with a text alternative."""

import html

from lsdl_lib.show.style import PAGE
from lsdl_lib.show.svg import svg


class Picture:
    """A figure as a notebook shows it: SVG on a page, its text alternative in a terminal."""

    def __init__(self, image, alt, caption):
        self.image = image
        self.alt = alt
        self.caption = caption

    def _repr_html_(self):
        return f"<style>{PAGE}</style>{framed(self.image, self.caption)}"

    def __repr__(self):
        return f"Figure: {self.alt}" + (f" ({self.caption})" if self.caption else "")


def figure(fig, *, alt, caption=""):
    """Show a matplotlib figure: ``show.figure(fig, alt="Ring sends less than star: …")``.

    The figure is closed, so that the notebook does not show it a second time.

    Args:
        fig: a matplotlib Figure, best made after ``show.style()``.
        alt: what the figure shows, in words, for readers who do not see it.
        caption: a line below the figure, such as what was run.

    Raises:
        TypeError: ``fig`` is no matplotlib Figure.
        ValueError: ``alt`` is empty.
    """
    return Picture(svg(fig, alt), " ".join(alt.split()), caption)


def framed(image, caption=""):
    """Return an SVG element inside a ``figure`` element, with its caption."""
    small = "font-size:.85em;font-weight:normal;color:inherit;text-align:left;margin:.2em 0 0"
    below = f'<figcaption style="{small}">{html.escape(caption)}</figcaption>' if caption else ""
    return f'<figure class="lsdl" style="margin:0">{image}{below}</figure>'


def described(fig):
    """Return axes and lines in words, for a text alternative."""
    parts = []
    for axes in fig.axes:
        if axes.get_ylabel() or axes.get_xlabel():
            parts.append(f"{axes.get_ylabel() or 'values'} against {axes.get_xlabel() or 'index'}")
        names = axes.get_legend_handles_labels()[1]
        if names:
            parts.append(f"shown: {', '.join(names)}")
    return "; ".join(parts)
