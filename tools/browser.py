"""Where this machine's Chromium is; the browser tests need one."""

import os
import shutil
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC = ("Google Chrome.app/Contents/MacOS/Google Chrome", "Chromium.app/Contents/MacOS/Chromium")
# Root cannot use the sandbox, a container has little shared memory, and nothing is to leave here.
OPTIONS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
)


def chromium():
    """Return the path of the system's Chromium or Chrome, or None."""
    for name in NAMES:
        if shutil.which(name):
            return shutil.which(name)
    for folder in ("/Applications", os.path.expanduser("~/Applications")):
        for program in MAC:
            if (Path(folder) / program).exists():
                return str(Path(folder) / program)
    return None
