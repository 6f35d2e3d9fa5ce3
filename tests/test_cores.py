"""A chapter says the same on one core as on all: its claims do not depend on the machine's size."""

import os
import subprocess
import sys

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


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs Linux and two cores",
)
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_the_same_claim_lines_on_one_core_and_on_two(chapter):
    first, second = sorted(os.sched_getaffinity(0))[:2]
    one, two = claim_lines(chapter, {first}), claim_lines(chapter, {first, second})
    assert one
    assert one == two
