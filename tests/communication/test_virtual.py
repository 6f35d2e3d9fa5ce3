"""The virtual clock: real ranks, and times that follow the link model.

The links are slow (latency 0.2 s) beside the processor time of these small calls, so that a
tolerance of 5 % is above anything that the machine does.
"""

import sys
import threading
import time
import warnings

import pytest
import torch
import torch.distributed as dist

from lsdl_lib import launch
from lsdl_lib.communication import collectives
from lsdl_lib.communication.cost import Link, TwoLevels, closed_forms
from lsdl_lib.measure import virtual
from lsdl_lib.measure.virtual import VirtualClock, current, virtual_clock

LINK = Link(alpha=0.2, beta=1e-5)
TOLERANCE = 0.05
METHODS = {name: getattr(collectives, f"{name}_all_reduce") for name in closed_forms.ALL_REDUCE}


def work(seconds):
    """Use this thread's processor for some seconds."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def close(virtual, expected, extra=0.02):
    """As expected, plus at most 5 % and the processor time of the calls."""
    return expected <= virtual <= expected * (1 + TOLERANCE) + extra


@pytest.mark.parametrize("p", [2, 3, 4, 8])
def test_every_all_reduce_takes_the_time_of_its_closed_form(p):
    n = 48 * p  # elements of 4 bytes

    def run():
        times = {}
        for name, fn in METHODS.items():
            with virtual_clock(LINK) as clock:
                fn(torch.ones(n))
            times[name] = clock.now
        return times

    began = time.monotonic()
    ranks = launch(run, ranks=p, threads=1, timeout=60)
    for name in METHODS:
        latest = max(times[name] for times in ranks)
        assert close(latest, closed_forms.ALL_REDUCE[name](p, 4 * n, LINK)), name
    assert time.monotonic() - began < 30  # the link's latencies are not waited for


def test_computation_counts_and_hides_behind_communication():
    def run():
        tensor = torch.ones(10)
        with virtual_clock(LINK) as clock:
            work(0.1)
            handle = collectives.ring_all_reduce(tensor, async_op=True)
            work(0.3)  # less than the ring's 0.4 s
            before = clock.read()
            handle.wait()
        hidden = clock.now
        with virtual_clock(LINK) as clock:
            handle = collectives.ring_all_reduce(tensor, async_op=True)
            work(0.6)
            handle.wait()
        return before, hidden, clock.now, tensor[0].item()

    ring = closed_forms.ring_all_reduce(2, 40, LINK)
    for before, hidden, computation_bound, value in launch(run, ranks=2, threads=1, timeout=60):
        assert close(before, 0.4)
        assert close(hidden, 0.1 + ring)
        assert close(computation_bound, 0.6)
        assert value == 4.0


def test_a_straggler_holds_up_those_who_wait_for_it():
    def run():
        with virtual_clock(LINK) as clock:
            if dist.get_rank() == 1:
                work(0.5)
            collectives.ring_all_reduce(torch.ones(4))
        return clock.now

    ring = closed_forms.ring_all_reduce(3, 16, LINK)
    ranks = launch(run, ranks=3, threads=1, timeout=60)
    assert close(max(ranks), 0.5 + ring)
    assert min(ranks) > 0.5


def test_sleeping_takes_no_virtual_time():
    def run():
        with virtual_clock(LINK) as clock:
            time.sleep(0.5)
        return clock.now

    assert launch(run, ranks=1, timeout=60)[0] < 0.05


def test_torchs_own_collectives_start_at_the_latest_rank_and_cost_what_was_said():
    def cost(name, p, n_bytes):
        return {"all_reduce": 1.0, "all_gather": 2.0}[name] + n_bytes

    def run():
        with virtual_clock(LINK, cost) as clock:
            if dist.get_rank() == 1:
                work(0.3)
            dist.all_reduce(torch.ones(2))
            first = clock.read()
            dist.all_gather([torch.zeros(1) for _ in range(2)], torch.ones(1))
        return first, clock.now

    for first, second in launch(run, ranks=2, threads=1, timeout=60):
        assert close(first, 0.3 + 1 + 8)
        assert close(second, 0.3 + 1 + 8 + 2 + 8)


def test_a_collective_without_a_cost_warns():
    def run():
        with warnings.catch_warnings(record=True) as seen, virtual_clock(LINK):
            dist.barrier()
            dist.all_reduce(torch.ones(2))
        return [str(warning.message) for warning in seen]

    for (text,) in launch(run, ranks=2, threads=1, timeout=60):
        assert text.startswith("torch's own all_reduce takes no time on this virtual clock")


def test_links_of_two_levels_are_between_global_ranks():
    links = TwoLevels(Link(0.1, 0), Link(1.0, 0), ranks_per_node=2)

    def run():
        across = dist.new_group([0, 2])
        with virtual_clock(links) as clock:
            if dist.get_rank() in (0, 2):
                collectives.ring_all_reduce(torch.ones(2), group=across)
        return clock.now

    assert close(launch(run, ranks=4, timeout=60)[0], 2.0)


def test_without_a_clock_messages_carry_nothing_more():
    def run():
        with virtual_clock(LINK):
            inside = current() is not None
        return inside, current()

    assert launch(run, ranks=1, timeout=60) == [(True, None)]


def test_a_thread_keeps_its_clock_while_others_come_and_go(monkeypatch):
    """Without a clock a message carries no time, and its receiver waits for one for ever."""

    class Shrinking(list):
        """Another thread leaves just after this one has begun to look."""

        def __reversed__(self):
            found = super().__reversed__()
            del self[0]
            return found

    clock, other = (VirtualClock(LINK) for _ in range(2))
    running = Shrinking([(-1, other), (threading.get_ident(), clock)])
    monkeypatch.setattr(virtual, "_running", running)
    assert current() is clock
    monkeypatch.undo()
    lost = []

    def come_and_go():
        for _ in range(1000):
            mine = VirtualClock(LINK)
            with virtual.use(mine):
                lost.extend(1 for _ in range(5) if current() is not mine)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert lost == []
