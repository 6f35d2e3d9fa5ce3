"""What launch returns, prints and refuses."""

import os
import sys
import threading
import time
from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist

from lsdl_lib import launch, progress
from lsdl_lib.launch import device, on_main
from lsdl_lib.launch.context import cores

pytestmark = pytest.mark.usefixtures("no_rank_left")


@dataclass
class Pair:
    rank: int
    tensor: torch.Tensor


def sum_of_ranks(scale):
    value = torch.tensor([float(dist.get_rank() + 1) * scale])
    dist.all_reduce(value)
    return value.item()


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_results_come_in_rank_order_from_one_group(ranks):
    results = launch(lambda: (dist.get_rank(), sum_of_ranks(10)), ranks=ranks, timeout=60)
    total = 10 * ranks * (ranks + 1) / 2
    assert results == [(rank, total) for rank in range(ranks)]
    assert (results.ranks, results.backend, results.device) == (ranks, "gloo", "cpu")
    assert results.where == f"gloo, {ranks} rank{'s' if ranks > 1 else ''}"
    assert results.seconds > 0


def test_closures_lambdas_and_local_classes_travel():
    offset = torch.arange(3)

    class Local:
        def __init__(self, value):
            self.value = value

    results = launch(lambda x: Local(offset + x + dist.get_rank()), 5, ranks=2, timeout=60)
    assert all(isinstance(result, Local) for result in results)
    assert [result.value.tolist() for result in results] == [[5, 6, 7], [6, 7, 8]]


def test_any_picklable_result_comes_back_whole():
    big = launch(lambda: Pair(dist.get_rank(), torch.full((2**20,), 7.0)), ranks=2, timeout=60)
    assert [pair.rank for pair in big] == [0, 1]
    assert all(torch.equal(pair.tensor, torch.full((2**20,), 7.0)) for pair in big)
    assert launch(lambda: None, ranks=2, timeout=60) == [None, None]


def test_gradients_and_parameters_may_be_returned():
    def step():
        layer = torch.nn.Linear(2, 1)
        layer(torch.ones(1, 2)).sum().backward()
        return layer.weight, layer.weight.grad

    (weight, grad), _ = launch(step, ranks=2, timeout=60)
    assert isinstance(weight, torch.nn.Parameter)
    assert grad.tolist() == [[1.0, 1.0]]


def test_output_is_printed_once_in_rank_order(capsys):
    def talk():
        time.sleep(0.1 * (2 - dist.get_rank()))
        print(f"line of {dist.get_rank()}\nsecond")
        os.write(1, b"from below Python\n")
        print("aside", file=sys.stderr)

    results = launch(talk, ranks=2, timeout=60)
    expected = "".join(
        f"[rank {rank}] line of {rank}\n[rank {rank}] second\n[rank {rank}] from below Python\n"
        for rank in range(2)
    )
    printed = capsys.readouterr()
    assert printed.out == expected == results.output
    assert printed.err == "[rank 0] aside\n[rank 1] aside\n"


def test_threads_are_shared_out_or_as_asked():
    assert launch(torch.get_num_threads, ranks=2, timeout=60) == [max(1, cores() // 2)] * 2
    assert launch(torch.get_num_threads, ranks=1, threads=1, timeout=60) == [1]


def test_each_launch_sees_the_environment_and_folder_of_now(monkeypatch, tmp_path):
    monkeypatch.setenv("LSDL_TEST_VALUE", "42")
    monkeypatch.chdir(tmp_path)
    results = launch(
        lambda: (os.environ["LSDL_TEST_VALUE"], os.getcwd(), os.environ["RANK"]),
        ranks=2,
        timeout=60,
    )
    assert results == [("42", str(tmp_path), "0"), ("42", str(tmp_path), "1")]


def test_ranks_left_out_is_4_and_2_at_the_smoke_tier(monkeypatch):
    if torch.cuda.device_count() >= 2:
        assert launch(dist.get_world_size, timeout=60).ranks == torch.cuda.device_count()
        return
    monkeypatch.delenv("LSDL_TIER", raising=False)
    assert launch(dist.get_world_size, timeout=60) == [4] * 4
    monkeypatch.setenv("LSDL_TIER", "smoke")
    assert launch(dist.get_world_size, timeout=60) == [2] * 2


def test_two_launches_at_once_do_not_meet():
    sums = {}

    def run(key):
        sums[key] = launch(sum_of_ranks, key, ranks=2, timeout=60)

    threads = [threading.Thread(target=run, args=(key,)) for key in (1, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == {1: [3.0, 3.0], 100: [300.0, 300.0]}


def test_progress_of_rank_0_reaches_the_parents_bar(monkeypatch, capfd):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)

    def work():
        for _ in progress(range(8), "training"):
            time.sleep(0.15)
        return list(progress("abc", "quick"))

    assert launch(work, ranks=2, timeout=60) == [["a", "b", "c"]] * 2
    err = capfd.readouterr().err
    assert "training" in err
    assert "/8" in err
    assert "quick" not in err  # done before a bar would be worth drawing
    assert "[rank 1]" not in err


def test_devices_and_who_speaks():
    assert launch(lambda: (device().type, on_main()), ranks=2, timeout=60, backend="gloo") == [
        ("cpu", True),
        ("cpu", False),
    ]
    assert on_main()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"ranks": 0}, ValueError, "ranks=0.*at least 1"),
        ({"ranks": -3}, ValueError, "ranks=-3"),
        ({"ranks": True}, ValueError, "ranks=True"),
        ({"ranks": 2.0}, ValueError, r"ranks=2\.0"),
        ({"timeout": 0}, ValueError, "timeout=0"),
        ({"timeout": float("nan")}, ValueError, "timeout=nan"),
        ({"threads": 0}, ValueError, "threads=0"),
        ({"backend": "mpi"}, ValueError, "backend='mpi'.*'nccl' or 'gloo'"),
        ({"backend": "nccl", "ranks": 1000}, ValueError, "1000 nccl ranks.*backend='gloo'"),
    ],
)
def test_arguments_that_cannot_work_are_refused_before_the_start(arguments, error, words):
    with pytest.raises(error, match=words):
        launch(dist.get_rank, **arguments)


def test_what_is_not_a_function_is_refused():
    with pytest.raises(TypeError, match="runs a function, got 3"):
        launch(3)


def test_an_argument_that_cannot_travel_is_refused_before_the_start():
    with pytest.raises(TypeError, match=r"needs_lock.*cannot be sent.*inside the function"):
        launch(needs_lock, threading.Lock(), ranks=2)


def needs_lock(lock):
    return lock


def test_launch_inside_a_rank_says_so():
    with pytest.raises(RuntimeError, match="launch was called inside rank 0"):
        launch(lambda: launch(lambda: 1), ranks=1, timeout=60)
