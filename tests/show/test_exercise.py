"""Exercises: the right function passes, each kind of wrong one gets a message that helps."""

import time

import pytest
import torch
import torch.distributed as dist

from lsdl_lib.show import ExerciseFailed, check_exercise


def check_ring_max(ring_max):
    got = ring_max(torch.tensor([dist.get_rank(), 5 - dist.get_rank()])).tolist()
    assert got == [1, 5], f"the largest of both ranks is [1, 5],\nyours is {got}"


def right(tensor):
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor


def test_the_right_function_passes_with_one_stable_line(capsys):
    check_exercise(check_ring_max, right)
    assert capsys.readouterr().out == "exercise ring max: passed on 2 ranks\n"


def test_the_starter_fails_with_the_lowest_ranks_words(capsys):
    wanted = "exercise ring max: rank 0: the largest of both ranks is [1, 5],\nyours is [0, 5]"
    for _ in range(2):
        with pytest.raises(ExerciseFailed) as caught:
            check_exercise(check_ring_max, lambda tensor: tensor)
        assert str(caught.value) == wanted
        assert caught.value._render_traceback_() == [f"ExerciseFailed: {wanted}"]
    assert "passed" not in capsys.readouterr().out


def test_one_wrong_rank_is_enough():
    def right_on_rank_0(tensor):
        tensor = right(tensor)
        return tensor if dist.get_rank() == 0 else tensor - 1

    with pytest.raises(ExerciseFailed, match=r"rank 1: .*\nyours is \[0, 4\]"):
        check_exercise(check_ring_max, right_on_rank_0)


def test_an_error_of_the_readers_code_comes_with_its_traceback():
    def typo(tensor):
        return tensor.maxx()

    with pytest.raises(
        ExerciseFailed, match=r"(?s)AttributeError: .*Traceback .*return tensor\.maxx"
    ):
        check_exercise(check_ring_max, typo)


def test_a_deadlock_ends():
    def waits(tensor):
        if dist.get_rank() == 0:
            dist.recv(tensor, src=1)
        return tensor

    start = time.monotonic()
    with pytest.raises(ExerciseFailed, match="rank"):
        check_exercise(check_ring_max, waits, timeout=3)
    assert time.monotonic() - start < 20


def test_a_silent_assertion_shows_where():
    def check_nothing(solution):
        raise AssertionError

    with pytest.raises(ExerciseFailed, match=r"(?s)rank 0.*Traceback.*in check_nothing"):
        check_exercise(check_nothing, right)


def test_arguments_are_functions():
    with pytest.raises(TypeError, match="solution=3"):
        check_exercise(check_ring_max, 3)
    with pytest.raises(TypeError, match="checker='x'"):
        check_exercise("x", right)
