"""The parameter server equals what it must, on real ranks, in real and in virtual time."""

import math
import signal
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from lsdl_lib import launch
from lsdl_lib.communication.cost import Link
from lsdl_lib.communication.relaxed.backup_workers import BackupWorkers
from lsdl_lib.communication.relaxed.channel import HEADER_BYTES
from lsdl_lib.communication.relaxed.delay_compensation import DelayCompensatedSGD
from lsdl_lib.communication.relaxed.pace import spend
from lsdl_lib.communication.relaxed.replay import replay
from lsdl_lib.communication.relaxed.rules import PlainSGD
from lsdl_lib.communication.relaxed.server import ParameterServer
from lsdl_lib.communication.relaxed.stale_synchronous import StaleSynchronous
from lsdl_lib.communication.relaxed.staleness_aware import StalenessAwareSGD
from lsdl_lib.communication.relaxed.worker import Worker
from lsdl_lib.launch import LaunchError
from lsdl_lib.measure import traffic
from lsdl_lib.measure.virtual import virtual_clock
from tests.communication.checks import error_of
from tests.communication.relaxed.serving import (
    LR,
    SIZE,
    flat,
    gradient,
    on_global_batch,
    parameters,
    start,
    train,
)

STEPS = 20
RULES = {
    "SGD": lambda: PlainSGD(LR),
    "staleness-aware": lambda: StalenessAwareSGD(LR),
    "compensated": lambda: DelayCompensatedSGD(LR, 0.1),
    "adaptively compensated": lambda: DelayCompensatedSGD(LR, 0.1, adaptive=True),
}


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("servers", [1, 2])
def test_without_staleness_it_is_sgd_on_the_global_batch(workers, servers):
    def run():
        found = {}
        for scripted in (False, True):
            rule = PlainSGD(LR / workers)
            one = train(STEPS, rule, StaleSynchronous(0), servers, scripted=scripted)
            found["bound 0", scripted] = one[1]
            if servers == 1:
                two = train(STEPS, PlainSGD(LR), BackupWorkers(0), scripted=scripted)
                found["no backups", scripted] = two[1]
        return found

    expected = on_global_batch(range(servers, servers + workers), STEPS)
    assert not torch.allclose(expected, start())
    for found in launch(run, ranks=servers + workers, threads=1, timeout=60):
        for case, weights in found.items():
            assert (weights - expected).abs().max() < 1e-10, case


def test_one_worker_is_plain_sgd_whatever_the_rule():
    def run():
        return {name: train(STEPS, rule(), scripted=True)[1] for name, rule in RULES.items()}

    expected = on_global_batch([1], STEPS)
    for found in launch(run, ranks=2, threads=1, timeout=60):
        for name in RULES:
            assert (found[name] - expected).abs().max() < 1e-12, name


@pytest.mark.parametrize("servers", [1, 2])
def test_the_log_replayed_in_one_process_gives_the_same_bits(servers):
    slow = {servers: 0.002}

    def run():
        found = {
            name: train(STEPS, rule(), servers=servers, seconds=slow)[:2]
            for name, rule in RULES.items()
        }
        bounded = StaleSynchronous(1)
        found["bound 1"] = train(STEPS, PlainSGD(LR), bounded, servers, seconds=slow)[:2]
        if servers == 1:
            found["backup"] = train(STEPS, PlainSGD(LR), BackupWorkers(1), seconds=slow)[:2]
            # Who leaves early can complete an update that the others wait for.
            uneven = {1: 3, 2: 5, 3: STEPS}
            found["uneven"] = train(uneven, PlainSGD(LR), BackupWorkers(0))[:2]
        return found

    ranks = launch(run, ranks=servers + 3, threads=1, timeout=60)
    for name in ranks[0]:
        logs = [found[name][0] for found in ranks[:servers]]
        final = ranks[0][name][1]
        again = replay(logs, start(), gradient, RULES.get(name, RULES["SGD"])())
        assert torch.equal(again, final), name
        assert not torch.equal(final, start())
        assert all(torch.equal(found[name][1], final) for found in ranks), name
        if name in RULES:
            assert logs[0].pushes() == dict.fromkeys(range(servers, servers + 3), STEPS)
            assert sum(logs[0].staleness().values()) == 3 * STEPS
    assert len(ranks[0]["SGD"][0].staleness()) > 1, "nothing was stale: this proves nothing"


