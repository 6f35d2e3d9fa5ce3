"""The sharded parameter server: equal to one process, its traffic as its formula says."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

from lsdl_lib import launch
from lsdl_lib.communication.cost import Link
from lsdl_lib.communication.data_parallel import ParameterServer
from lsdl_lib.launch import LaunchError
from lsdl_lib.measure import traffic
from lsdl_lib.measure.virtual import virtual_clock
from lsdl_lib.models import Toy, toy_batch
from tests.communication.data_parallel.models import STEPS, loss_of, models, relative

OPTIMIZERS = {
    "SGD": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "Adam": partial(torch.optim.Adam, lr=0.01),
}


def differences(servers, workers):
    """Return {model: largest difference to one process after 20 steps}, workers only."""
    found = {}
    for name, optimizer in (("ConvNet", "SGD"), ("tied", "Adam"), ("empty", "SGD")):
        make = OPTIMIZERS[optimizer]
        alone, batches = models(torch.float64)[name]
        single = make(alone.parameters())
        model = ParameterServer(
            models(torch.float64)[name][0], make, servers=servers, workers=workers
        )
        p, rank = dist.get_world_size(), dist.get_rank()
        working = workers or p
        part = slice(rank - (p - working), None, working)
        for inputs, labels in batches:
            single.zero_grad()
            loss_of(alone, inputs, labels).backward()
            single.step()
            if model.works:
                loss_of(model, inputs[part], labels[part]).backward()
            model.step()
        if model.works:
            found[name] = relative(list(model.module.parameters()), list(alone.parameters()))
    return found


@pytest.mark.parametrize(
    ("ranks", "servers", "workers"),
    [(1, None, None), (2, 1, None), (4, None, None), (4, 3, None), (3, 1, 2)],
)
def test_equals_one_process_on_the_global_batch(ranks, servers, workers):
    run = launch(differences, servers, workers, ranks=ranks, threads=1, timeout=120)
    assert sum(bool(found) for found in run) == (workers or ranks)
    for found in run:
        for model, difference in found.items():
            assert difference < 1e-10, f"{model} after {STEPS} steps"


def sent(ranks, servers, workers):
    """Return the (bytes sent, bytes received) of each rank in one step of 4 * 60 bytes."""

    def run():
        model = ParameterServer(
            nn.Linear(59, 1), OPTIMIZERS["SGD"], servers=servers, workers=workers
        )
        if model.works:
            model(torch.ones(1, 59)).sum().backward()
        with traffic() as seen:
            model.step()
        return seen.sent_bytes, seen.received_bytes

    return list(launch(run, ranks=ranks, threads=1, timeout=60))


@pytest.mark.parametrize(("servers", "workers"), [(1, 4), (2, 3), (3, 1)])
def test_a_server_moves_2_w_n_over_s_bytes_for_w_workers_elsewhere(servers, workers):
    n = 240
    both_ways = [sum(pair) for pair in sent(servers + workers, servers, workers)]
    assert both_ways[:servers] == [2 * workers * n // servers] * servers
    assert both_ways[servers:] == [2 * n] * workers


def test_with_every_rank_a_server_nobody_sends_more_than_in_a_ring():
    assert sent(4, None, None) == [(2 * 3 * 240 // 4,) * 2] * 4


@pytest.mark.parametrize("servers", [1, 4])
def test_messages_to_a_server_arrive_one_by_one(servers):
    """Virtual time is 2 (p-1) (alpha + n beta / S) on a server."""
    link, n = Link(alpha=0.2, beta=1e-2), 240

    def run():
        model = ParameterServer(nn.Linear(59, 1), OPTIMIZERS["SGD"], servers=servers)
        model(torch.ones(1, 59)).sum().backward()
        with virtual_clock(link) as clock:
            model.step()
        return clock.now

    expected = 2 * 3 * link.seconds(n / servers)
    assert expected <= max(launch(run, ranks=4, threads=1, timeout=60)) <= expected * 1.05


def test_a_saved_state_continues_bitwise():
    def run():
        def model():
            return ParameterServer(Toy("plain"), OPTIMIZERS["Adam"], servers=2)

        def steps(model, seeds):
            for seed in seeds:
                inputs, labels = toy_batch(4, seed=10 * seed + dist.get_rank())
                loss_of(model, inputs, labels).backward()
                model.step()

        whole, first, second = model(), model(), model()
        steps(whole, range(6))
        steps(first, range(3))
        second.load_state_dict(first.state_dict())
        steps(second, range(3, 6))
        return all(torch.equal(a, b) for a, b in zip(whole.parameters(), second.parameters()))

    assert launch(run, ranks=3, threads=1, timeout=60) == [True] * 3


def test_half_precision_is_divided_before_the_sum():
    def run():
        model = nn.Linear(1, 1, bias=False).half()
        nn.init.zeros_(model.weight)
        server = ParameterServer(model, partial(torch.optim.SGD, lr=1.0))
        server(torch.full((1, 1), 40000.0, dtype=torch.float16)).sum().backward()
        server.step()
        return model.weight.item()

    assert launch(run, ranks=2, threads=1, timeout=60) == [-40000.0] * 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"servers": 3}, "give numbers from 1 to 2 ranks"),
        ({"workers": 1, "servers": 0}, "servers=0|leave no rank idle"),
        ({"servers": -1}, "servers=-1"),
    ],
)
def test_wrong_numbers_are_refused(options, words):
    def run():
        ParameterServer(nn.Linear(1, 1), OPTIMIZERS["SGD"], **options)

    with pytest.raises(LaunchError, match=words):
        launch(run, ranks=2, timeout=60)


def test_two_types_are_refused():
    def run():
        layers = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).double())
        ParameterServer(layers, OPTIMIZERS["SGD"])

    with pytest.raises(LaunchError, match="one vector needs one type"):
        launch(run, ranks=1, timeout=60)
