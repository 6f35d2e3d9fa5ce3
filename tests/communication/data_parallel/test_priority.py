"""Priorities: equal to one process; what is needed first goes first; the time that this saves."""

import time
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

from lsdl_lib import launch
from lsdl_lib.communication.collectives import ring_all_reduce
from lsdl_lib.communication.cost import Link, closed_forms
from lsdl_lib.communication.data_parallel import OverlappedDataParallel, PriorityDataParallel
from lsdl_lib.communication.data_parallel.order import as_ready, by_priority, in_order
from lsdl_lib.launch import LaunchError
from lsdl_lib.measure.virtual import virtual_clock
from lsdl_lib.models import Toy, toy_batch
from tests.communication.data_parallel.models import STEPS, loss_of, models, relative

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
SMALL = 2e-4  # MiB: several slices a layer


def differences():
    """Return {model: largest difference to one process after 20 steps}, and the plan."""
    p, rank, found = dist.get_world_size(), dist.get_rank(), {}
    for name in ("GPT", "tied", "frozen", "empty"):
        alone, batches = models(torch.float64)[name]
        single = SGD(alone.parameters())
        model = PriorityDataParallel(models(torch.float64)[name][0], SGD, slice_mb=SMALL)
        for inputs, labels in batches:
            single.zero_grad()
            loss_of(alone, inputs, labels).backward()
            single.step()
            loss_of(model, inputs[rank::p], labels[rank::p]).backward()
        model.synchronize()
        difference = relative(list(model.module.parameters()), list(alone.parameters()))
        found[name] = difference, model.order
    return found


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_equals_one_process_on_the_global_batch(ranks):
    run = launch(differences, ranks=ranks, threads=1, timeout=200)
    for found in run:
        for model, (difference, order) in found.items():
            assert difference < 1e-10, f"{model} after {STEPS} steps"
            assert order == run[0][model][1], "all ranks send in the same order"
            assert len(set(order)) == len(order) > 1


def test_the_most_urgent_slice_that_is_ready_goes_first():
    ready = [6.0, 2.0, 1.0]
    costs = [[1.0], [1.0, 1.0], [2.0, 2.0, 2.0]]
    sent = by_priority(ready, costs)
    # Layer 2 begins; at 3 layer 1 overtakes its other slices; at 5 nothing better waits; at 7
    # layer 0 does.
    assert sent == [
        (2, 0, 1.0, 3.0),
        (1, 0, 3.0, 4.0),
        (1, 1, 4.0, 5.0),
        (2, 1, 5.0, 7.0),
        (0, 0, 7.0, 8.0),
        (2, 2, 8.0, 10.0),
    ]
    first_come = in_order(as_ready(ready, costs), ready, costs)
    assert [one[:2] for one in first_come] == [(2, 0), (2, 1), (2, 2), (1, 0), (1, 1), (0, 0)]
    assert first_come[-1][2:] == (9.0, 10.0)


class Timed(torch.autograd.Function):
    """The identity that takes processor time forward and backward."""

    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.backward_seconds = backward
        burn(forward)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        burn(ctx.backward_seconds)
        return gradient, None, None


def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Layer(nn.Module):
    """A layer with n parameters and known times: they do not depend on the machine's load."""

    def __init__(self, n, forward, backward):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.seconds = forward, backward

    def forward(self, x):
        # The gradient of the weight is ready after the layer's backward time.
        return Timed.apply(x * self.weight.mean(), *self.seconds)


# (parameters, seconds forward): much to compute in front, much to send at the end, as in a VGG.
LAYERS = (1000, 0.03), (1000, 0.03), (2000, 0.015), (4000, 0.005)


def steps_in_a_row(version, steps=5):
    """Return the virtual seconds of the last step of ``version``, and the plan."""
    link = Link(alpha=1e-3, beta=1e-5)
    layers = nn.Sequential(*[Layer(n, s, 2 * s) for n, s in LAYERS])
    x = torch.ones(1, requires_grad=True)
    moments = []
    with virtual_clock(link) as clock:
        if version == "overlapped":
            model = OverlappedDataParallel(
                layers, bucket_mb=1e-3, first_bucket_mb=1e-3, all_reduce=ring_all_reduce
            )
            optimizer = SGD(model.parameters())
        else:
            model = PriorityDataParallel(
                layers, SGD, slice_mb=0.004, priorities=version == "priority"
            )
        for _ in range(steps):
            model(x).sum().backward()
            if version == "overlapped":
                optimizer.step()
                optimizer.zero_grad()
            moments.append(clock.read())
    return moments[-1] - moments[-2], getattr(model, "order", None)


