"""Two clocks on one piece of work, and the bound that cores set."""

import time

import pytest

from lsdl_lib import launch
from lsdl_lib.foundations import by_both_clocks, least_seconds
from lsdl_lib.launch.context import cores


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_sleeping_is_wall_time_and_no_processor_time():
    clocked = by_both_clocks(lambda: time.sleep(0.2))
    assert clocked.wall >= 0.2
    assert clocked.processor < 0.1


def test_computing_is_both():
    clocked = by_both_clocks(lambda: spin(0.1))
    assert 0.1 <= clocked.processor < 0.15
    assert clocked.wall >= 0.1


@pytest.mark.parametrize(
    ("needs", "number", "least"),
    [
        ([1, 1, 1, 1], 2, 2.0),  # shared evenly
        ([1, 1, 1, 1], 4, 1.0),
        ([1, 1, 1, 1], 16, 1.0),  # more cores than ranks help nobody
        ([1, 1, 1, 1], 1, 4.0),
        ([3, 1, 1], 2, 3.0),  # the longest rank cannot be cut
        ([2.5], 1, 2.5),
    ],
)
def test_least_time_by_hand(needs, number, least):
    assert least_seconds(needs, number) == least


def test_no_run_of_real_ranks_beats_the_bound():
    ranks = launch(lambda: by_both_clocks(lambda: spin(0.2)), ranks=3 * cores(), threads=1)
    least = least_seconds([rank.processor for rank in ranks], cores())
    assert least >= 0.6
    # Ranks do not start together: the first may have a core for itself for a moment.
    assert max(rank.wall for rank in ranks) >= 0.5 * least


def test_values_that_make_no_sense_are_named():
    with pytest.raises(ValueError, match="processor_seconds is empty"):
        least_seconds([], 2)
    with pytest.raises(ValueError, match="cores=0"):
        least_seconds([1.0], 0)
