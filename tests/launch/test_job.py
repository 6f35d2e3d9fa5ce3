"""launch inside torchrun: the same script, on one node or two."""

import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import sys
    import torch, torch.distributed as dist
    from lsdl_lib import launch
    from lsdl_lib.launch import on_main

    def work(scale):
        value = torch.tensor([float(dist.get_rank() + 1) * scale])
        dist.all_reduce(value)
        return dist.get_rank(), dist.get_world_size(), value.item(), torch.zeros(3_000_000)

    for ranks in (None, 1, 2, 4):
        results = launch(work, 10, ranks=ranks, timeout=60, threads=1)
        numbers = [result[:3] for result in results]
        shapes = {result[3].shape for result in results}
        if on_main():
            print(results.where, numbers, len(shapes), flush=True)
"""

EXPECTED = """\
gloo, 4 ranks [(0, 4, 100.0), (1, 4, 100.0), (2, 4, 100.0), (3, 4, 100.0)] 1
gloo, 1 rank [(0, 1, 10.0)] 1
gloo, 2 ranks [(0, 2, 30.0), (1, 2, 30.0)] 1
gloo, 4 ranks [(0, 4, 100.0), (1, 4, 100.0), (2, 4, 100.0), (3, 4, 100.0)] 1
"""


def torchrun(tmp_path, script, *options):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *options, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"},
    )


def test_one_node(tmp_path):
    job = torchrun(tmp_path, SCRIPT, "--standalone", "--nproc-per-node=4")
    out, err = job.communicate(timeout=120)
    assert job.returncode == 0, err
    assert out == EXPECTED


@pytest.mark.slow
def test_two_nodes_are_two_agents(tmp_path, free_port):
    options = (
        "--nnodes=2",
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=localhost:{free_port}",
        "--local-addr=localhost",
    )
    jobs = [torchrun(tmp_path, SCRIPT, *options) for _ in range(2)]
    outputs = [job.communicate(timeout=120) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], [err for _, err in outputs]
    assert sorted(out for out, _ in outputs) == ["", EXPECTED]


@pytest.mark.slow
def test_a_chapter_runs_unchanged_on_two_nodes(free_port):
    """Two elastic agents on this machine stand for two nodes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
    command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port}"]
    command += ["--local-addr=localhost", "tools/run_chapter.py"]
    command += ["book/communication/collectives.ipynb"]
    env = {**os.environ, "LSDL_TIER": "laptop", "OMP_NUM_THREADS": "1"}
    env.pop("LSDL_RECORDS", None)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": env}
    nodes = [subprocess.Popen(command, **pipes) for _ in range(2)]
    outputs = [node.communicate(timeout=400) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], [err for _, err in outputs]
    claims = [out.count("holds: ") for out, _ in outputs]
    assert sorted(claims) == [0, 33]  # rank 0 speaks for all
    assert any("ring: messages and bytes of every rank, p = 2, 3, 4 " in out for out, _ in outputs)


FAILING = """
    import time
    import torch, torch.distributed as dist
    from lsdl_lib import launch

    def work():
        if dist.get_rank() == 1:
            raise ValueError("the value is 13")
        dist.all_reduce(torch.ones(2))

    launch(work, timeout=60)
"""


def test_a_failing_rank_fails_the_job_by_name(tmp_path):
    job = torchrun(tmp_path, FAILING, "--standalone", "--nproc-per-node=3")
    _, err = job.communicate(timeout=60)
    assert job.returncode != 0
    assert "LaunchError: rank 1 raised ValueError: the value is 13" in err


LEFT_OUT = """
    import torch, torch.distributed as dist
    from lsdl_lib import launch
    from lsdl_lib.launch import LaunchError, on_main, ranks_that_fit

    def leaves_one_out():
        if dist.get_rank() != 1:
            dist.all_reduce(torch.ones(2))

    try:
        launch(leaves_one_out, timeout=4)
    except LaunchError as error:
        first = error
    after = launch(dist.get_rank, timeout=60)
    if on_main():
        print(first, after, ranks_that_fit([1, 2, 3, 4, 6]))
"""


def test_a_rank_that_left_a_collective_out_is_named_and_the_job_goes_on(tmp_path):
    job = torchrun(tmp_path, LEFT_OUT, "--standalone", "--nproc-per-node=3")
    out, err = job.communicate(timeout=60)
    assert job.returncode == 0, err
    expected = "rank 1 returned, but other ranks did not within the timeout of 4 s"
    assert out == f"{expected} [0, 1, 2] [1, 2, 3]\n"


def test_more_ranks_than_the_job_has_is_refused(tmp_path):
    script = "from lsdl_lib import launch\nlaunch(print, ranks=3)"
    job = torchrun(tmp_path, script, "--standalone", "--nproc-per-node=2")
    _, err = job.communicate(timeout=60)
    assert job.returncode != 0
    assert "ranks=3, but this job has 2 processes" in err


def test_a_group_made_by_the_script_is_used(tmp_path):
    script = """
        import torch.distributed as dist
        from lsdl_lib import launch
        dist.init_process_group("gloo")
        print(launch(dist.get_world_size) == [2, 2], dist.is_initialized())
    """
    job = torchrun(tmp_path, script, "--standalone", "--nproc-per-node=2")
    out, err = job.communicate(timeout=60)
    assert job.returncode == 0, err
    assert out.split() == ["True"] * 4  # the two processes print without waiting for each other
