"""tools/run_chapter.py: a chapter as a script, alone and as a job of two nodes."""

import os
import subprocess
import sys

import nbformat
import pytest

from tools.toc import ROOT

COUNT = """\
import torch
import torch.distributed as dist

from lsdl_lib import launch


def add():
    total = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    return total.item()


results = launch(add, ranks=2, timeout=60, threads=1)
"""


@pytest.fixture
def chapter(tmp_path):
    """``chapter(*cells)``: the path of a notebook with these code cells; a tuple adds tags."""

    def make(*cells):
        notebook = nbformat.v4.new_notebook()
        notebook.cells.append(nbformat.v4.new_markdown_cell("# A chapter"))
        for cell in cells:
            source, *tags = [cell] if isinstance(cell, str) else cell
            metadata = {"tags": tags} if tags else {}
            notebook.cells.append(nbformat.v4.new_code_cell(source, metadata=metadata))
        path = tmp_path / "part" / "chapter.ipynb"
        path.parent.mkdir()
        nbformat.write(notebook, path)
        return path

    return make


def run(*command, **environment):
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process


def finished(process, seconds=150):
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, out, err


def job(path, *options):
    """Start torchrun on this machine with one chapter."""
    return run("-m", "torch.distributed.run", *options, "tools/run_chapter.py", str(path))


def test_cells_share_one_namespace_in_the_chapter_s_folder(chapter):
    path = chapter(
        "x = 20", "%matplotlib inline\nx += 1", "import os\nprint(x, os.getcwd())\nx + 1"
    )
    status, out, err = finished(run("tools/run_chapter.py", str(path)))
    assert status == 0, err
    assert out == f"21 {path.parent}\n22\n"


def test_failing_cell_ends_with_its_error(chapter):
    path = chapter("print('before')", "1 / 0", "print('after')")
    status, out, err = finished(run("tools/run_chapter.py", str(path)))
    assert status == 1
    assert "before" in out
    assert "ZeroDivisionError" in out
    assert "after" not in out
    assert "chapter.ipynb: code cell 2 failed on rank 0" in err


def test_cell_that_may_fail_does_not_end_the_run(chapter):
    path = chapter(("1 / 0", "raises-exception"), "print('after')")
    status, out, _ = finished(run("tools/run_chapter.py", str(path)))
    assert status == 0
    assert out.endswith("after\n")


def test_missing_file_is_named():
    status, _, err = finished(run("tools/run_chapter.py", "book/none.ipynb"))
    assert status == 2
    assert "there is no file" in err


@pytest.mark.slow
def test_two_nodes_run_it_unchanged_and_rank_0_prints(chapter, free_port):
    path = chapter(COUNT, "print(list(results), results.where)")
    options = (
        "--nnodes=2",
        "--nproc-per-node=1",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=localhost:{free_port}",
        "--local-addr=localhost",
    )
    jobs = [finished(node) for node in [job(path, *options) for _ in range(2)]]
    assert [status for status, _, _ in jobs] == [0, 0], jobs
    assert sorted(out for _, out, _ in jobs) == ["", "[3.0, 3.0] gloo, 2 ranks\n"]


@pytest.mark.slow
def test_failure_on_a_quiet_rank_is_told(chapter):
    path = chapter(COUNT, "import os\nassert os.environ['RANK'] == '0', 'rank 1 is wrong'")
    status, _, err = finished(job(path, "--standalone", "--nproc-per-node=2"))
    assert status != 0
    assert "rank 1 is wrong" in err
    assert "chapter.ipynb: code cell 2 failed on rank 1" in err