def test_the_next_forward_pass_hides_what_the_backward_pass_could_not():
    """Communication 0.32 s, forward 0.08 s, backward 0.16 s."""

    def run():
        return {v: steps_in_a_row(v) for v in ("overlapped", "as ready", "priority")}

    found = launch(run, ranks=2, threads=1, timeout=300)
    link = Link(alpha=1e-3, beta=1e-5)
    communication = closed_forms.ring_all_reduce(2, 4 * 8000, link)
    in_slices = communication + 7 * 2 * link.alpha  # 8 slices pay their latencies
    seconds = {name: max(rank[name][0] for rank in found) for name in found[0]}
    # Nothing travels during the forward pass, nor before the first gradient is there.
    forward_and_first = 0.08 + 0.01
    assert seconds["overlapped"] > forward_and_first + communication
    assert seconds["as ready"] > 0.95 * seconds["overlapped"]  # the first layer still comes last
    # With priorities the network rests only while the last layer runs forward and backward.
    assert in_slices + 0.015 < seconds["priority"] < 1.15 * in_slices
    assert seconds["priority"] < 0.9 * seconds["overlapped"]
    assert found[0]["priority"][1] == found[1]["priority"][1] != found[0]["as ready"][1]


def test_gradients_accumulate_under_no_sync():
    def run():
        rank, results = dist.get_rank(), []
        for accumulate in (True, False):
            model = PriorityDataParallel(nn.Sequential(nn.Linear(1, 1, bias=False)), SGD)
            nn.init.zeros_(model.module[0].weight)
            for step in (1.0, 2.0):
                x = torch.tensor([[step * (rank + 1)]])
                if accumulate:
                    with model.no_sync():
                        model(x).sum().backward()
                    model(10 * x).sum().backward()
                else:
                    model(11 * x).sum().backward()
            model.synchronize()
            results.append(model.module[0].weight.item())
        return results

    # v = 16.5, then 0.9 * 16.5 + 33; w = -0.1 (16.5 + 47.85)
    for results in launch(run, ranks=2, threads=1, timeout=60):
        assert results == pytest.approx([-6.435, -6.435])


def test_a_saved_state_continues_bitwise_with_messages_on_their_way():
    def run():
        def model():
            return PriorityDataParallel(Toy("plain"), SGD, slice_mb=SMALL)

        def steps(model, seeds):
            for seed in seeds:
                loss_of(model, *toy_batch(4, seed=10 * seed + dist.get_rank())).backward()

        whole, first, second = model(), model(), model()
        steps(whole, range(6))
        whole.synchronize()  # one stream at a time on a group
        steps(first, range(3))
        second.load_state_dict(first.state_dict())
        steps(second, range(3, 6))
        states = whole.state_dict(), second.state_dict()
        names = [name for name in states[0] if "extra" not in name]
        return all(torch.equal(*(state[name] for state in states)) for name in names)

    assert launch(run, ranks=2, threads=1, timeout=60) == [True] * 2


def test_a_weight_used_by_two_layers_is_updated_before_the_first():
    """The first layer runs the second one's weight: it must wait for it."""

    def run():
        weight = nn.Linear(1, 1, bias=False)
        nn.init.ones_(weight.weight)

        class Uses(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = weight

            def forward(self, x):
                return self.inner(x)

        class Backwards(nn.Module):
            def __init__(self):
                super().__init__()
                self.late, self.early = Uses(), Uses()

            def forward(self, x):
                return self.late(self.early(x))

        model = PriorityDataParallel(Backwards(), partial(torch.optim.SGD, lr=0.25))
        x = torch.ones(1, 1)
        outputs = []
        for _ in range(2):
            outputs.append(model(x))
            outputs[-1].sum().backward()
        return [output.item() for output in outputs]

    # w = 1, gradient 2 w x = 2, then w = 0.5.
    assert launch(run, ranks=2, threads=1, timeout=60) == [[1.0, 0.25]] * 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PriorityDataParallel(Toy("plain"), SGD, slice_mb=0), "slice_mb=0"),
        (lambda: PriorityDataParallel(Toy("plain"), SGD).join(), "use another version"),
        (
            lambda: PriorityDataParallel(nn.Sequential(nn.Embedding(3, 1, sparse=True)), SGD),
            "sparse gradients cannot be cut",
        ),
        (
            lambda: PriorityDataParallel(
                nn.ModuleList([nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).double())]), SGD
            ),
            "layer 1 has parameters of several types",
        ),
    ],
)
def test_what_cannot_work_is_refused(make, words):
    with pytest.raises(LaunchError, match=words):
        launch(make, ranks=1, timeout=60)
