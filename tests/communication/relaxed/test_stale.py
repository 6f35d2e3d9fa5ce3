"""Who waits for whom: staleness, bounds and backup workers, on a clock that is the same each run.

A step takes the seconds that the test says, a message 1 ms. The oracle is a simulation of the
events in a few lines, without messages.
"""

import heapq
import math
from collections import Counter

import pytest
import torch

from lsdl_lib import launch
from lsdl_lib.communication.relaxed.backup_workers import BackupWorkers
from lsdl_lib.communication.relaxed.replay import replay
from lsdl_lib.communication.relaxed.rules import PlainSGD
from lsdl_lib.communication.relaxed.stale_synchronous import StaleSynchronous
from tests.communication.relaxed.serving import LINK, LR, gradient, start, train

STEPS = 12
SLOW = {1: 5.0, 2: 1.0, 3: 1.1}  # rank 1 takes five times as long


def simulated(seconds, steps, bound, start_at=0.0):
    """Return [(worker, step, staleness)] in order of pushes of a stale synchronous server."""
    message = LINK.seconds(0)
    version, done = 0, dict.fromkeys(seconds, 0)
    seen, waiting, order = dict.fromkeys(seconds, 0), [], []
    coming = [(start_at + message + s + message, worker) for worker, s in seconds.items()]
    heapq.heapify(coming)
    while coming:
        now, worker = heapq.heappop(coming)
        if done[worker] == steps:  # it says goodbye
            del done[worker]
        else:
            order.append((worker, done[worker], version - seen[worker]))
            version += 1
            done[worker] += 1
            waiting.append(worker)
        for one in list(waiting):
            if done[one] - min(done.values()) <= bound:
                waiting.remove(one)
                seen[one] = version
                busy = seconds[one] if done[one] < steps else 0.0
                heapq.heappush(coming, (now + message + busy + message, one))
    return order


def runs():
    """Train with several bounds on the scripted clock, twice each; the logs where rank is 0."""
    return {
        (bound, again): train(STEPS, None, StaleSynchronous(bound), seconds=SLOW, scripted=True)[:2]
        for bound in (0, 1, 2, 3, math.inf)
        for again in (0, 1)
    }


@pytest.fixture(scope="module")
def logs():
    return launch(runs, ranks=4, threads=1, timeout=120)[0]


@pytest.mark.parametrize("bound", [0, 1, 2, 3, math.inf])
def test_the_order_of_pushes_is_that_of_virtual_time(logs, bound):
    log = logs[bound, 0][0]
    found = [(event.worker, event.step, event.staleness) for event in log]
    assert found == simulated(SLOW, STEPS, bound)
    assert logs[bound, 1][0] == log, "the same on every run, times included"
    assert torch.equal(logs[bound, 1][1], logs[bound, 0][1])


@pytest.mark.parametrize("bound", [0, 1, 2, 3])
def test_the_fastest_leads_the_slowest_by_the_bound_and_no_more(logs, bound):
    log = logs[bound, 0][0]
    assert max(log.leads()) == bound
    assert max(logs[math.inf, 0][0].leads()) > 3
    assert max(log.staleness()) <= (2 * bound + 1) * (3 - 1)
    if bound == 0:
        assert log.staleness() == {0: STEPS, 1: STEPS, 2: STEPS}


def test_without_a_bound_the_slow_worker_s_gradients_are_old(logs):
    log = logs[math.inf, 0][0]
    middle = [event for event in log if event.worker == 1 and event.step in (0, 1)]
    # The two others push about 5 and 4.5 times while it computes.
    assert all(8 <= event.staleness <= 10 for event in middle)
    assert log.pushes() == {1: STEPS, 2: STEPS, 3: STEPS}
    # And nobody waits for it.
    last = {rank: max(e.time for e in log if e.worker == rank) for rank in SLOW}
    assert last[2] == pytest.approx(STEPS * 1.0, rel=0.01)
    assert last[1] == pytest.approx(STEPS * 5.0, rel=0.01)


def test_with_bound_0_all_go_at_the_pace_of_the_slowest(logs):
    log = logs[0, 0][0]
    assert log[-1].time == pytest.approx(STEPS * 5.0, rel=0.01)
    assert max(e.time for e in log if e.worker == 2) > (STEPS - 1) * 5.0


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_of_one_pace_have_staleness_p_minus_1(workers):
    def run():
        return train(STEPS, PlainSGD(LR), seconds={}, scripted=True)[0]

    log = launch(run, ranks=workers + 1, threads=1, timeout=60)[0]
    steady = [event.staleness for event in log[workers:]]
    assert Counter(steady) == {workers - 1: (STEPS - 1) * workers}


def test_backup_workers_drop_the_slowest_and_do_not_wait():
    def run():
        return [
            train(1000, PlainSGD(LR), BackupWorkers(b), updates=STEPS, seconds=SLOW, scripted=True)[
                :2
            ]
            for b in (0, 1, 2)
        ]

    by_backups = launch(run, ranks=4, threads=1, timeout=60)[0]
    for backups, pace in ((0, 5.0), (1, 1.1), (2, 1.0)):
        log, final = by_backups[backups]
        assert log.staleness() == {0: STEPS * (3 - backups)}
        ends = [event.time for event in log if event.fate == "applied"]
        assert len(ends) == STEPS
        assert ends[-1] == pytest.approx(STEPS * pace, rel=0.02)
        assert torch.equal(replay(log, start(), gradient, PlainSGD(LR)), final)
    assert by_backups[0][0].dropped() == 0
    fates = Counter((event.worker, event.fate == "dropped") for event in by_backups[1][0])
    assert fates[1, True] == 3  # after 5 s, after 10 s, and at the end
    assert fates[1, False] == 0


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_the_bound_holds_in_real_time(bound):
    def run():
        return train(STEPS, PlainSGD(LR), StaleSynchronous(bound), seconds={1: 0.01})[0]

    log = launch(run, ranks=4, threads=1, timeout=60)[0]
    assert max(log.leads()) <= bound
    assert max(log.staleness()) <= (2 * bound + 1) * 2
    assert len(log) == 3 * STEPS
