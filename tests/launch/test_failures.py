"""One clear error that names the rank, in bounded time, and no process left."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest
import torch
import torch.distributed as dist

from lsdl_lib import launch
from lsdl_lib.launch import LaunchError
from lsdl_lib.launch.outcome import NO_ANSWER, Failure, hang, root_cause
from tests.launch.conftest import ranks_of

LIMIT_S = 5  # from the failure to the error


def all_reduce_forever():
    while True:
        dist.all_reduce(torch.ones(2))


def raises():
    if dist.get_rank() == 1:
        raise ValueError("the value is 13")
    all_reduce_forever()


def exits_at_once():
    if dist.get_rank() == 1:
        os._exit(0)
    time.sleep(100)  # the others do not notice by themselves


def exits_politely():
    if dist.get_rank() == 1:
        sys.exit(0)
    all_reduce_forever()


def is_killed():
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    all_reduce_forever()


def hangs():
    if dist.get_rank() == 1:
        time.sleep(100)
    dist.all_reduce(torch.ones(2))


def stops():
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(torch.ones(2))


def returns_a_generator():
    return (x for x in [dist.get_rank()]) if dist.get_rank() == 1 else 0


FAILURES = [
    (raises, "raised", r"rank 1 raised ValueError: the value is 13(.|\n)*in raises\n.*raise Value"),
    (exits_at_once, "exited", "rank 1 exited with code 0 before it returned a result"),
    (exits_politely, "exited", "rank 1 exited with code 0 before it returned a result"),
    (is_killed, "killed", "rank 1 was killed by SIGKILL"),
    (returns_a_generator, "raised", "result of rank 1 .a generator. cannot be sent"),
]


@pytest.mark.usefixtures("no_rank_left")
@pytest.mark.parametrize(("fn", "kind", "words"), FAILURES, ids=lambda value: str(value)[:16])
def test_a_failing_rank_is_named_in_time(fn, kind, words):
    launch(dist.get_rank, ranks=2)  # the fork server is there
    began = time.monotonic()
    with pytest.raises(LaunchError, match=words) as caught:
        launch(fn, ranks=3, timeout=60)
    assert time.monotonic() - began < LIMIT_S
    assert (caught.value.rank, caught.value.kind) == (1, kind)


@pytest.mark.usefixtures("no_rank_left")
@pytest.mark.parametrize("fn", [hangs, stops])
def test_a_hang_ends_at_the_timeout_with_each_ranks_stack(fn):
    launch(dist.get_rank, ranks=2)
    began = time.monotonic()
    with pytest.raises(LaunchError) as caught:
        launch(fn, ranks=3, timeout=4)
    assert 4 <= time.monotonic() - began < 4 + LIMIT_S
    assert (caught.value.rank, caught.value.kind) == (1, "hung")
    text = str(caught.value)
    assert "rank 1 did not return within the timeout of 4 s" in text
    assert "still waiting in a communication call: 0, 2" in text
    for rank in range(3):
        assert f"rank {rank}, most recent call first:" in text
    assert "time.sleep(100)" in text or fn is stops
    assert text.count("dist.all_reduce(torch.ones(2))") == 2


@pytest.mark.usefixtures("no_rank_left")
def test_a_rank_that_left_out_a_collective_is_named():
    def leaves_one_out():
        if dist.get_rank() != 1:
            dist.all_reduce(torch.ones(2))

    with pytest.raises(LaunchError) as caught:
        launch(leaves_one_out, ranks=3, timeout=4)
    assert (caught.value.rank, caught.value.kind) == (1, "hung")
    assert "rank 1 returned, but other ranks did not" in str(caught.value)
    assert "still waiting in a communication call: 0, 2" in str(caught.value)


@pytest.mark.usefixtures("no_rank_left")
def test_what_was_printed_before_a_failure_is_not_lost(capsys):
    def talk_and_fail():
        print("before")
        raise KeyError("k")

    with pytest.raises(LaunchError) as caught:
        launch(talk_and_fail, ranks=2, timeout=60)
    assert "[rank 0] before" in capsys.readouterr().out
    assert "[rank 0] before" in caught.value.output


@pytest.mark.usefixtures("no_rank_left")
def test_what_a_rank_started_ends_with_it():
    def start_child():
        child = subprocess.Popen(["sleep", "100"])
        if dist.get_rank() == 1:
            raise RuntimeError(f"child {child.pid}")
        time.sleep(100)

    with pytest.raises(LaunchError, match=r"child \d+"):
        launch(start_child, ranks=2, timeout=60)


def failure(rank, kind, when, about_communication=False):
    return Failure(rank, kind, when, "", about_communication=about_communication)


@pytest.mark.parametrize(
    ("failures", "cause"),
    [
        # A neighbor's broken connection is noticed first, the real error second.
        ([failure(0, "raised", 1.0, True), failure(2, "raised", 1.1)], 2),
        # Two errors of their own: the earlier.
        ([failure(0, "raised", 2.0), failure(1, "raised", 1.0)], 1),
        # A killed rank breaks its neighbors' connections.
        ([failure(0, "raised", 1.0, True), failure(3, "killed", 1.2)], 3),
        # A rank raised, and a later death is not the cause.
        ([failure(0, "exited", 1.2), failure(3, "raised", 1.0)], 3),
        # Only broken connections: the first.
        ([failure(2, "raised", 1.5, True), failure(1, "raised", 1.4, True)], 1),
    ],
)
def test_the_cause_is_told_from_its_echoes(failures, cause):
    assert root_cause(failures).rank == cause


WAITS = '  File "/x/torch/distributed/distributed_c10d.py", line 1 in all_reduce'
WORKS = '  File "/home/reader/train.py", line 1 in sleep'


@pytest.mark.parametrize(
    ("stacks", "returned", "culprit"),
    [
        ({0: WAITS, 1: NO_ANSWER, 2: WORKS}, {3}, 2),  # it runs something else
        ({0: WAITS, 1: NO_ANSWER, 3: WAITS}, {3}, 3),  # it has left
        ({0: WAITS, 1: NO_ANSWER, 2: WAITS}, set(), 1),  # it does not answer
        ({0: WAITS, 1: WAITS}, set(), 0),  # all wait
        ({0: NO_ANSWER, 1: WORKS}, {0}, 1),  # one has returned, and one works on
    ],
)
def test_a_hang_names_the_rank_that_the_others_wait_for(stacks, returned, culprit):
    failure = hang(stacks, returned, 3)
    assert (failure.rank, failure.kind) == (culprit, "hung")


SCRIPT = """
    import os, sys, time
    import torch, torch.distributed as dist
    from lsdl_lib import launch

    def work():
        dist.all_reduce(torch.ones(2))
        print("ready", flush=True)
        open(sys.argv[1] + str(dist.get_rank()), "w").close()
        time.sleep(100)

    {guard}launch({function}, ranks=3, timeout=60)
