"""In a real JupyterLab, by keyboard: an explorer's picture changes, and ``run_again`` runs."""

import os
import socket
import subprocess
import sys
import time
import urllib.request

import nbformat
import pytest

from tests.show.kernel import ROOT
from tools.browser import OPTIONS, chromium

CELLS = [
    """
import matplotlib.pyplot as plt
from lsdl_lib import launch, show

def work(n):
    import torch.distributed as dist
    return n * dist.get_world_size()

def run(ranks):
    return launch(work, 20, ranks=ranks)

def picture(mine=None):
    fig, ax = plt.subplots()
    ax.plot([1, 2], [20, 40], label="the book's run")
    if mine is not None:
        ax.plot([mine.ranks], [mine[0]], label=f"your run, {mine[0]}")
    ax.set(xlabel="ranks", ylabel="result")
    ax.legend()
    return fig
""",
    'show.explore(lambda ranks: picture(), label="Result", runs="gloo", ranks=[1, 2, 4])',
    "show.run_again(run, over=picture, ranks=[2, 3])",
]


@pytest.fixture
def lab(tmp_path):
    """The address of a JupyterLab with a notebook ``live.ipynb`` and with nobody's settings."""
    cells = [nbformat.v4.new_code_cell(code.strip()) for code in CELLS]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    nbformat.write(notebook, tmp_path / "live.ipynb")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folders = ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    own = {name: str(tmp_path / name) for name in folders}
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"),
            *(f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token="),
            *("--LabApp.news_url=None", "--ServerApp.terminals_enabled=False"),
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ],
        cwd=tmp_path,
        env=os.environ | own | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(f"{address}/api/status", server)
        yield address
    finally:
        server.terminate()
        server.wait(30)


def _wait_for(url, server, seconds=60):
    end = time.monotonic() + seconds
    while True:
        assert server.poll() is None, "JupyterLab ended"
        try:
            return urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            assert time.monotonic() < end, "JupyterLab did not answer"
            time.sleep(0.3)


@pytest.fixture
def page(lab, browser):
    """The notebook in JupyterLab with all cells run, and the errors of the page."""
    page = browser.new_page(viewport={"width": 1200, "height": 2400})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_default_timeout(90_000)
    page.goto(f"{lab}/lab/tree/live.ipynb?reset")
    page.wait_for_selector("text=/\\| Idle/")
    page.get_by_role("menuitem", name="Run", exact=True).first.click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.wait_for_selector(".jp-OutputArea button.jupyter-button")
    page.problems = errors
    return page


@pytest.fixture
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=OPTIONS)
        yield running
        running.close()


@pytest.mark.browser
@pytest.mark.slow
def test_by_keyboard_in_jupyterlab(page):
    explorer, live = (page.locator(".lsdl-widgets").nth(i) for i in range(2))
    assert explorer.get_by_role("img", name="Result, ranks = 1.").count() == 1
    explorer.get_by_role("slider").focus()
    page.keyboard.press("ArrowRight")
    explorer.get_by_role("img", name="Result, ranks = 2.").wait_for()
    assert explorer.get_by_role("img").count() == 1

    assert live.get_by_role("img", name="The book's run.").count() == 1
    live.get_by_role("slider").focus()
    page.keyboard.press("ArrowRight")
    live.locator("button").focus()
    page.keyboard.press("Enter")
    live.get_by_role("img", name="Your run: ranks = 3").wait_for()
    assert live.get_by_text("your run, 60").count() == 1
    assert live.get_by_role("status").inner_text().startswith("Done after")
    assert page.problems == []