def test_the_replay_notices_a_change():
    def run():
        return train(STEPS, PlainSGD(LR), seconds={1: 0.002})[:2]

    log, final = launch(run, ranks=4, threads=1, timeout=60)[0]
    assert not torch.equal(replay(log, start(), gradient, PlainSGD(1.001 * LR)), final)
    fresh = [type(e)(e.time, e.worker, e.step, e.version, e.version, e.fate) for e in log]
    assert not torch.equal(replay(type(log)(fresh), start(), gradient, PlainSGD(LR)), final)


def test_training_ends_after_a_number_of_updates():
    def run():
        return train(1000, servers=1, updates=30, seconds={1: 0.003})[:2]

    log, *workers = launch(run, ranks=4, threads=1, timeout=60)
    updates = [event for event in log[0] if event.fate == "applied"]
    assert len(updates) == 30
    assert log[0].dropped() <= 2  # pushes that were under way
    assert sum(steps for steps, _ in workers) == len(log[0])
    assert torch.equal(replay(log[0], start(), gradient, PlainSGD(LR)), log[1])


def test_bytes_are_counted():
    n = 8 * SIZE

    def run():
        with traffic() as counted:
            train(STEPS, PlainSGD(LR), StaleSynchronous(1), servers=2)
        return counted.sent_bytes, counted.received_bytes

    found = launch(run, ranks=5, threads=1, timeout=60)
    first, second = (8 * 6, 8 * 5)  # bytes of the shards of 11 numbers
    for server, (shard, other) in enumerate([(first, second), (second, first)]):
        sent, received = found[server]
        answers = 3 * (STEPS + 1)
        assert sent == (answers + 4) * (shard + HEADER_BYTES)
        assert received == 3 * STEPS * (shard + HEADER_BYTES) + 3 * HEADER_BYTES + (
            other + HEADER_BYTES
        )
    for sent, received in found[2:]:
        assert sent == STEPS * (n + 2 * HEADER_BYTES) + 2 * HEADER_BYTES
        assert received == (STEPS + 2) * (n + 2 * HEADER_BYTES)


@pytest.mark.parametrize("servers", [1, 2])
def test_virtual_time_is_a_push_and_a_pull_a_step(servers):
    # 100 bytes a second: what the processor does here is nothing beside a message of 0.5 to 1.3 s.
    link = Link(alpha=0.1, beta=0.01)
    steps = 4

    def run():
        weights = parameters()
        with virtual_clock(link) as clock:
            if dist.get_rank() < servers:
                return ParameterServer(weights, PlainSGD(LR), servers=servers).serve()[-1].time
            with Worker(weights, servers=servers) as worker:
                began = clock.read()
                for step in range(steps):
                    spend(2.0)
                    vector = gradient(1, step, flat(weights))
                    for w, g in zip(weights, vector.split([w.numel() for w in weights])):
                        w.grad = g.view(w.shape)
                    worker.step()
                return clock.read() - began

    *ends, worker = launch(run, ranks=servers + 1, threads=1, timeout=60)
    # The worker's port is shared by the messages to its servers, and so is the way back.
    shards = [HEADER_BYTES + 8 * size for size in ((SIZE,) if servers == 1 else (6, 5))]
    push = sum(link.seconds(n) for n in shards)
    if servers == 1:
        pull = link.seconds(shards[0])
        assert worker == pytest.approx(steps * (2.0 + push + pull), rel=0.02)
    else:
        # The first server's answer fills the way back while the second push is under way.
        first, second = (link.seconds(n) for n in shards)
        step = 2.0 + max(first + first, first + second) + second
        assert worker == pytest.approx(steps * step, rel=0.02)
    assert max(ends) < worker + sum(link.seconds(n) for n in shards)


def failing(servers, scripted, failing_rank, consistency):
    """Train until one rank raises; return (error's text, threads left) of this rank."""
    rank, weights = dist.get_rank(), parameters()

    class Broken(PlainSGD):
        def update(self, weights, gradient, staleness, seen):
            raise KeyError("no such rule")

    def work():
        if rank < servers:
            rule = Broken(LR) if rank == failing_rank else PlainSGD(LR)
            ParameterServer(weights, rule, consistency, servers=servers).serve()
            return
        with Worker(weights, servers=servers) as worker:
            for step in range(1 if rank == servers + 1 else 5):  # one leaves before
                if rank == failing_rank and step == 2:
                    raise KeyError("no such batch")
                worker.step()

    def timed():
        with virtual_clock(Link(1e-3, 0.0)):
            work()

    before = threading.active_count()
    text = error_of(timed if scripted else work)
    return text, threading.active_count() - before


