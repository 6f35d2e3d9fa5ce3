"""A chapter says on one core what its page says: no claim depends on the machine's size.

The outputs of the page were made on two cores or more; the tests of the notebooks compare them with
a run on all cores.
"""

import os
import subprocess
import sys

import nbformat
import pytest

from tools import toc

CHAPTERS = list(toc.chapters().values())


def claim_lines(chapter, cores):
    """Run a chapter on these cores; return the lines that its claims print."""
    done = subprocess.run(
        [sys.executable, "tools/run_chapter.py", str(chapter)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "LSDL_TIER": "laptop", "LSDL_RECORDS": ""},
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("holds: ")]


def printed(chapter):
    """Return the lines of claims in the page's outputs."""
    cells = nbformat.read(chapter, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    text = "".join(output.text for output in outputs if output.output_type == "stream")
    return [line for line in text.splitlines() if line.startswith("holds: ")]


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs Linux and two cores",
)
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_the_same_claim_lines_on_one_core_as_on_the_page(chapter):
    lines = claim_lines(chapter, {min(os.sched_getaffinity(0))})
    assert lines
    assert lines == printed(chapter)
