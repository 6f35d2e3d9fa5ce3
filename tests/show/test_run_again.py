"""Live runs: in a kernel with a reader the button works, everywhere else there is nothing."""

import threading
import time

import nbclient
import nbformat
import pytest

from lsdl_lib import show
from tests.show.kernel import ROOT, Kernel

SETUP = """
import time
import matplotlib.pyplot as plt
import torch.distributed as dist
from lsdl_lib import launch, progress, show

def work(n):
    for _ in progress(range(8), "working"):
        time.sleep(0.1)
    print("hello")
    return n * dist.get_world_size()

def run(ranks, size):
    if size == 0:
        raise ValueError("size 0 is too small")
    if size < 0:
        time.sleep(60)
    return launch(work, size, ranks=ranks)

def picture(mine=None):
    fig, ax = plt.subplots()
    ax.plot([1, 2], [20, 40], label="the book's run")
    if mine is not None:
        ax.plot([mine.ranks], [mine[0]], label=f"your run, {mine[0]}")
    ax.legend()
    return fig
"""
CELL = 'show.run_again(run, over=picture, ranks=[1, 2], size={"short": 20, "none": 0, "long": -1})'
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def kernel():
    with Kernel() as kernel:
        assert kernel.run(SETUP, reader=True) == []
        yield kernel


@pytest.fixture
def live(kernel):
    """A fresh live widget, and a function that chooses a size and presses its button."""
    kernel.models.clear()
    ((kind, content),) = kernel.run(CELL, reader=True)
    assert kind == "execute_result"
    assert VIEW in content["data"]
    (button,) = kernel.find("ButtonModel", description="Run")

    def press(ranks=0, size=0):
        for name, index in {"ranks": ranks, "size": size}.items():
            (slider,) = kernel.find("SelectionSliderModel", description=name)
            kernel.send(slider, {"method": "update", "state": {"index": index}, "buffer_paths": []})
        return kernel.send(button, {"method": "custom", "content": {"event": "click"}})

    return press


def htmls(kernel):
    return [kernel.models[name].get("value", "") for name in kernel.find("HTMLModel")]


def picture_of(kernel):
    (value,) = [value for value in htmls(kernel) if "<svg" in value]
    return value


def status_of(kernel):
    (value,) = [value for value in htmls(kernel) if 'role="status"' in value]
    return value


def test_a_program_that_runs_the_cell_gets_nothing(kernel):
    kernel.models.clear()
    assert kernel.run(CELL, reader=False) == []
    assert kernel.models == {}


def test_the_books_run_is_there_before_a_click(kernel, live):
    assert "the book's run" in picture_of(kernel)
    assert "your run" not in picture_of(kernel)


def test_a_click_runs_for_real_and_draws_over_the_book(kernel, live):
    outputs = live(ranks=1)
    assert "the book's run" in picture_of(kernel)
    assert "your run, 40" in picture_of(kernel), "20 on each of 2 ranks"
    assert "Your run: ranks = 2, size = short" in picture_of(kernel)
    assert "Done after" in status_of(kernel)
    assert "hello" in "".join(c["text"] for kind, c in outputs if kind == "stream")
    bars = [c for kind, c in outputs if kind == "display_data" and VIEW in c["data"]]
    assert len(bars) == 1, "the experiment's own progress bar"
    (button,) = kernel.find("ButtonModel", description="Run")
    assert kernel.models[button]["disabled"] is False
    live(ranks=0)
    assert "your run, 20" in picture_of(kernel), "again, with another number of ranks"


def test_the_status_counts_seconds_while_it_runs(kernel, live):
    def said(words):
        texts = [state.get("value", "") for _, state in kernel.history]
        return [text for text in texts if isinstance(text, str) and words in text]

    kernel.history.clear()
    live()
    assert said("Running ranks = 1, size = short: ")
    assert not said(" of about ")
    live()
    assert said(" of about "), "the second time there is an estimate"


def test_an_error_is_shown_and_the_button_comes_back(kernel, live):
    outputs = live(size=1)
    assert "Failed after" in status_of(kernel)
    assert [c["evalue"] for kind, c in outputs if kind == "error"] == ["size 0 is too small"]
    (button,) = kernel.find("ButtonModel", description="Run")
    assert kernel.models[button]["disabled"] is False
    assert "your run" not in picture_of(kernel)


def test_interrupting_the_kernel_stops_the_run(kernel, live):
    threading.Timer(1.5, kernel.manager.interrupt_kernel).start()
    start = time.monotonic()
    live(size=2)
    assert time.monotonic() - start < 20
    assert "Failed after" in status_of(kernel)
    (button,) = kernel.find("ButtonModel", description="Run")
    assert kernel.models[button]["disabled"] is False


def test_an_executed_notebook_has_no_trace_of_it(monkeypatch):
    """As ``jupyter execute`` runs it: the explorer's state is stored, of run_again nothing."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    explorer = 'show.explore(lambda ranks: picture(), runs="gloo", ranks=[1, 2])'
    cells = [nbformat.v4.new_code_cell(code) for code in (SETUP, CELL, explorer)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    assert notebook.cells[1].outputs == []
    ((_, stored),) = notebook.metadata.widgets.items()
    state = stored["state"]
    names = {model["model_name"] for model in state.values()}
    assert "ButtonModel" not in names
    assert "OutputModel" not in names
    view = notebook.cells[2].outputs[0]["data"][VIEW]["model_id"]
    assert state[view]["model_name"] == "VBoxModel"
    values = [m["state"].get("value", "") for m in state.values() if m["model_name"] == "HTMLModel"]
    assert sum("<svg" in value for value in values) == 2


def test_outside_a_notebook_there_is_nothing():
    assert show.run_again(lambda ranks: None, over=lambda mine: None, ranks=[1]) is None


@pytest.mark.parametrize("controls", [{}, {"ranks": []}])
def test_it_needs_something_to_choose(controls):
    with pytest.raises(ValueError, match=r"needs a control|no values"):
        show.run_again(lambda ranks: None, over=lambda mine: None, **controls)
