"""What all tests share: which need what of the machine, and how notebooks are executed.

- ``browser``, ``root`` and ``gpu`` mark tests that need Chromium, root with iproute2, a GPU. Where
  that is missing they are skipped, with one line that says so. With CI=true the first two
  fail instead: CI must have what they need.
- Notebooks (``--nbval``) run at the laptop tier, in a kernel of this Python, and write their
  records below ``_build``.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tools.browser import chromium

CI = os.environ.get("CI", "").lower() in ("1", "true")
RECORDS = Path(__file__).parent / "_build" / "test-records"
CELL_SECONDS = 600
OUTPUT_SECONDS = 120  # nbval waits 5 s for a cell's last output: too short on a busy machine
MISSING = pytest.StashKey[dict]()  # marker -> what the machine lacks, and how many tests


def no_browser():
    """Return what the browser tests lack here, or ""."""
    if chromium():
        return ""
    return "no Chromium (Debian: apt install chromium; macOS: brew install --cask chromium)"


def no_root():
    """Return what the network tests lack here, or ""."""
    if sys.platform != "linux":
        return "network namespaces exist only on Linux"
    if os.geteuid() != 0:
        return "not root (sudo -E make test)"
    if not (shutil.which("ip") and shutil.which("tc")):
        return "no iproute2 (apt install iproute2)"
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "this container may not make network namespaces"


def no_gpu():
    """Return what the GPU tests lack here, or ""."""
    return "" if torch.cuda.device_count() else "no GPU (make gpu runs them)"


NEEDS = {"browser": no_browser, "root": no_root, "gpu": no_gpu}


def never_missing(marker):
    """Tell whether CI must have what ``marker`` needs."""
    return CI and (marker == "browser" or (marker == "root" and sys.platform == "linux"))


def pytest_collection_modifyitems(config, items):
    """Find out what the collected tests need and this machine lacks."""
    missing = config.stash.setdefault(MISSING, {})
    for marker, why in NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = why() if marked else ""
        if reason and never_missing(marker):
            for item in marked:
                item.stash[MISSING] = f"CI never skips these tests, but there is {reason}"
        elif reason:
            missing[marker] = (reason, len(marked))
            config.hook.pytest_deselected(items=marked)
            items[:] = [item for item in items if item not in marked]


def pytest_runtest_setup(item):
    """Fail a test that CI must run and cannot."""
    if MISSING in item.stash:
        pytest.fail(item.stash[MISSING], pytrace=False)


def pytest_terminal_summary(terminalreporter, config):
    """Say in one line a kind which tests did not run here, and why."""
    for marker, (reason, number) in config.stash.get(MISSING, {}).items():
        terminalreporter.write_line(f"Not run: {number} tests marked {marker}: {reason}")


def pytest_configure(config):
    """Set how nbval runs notebooks."""
    if not getattr(config.option, "nbval", False):
        return
    config.option.nbval_current_env = True
    config.option.nbval_cell_timeout = CELL_SECONDS
    shutil.rmtree(RECORDS, ignore_errors=True)
    config.add_cleanup(_wrap_nbval())


def _wrap_nbval():
    from nbval.plugin import IPyNbCell, IPyNbFile

    patch = pytest.MonkeyPatch()
    make_cell, start_kernel = IPyNbCell.__init__, IPyNbFile.setup

    def patient_cell(self, *args, **kwargs):
        make_cell(self, *args, **kwargs)
        self.output_timeout = OUTPUT_SECONDS

    def start_at_laptop_tier(self):
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("LSDL_TIER", "laptop")
            environment.setenv("LSDL_RECORDS", str(RECORDS))
            start_kernel(self)

    patch.setattr(IPyNbCell, "__init__", patient_cell)
    patch.setattr(IPyNbFile, "setup", start_at_laptop_tier)
    return patch.undo