@pytest.mark.parametrize("servers", [1, 2])
def test_an_error_anywhere_is_everybody_s(servers):
    failing_ranks = {"worker": servers, "server": 0}

    def run():
        return {
            (who, scripted, bound): failing(servers, scripted, rank, StaleSynchronous(bound))
            for who, rank in failing_ranks.items()
            for scripted in (False, True)
            for bound in (0, 3, math.inf)
        }

    ranks = launch(run, ranks=servers + 3, threads=1, timeout=60)
    for case in ranks[0]:
        failed = failing_ranks[case[0]]
        for rank, found in enumerate(ranks):
            text, threads = found[case]
            assert threads == 0, case
            if rank == failed:
                assert text.startswith("KeyError: 'no such"), case
            else:
                assert text.startswith("TrainingError"), case
                assert f"rank {failed} failed" in text, case


def test_a_silent_worker_ends_the_run_within_the_group_s_timeout():
    def run():
        group = dist.new_group(timeout=timedelta(seconds=2))
        began = time.monotonic()
        seconds = {2: 6.0}
        text = error_of(
            lambda: train(3, PlainSGD(LR), StaleSynchronous(0), seconds=seconds, group=group)
        )
        return text, time.monotonic() - began

    found = launch(run, ranks=3, threads=1, timeout=30)
    assert "worker on rank 2 is gone" in found[0][0]
    assert found[0][1] < 5
    assert found[1][0] is not None
    assert found[1][1] < 5


def test_a_killed_worker_is_named():
    def run():
        if dist.get_rank() == 2:
            signal.raise_signal(signal.SIGKILL)
        train(3)

    began = time.monotonic()
    with pytest.raises(LaunchError, match="rank 2"):
        launch(run, ranks=3, threads=1, timeout=60)
    assert time.monotonic() - began < 20


def test_no_thread_is_left():
    def run():
        before = threading.active_count()
        train(3)
        return threading.active_count() - before

    assert launch(run, ranks=3, threads=1, timeout=30) == [0, 0, 0]


def test_a_saved_server_goes_on_as_if_never_stopped():
    def run():
        found = {}
        for name, rule in RULES.items():
            log, whole, _ = train(STEPS, rule(), scripted=True)
            _, half, server = train(STEPS // 2, rule(), scripted=True)
            state = server.state_dict() if server else None
            # The steps are numbered on: the worker leaves out those that are done.
            _, again, _ = train(range(STEPS // 2, STEPS), rule(), scripted=True, state=state)
            found[name] = (torch.equal(again, whole), torch.equal(half, whole))
            if server and name == "SGD":  # a log that begins later replays too
                late = type(log)(log[STEPS // 2 :])
                assert torch.equal(replay(late, half, gradient, rule()), whole)
        return found

    for found in launch(run, ranks=2, threads=1, timeout=30):
        assert found == dict.fromkeys(RULES, (True, False))


def test_a_server_loads_its_state():
    def run():
        state = {"weights": torch.full((SIZE,), 7.0).double(), "version": 5, "rule": {}}
        log, weights, _ = train(0, state=state)
        return weights, log

    found = launch(run, ranks=2, threads=1, timeout=30)
    assert all(bool((weights == 7).all()) for weights, _ in found)


def test_what_cannot_work_is_refused_before_anything_is_sent():
    def run():
        rank = dist.get_rank()
        one, two = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1).double())
        if rank == 0:
            return [
                error_of(lambda: ParameterServer([one], PlainSGD(LR), servers=2)),
                error_of(lambda: ParameterServer([one], PlainSGD(LR), servers=0)),
                error_of(lambda: ParameterServer([one, two], PlainSGD(LR))),
                error_of(lambda: ParameterServer([one], PlainSGD(LR), BackupWorkers(1))),
                error_of(lambda: Worker([one])),
                error_of(lambda: BackupWorkers(-1)),
                error_of(lambda: StaleSynchronous(-1)),
                error_of(lambda: PlainSGD(-1)),
                error_of(lambda: DelayCompensatedSGD(LR, decay=1)),
            ]
        return [error_of(lambda: ParameterServer([one], PlainSGD(LR)))]

    texts = [text for texts in launch(run, ranks=2, threads=1, timeout=30) for text in texts]
    assert all(text is not None and text.startswith("ValueError") for text in texts), texts
    assert "rank 1 is a worker" in texts[-1]
