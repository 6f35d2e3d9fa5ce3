"""What the tests of ``show`` share: a canvas without a screen, and no figure left open."""

import matplotlib
import matplotlib.pyplot as plt
import pytest

matplotlib.use("agg")


@pytest.fixture
def draw():
    """Draws a small figure of two lines from ``scale``; the same for the same number."""

    def draw(scale=1.0):
        fig, ax = plt.subplots()
        ax.plot([1, 2, 4], [scale, 2 * scale, 4 * scale], label="ring")
        ax.plot([1, 2, 4], [3 * scale, 2 * scale, scale], label="star")
        ax.set(xlabel="ranks", ylabel="time, s")
        ax.legend()
        return fig

    return draw


@pytest.fixture(autouse=True)
def no_figure_left():
    """A figure that stays open is shown a second time by a notebook."""
    yield
    assert plt.get_fignums() == []
