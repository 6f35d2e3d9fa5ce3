"""One style for all figures and boxes: readable on light and dark pages, in print, and in grey.

Figures have no background, and black means the page's own text color: it becomes
``currentColor`` in the SVG. The colors of the cycle have a contrast of at least 3 with white and
with the dark theme, their luminances alternate, and each comes with its own marker and line
style, so that no figure needs color.
"""

import matplotlib
from cycler import cycler

COLORS = {
    "blue": "#0072b2",
    "orange": "#d9730d",
    "red": "#b5495b",
    "green": "#14a37a",
    "violet": "#a05ab4",
    "grey": "#7f7f7f",
}

MATPLOTLIB = {
    "axes.prop_cycle": cycler(color=list(COLORS.values()))
    + cycler(marker=["o", "s", "^", "D", "v", "x"])
    + cycler(linestyle=["-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1))]),
    "axes.edgecolor": COLORS["grey"],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",
    # Small and with large letters: on a phone a figure shrinks to two thirds.
    "figure.figsize": (5.4, 3.3),
    "font.size": 11.0,
    "grid.alpha": 0.35,
    "grid.color": COLORS["grey"],
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.0,
    "xtick.color": COLORS["grey"],
    "xtick.labelcolor": "black",
    "ytick.color": COLORS["grey"],
    "ytick.labelcolor": "black",
}

# Text color of the book's theme, else of JupyterLab's, else what surrounds the box.
TEXT_COLOR = "var(--pst-color-text-base,var(--jp-content-font-color1,inherit))"

# In dark mode the book's theme puts every HTML output and widget on a light card. Ours need none.
PAGE = (
    f".lsdl{{color:{TEXT_COLOR}}}"
    "html[data-theme=dark] .cell_output .text_html:has(.lsdl),"
    "html[data-theme=dark] .cell_output .widget-subarea:has(.lsdl)"
    "{background:none!important;color:inherit!important;padding:0!important}"
)


class style:
    """Use the book's style for figures: ``show.style()`` from here on, or ``with show.style():``.

    ``show.explore`` and ``show.run_again`` use it by themselves.
    """

    def __init__(self):
        self._before = {name: matplotlib.rcParams[name] for name in MATPLOTLIB}
        matplotlib.rcParams.update(MATPLOTLIB)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        matplotlib.rcParams.update(self._before)

    def _ipython_display_(self):
        """Show nothing when ``show.style()`` is the last line of a cell."""