"""


def start_script(tmp_path, guard="", function="work"):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT).format(guard=guard, function=function))
    return subprocess.Popen(
        [sys.executable, str(path), str(tmp_path / "ready")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        # A shell's background jobs, and what they start, ignore interrupts; this script must not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_until_ready(tmp_path, process):
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("ready*"))) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.parametrize("guard", ["", 'if __name__ == "__main__": '], ids=["bare", "guarded"])
def test_a_script_needs_no_main_guard(tmp_path, guard):
    process = start_script(tmp_path, guard, "lambda: print('rank', dist.get_rank())")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out == "".join(f"[rank {rank}] rank {rank}\n" for rank in range(3))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_case_99_a_signal_to_the_parent_alone_ends_the_ranks(tmp_path, number):
    process = start_script(tmp_path)
    wait_until_ready(tmp_path, process)
    parent = psutil.Process(process.pid)
    ranks = ranks_of(parent)
    assert len(ranks) == 3
    family = parent.children(recursive=True)
    began = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=LIMIT_S)
    _, alive = psutil.wait_procs(family, timeout=LIMIT_S)
    assert alive == []
    assert time.monotonic() - began < LIMIT_S
    if number == signal.SIGINT:
        assert err.rstrip().endswith("KeyboardInterrupt")


def test_a_failure_in_a_script_is_one_error_with_its_own_lines(tmp_path):
    process = start_script(tmp_path, function="lambda: 1 / dist.get_rank()")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "LaunchError: rank 0 raised ZeroDivisionError" in err
    assert "launch(lambda: 1 / dist.get_rank(), ranks=3" in err
    assert err.count("Traceback (most recent call last)") == 2  # the parent's and the rank's
