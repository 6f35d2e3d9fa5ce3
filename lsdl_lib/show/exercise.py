"""Check a reader's function on several ranks: one stable line if right, one clear error if not."""

import time

import torch.distributed as dist

from lsdl_lib.launch import LaunchError, launch, on_main

SECONDS_A_RANK = 0.2


class ExerciseFailed(AssertionError):
    """The reader's function is not right yet. The message says on which rank, and what is wrong."""

    def _render_traceback_(self):
        """Show a notebook the message alone: the traceback is the checker's, not the reader's."""
        return [f"{type(self).__name__}: {self}"]


def check_exercise(checker, solution, *, ranks=2, timeout=60.0):
    """Run ``checker(solution)`` on every rank and print one line if no rank objects.

    ::

        def check_ring_max(ring_max):
            rank = dist.get_rank()
            got = ring_max(torch.tensor([rank, 5 - rank]))
            assert got.tolist() == [1, 5], f"the largest of both ranks is [1, 5], yours is {got}"

        check_exercise(check_ring_max, my_ring_max)   # exercise ring max: passed on 2 ranks

    Args:
        checker: a function of the solution that runs inside ``launch`` and raises AssertionError,
            with a text that helps, where the solution is wrong. Its name, without ``check_``,
            names the exercise.
        solution: the reader's function (or class).
        ranks: number of ranks, at least 1.
        timeout: seconds; a solution that deadlocks ends then.

    Raises:
        ExerciseFailed: a rank raised, died or hung; the message names it and says what it said.
        TypeError: checker or solution cannot be called.
    """
    for what, value in {"checker": checker, "solution": solution}.items():
        if not callable(value):
            raise TypeError(f"{what}={value!r}: give a function")
    name = checker.__name__.removeprefix("check_").replace("_", " ")
    try:
        launch(_check, checker, solution, ranks=ranks, timeout=timeout)
    except LaunchError as error:
        raise ExerciseFailed(f"exercise {name}: {_what_it_said(error)}") from error
    if on_main():
        print(f"exercise {name}: passed on {ranks} rank{'s' * (ranks > 1)}")


def _check(checker, solution):
    try:
        checker(solution)
    except AssertionError:
        # When all ranks object, the reader should always read the same one: the lowest.
        time.sleep(SECONDS_A_RANK * dist.get_rank())
        raise


def _what_it_said(error):
    """Return an assertion's own text; of any other failure everything, for debugging."""
    said, _, traceback = str(error).partition("\n\nTraceback (most recent call last)")
    prefix = f"rank {error.rank} raised AssertionError: "
    if traceback and said.startswith(prefix):
        return f"rank {error.rank}: {said.removeprefix(prefix)}"
    return str(error)
