"""Streams, timelines of steps, and what they predict."""

import statistics
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

from lsdl_lib import launch
from lsdl_lib.communication.collectives import ring_all_reduce
from lsdl_lib.communication.cost import Link, closed_forms
from lsdl_lib.communication.data_parallel import (
    BucketedDataParallel,
    NaiveDataParallel,
    OverlappedDataParallel,
    Profile,
    Stream,
    fit_calls,
    predict_in_turn,
    predict_overlapped,
    predict_priority,
    recorded,
)
from lsdl_lib.communication.data_parallel.prediction import contents
from lsdl_lib.measure.network import join, network
from lsdl_lib.measure.virtual import virtual_clock
from tests.communication.data_parallel.test_priority import Layer, burn

LINK = Link(alpha=2e-3, beta=1e-5)
SIZES = 2000, 1000, 500, 3000
FORWARD, BACKWARD = 0.02, 0.04  # seconds a layer


def test_calls_of_a_stream_follow_each_other():
    """Two calls of 0.08 s each, both at 0: the second ends at 0.16 s, the first is not held up."""

    def run():
        first, second = torch.ones(7000), torch.ones(7000)
        stream = Stream(ring_all_reduce)
        stream.log = []
        with virtual_clock(Link(alpha=0.01, beta=2.5e-6)):
            handles = [stream(tensor, async_op=True) for tensor in (first, second)]
            for handle in handles:
                handle.wait()
            stream(first)  # and a third that waits for itself
        return stream.log, first[0].item(), second[0].item()

    one = closed_forms.ring_all_reduce(2, 28_000, Link(alpha=0.01, beta=2.5e-6))
    for log, first, second in launch(run, ranks=2, threads=1, timeout=60):
        assert (first, second) == (4.0, 2.0)
        assert [call.n_bytes for call in log] == [28_000] * 3
        for k, call in enumerate(log):
            assert call.end == pytest.approx((k + 1) * one, rel=0.1)
        assert log[1].called < 0.02
        assert log[1].start == pytest.approx(log[0].end, abs=0.01)


def test_a_new_clock_does_not_wait_for_the_end_on_an_old_one():
    def run():
        stream, times = Stream(ring_all_reduce), []
        for _ in range(2):
            with virtual_clock(LINK) as clock:
                stream(torch.ones(100), async_op=True).wait()
            times.append(clock.now)
        return times

    for first, second in launch(run, ranks=2, threads=1, timeout=60):
        assert second < 1.5 * first


def test_a_stream_runs_on_the_wall_clock_and_stops_at_an_error():
    def broken(tensor, op=None, group=None):
        if tensor.numel() == 1:
            raise KeyError("one")
        time.sleep(0.05)

    stream = Stream(broken)
    stream.log = []
    handles = [stream(torch.ones(n), async_op=True) for n in (2, 3, 1, 2)]
    assert [handle.wait() for handle in handles[:2]] == [True, True]
    with pytest.raises(KeyError):
        handles[2].wait()
    with pytest.raises(RuntimeError, match="before this one in its stream failed"):
        handles[3].wait()
    assert [call.n_bytes for call in stream.log] == [8, 12]
    assert stream.log[1].start >= stream.log[0].end > stream.log[0].start + 0.04


def layers():
    return nn.Sequential(*[Layer(n, FORWARD, BACKWARD) for n in SIZES])


def record(steps=3):
    """Return {version: this rank's timelines}, and the buckets' contents."""
    small = {"bucket_mb": 0.005, "first_bucket_mb": 0.002}
    versions = {
        "naive": NaiveDataParallel(layers(), all_reduce=ring_all_reduce),
        "bucketed": BucketedDataParallel(layers(), all_reduce=ring_all_reduce, **small),
        "overlapped": OverlappedDataParallel(layers(), all_reduce=Stream(ring_all_reduce), **small),
    }
    x, timelines = torch.ones(1, requires_grad=True), {name: [] for name in versions}
    for _ in range(steps):
        for name, model in versions.items():
            # The second rank is slower: it holds up the first.
            with virtual_clock(LINK), recorded(model, list(model.module)) as timeline:
                output = model(x)
                burn(0.01 * dist.get_rank())
                output.sum().backward()
            model.zero_grad()
            timelines[name].append(timeline)
    names = [type(model.all_reduce) is Stream for model in versions.values()]
    return timelines, contents(versions["overlapped"].buckets), names


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_overlap_is_predicted_from_the_naive_run_alone(ranks):
    run = launch(record, ranks=ranks, threads=1, timeout=200)
    timelines, buckets = [of_rank[0] for of_rank in run], run[0][1]
    steps = {name: list(zip(*(t[name] for t in timelines))) for name in timelines[0]}
    profile, fit = Profile.of(steps["naive"]), fit_calls(steps["naive"])
    forward, lag = len(SIZES) * FORWARD, 0.01 * (ranks - 1)
    # What the naive run says: when each gradient is ready on the latest rank.
    assert profile.forward == pytest.approx(forward, rel=0.1)
    assert list(profile.ready) == [3, 2, 1, 0]
    for place, index in enumerate(profile.ready):
        expected = forward + lag + (place + 1) * BACKWARD
        assert profile.ready[index] == pytest.approx(expected, rel=0.1)
    assert profile.layers == pytest.approx([k * FORWARD for k in range(4)], abs=0.01)
    for n in (4000, 12_000):
        expected = closed_forms.ring_all_reduce(ranks, n, LINK)
        assert fit.seconds(n) == pytest.approx(expected, rel=0.2)
    # And what follows from it.
    for name, predict in (("bucketed", predict_in_turn), ("overlapped", predict_overlapped)):
        measured = sorted(max(t.end for t in ranks_) for ranks_ in steps[name])[1]
        assert predict(profile, buckets, fit.seconds).seconds == pytest.approx(measured, rel=0.15)
    ends = [call.end for call in steps["overlapped"][1][0].calls]
    predicted = [end for _, _, end in predict_overlapped(profile, buckets, fit.seconds).buckets]
    assert len(ends) == len(predicted) == len(buckets) > 1
    assert ends == pytest.approx(predicted, rel=0.15)
    assert [of_rank[2] for of_rank in run] == [[False, False, True]] * ranks  # all put back


def test_a_step_by_hand():
    """Two buckets of 3 s; the first is ready at 4, the second at 6; backward ends at 8."""
    profile = Profile(layers=(), forward=2.0, backward=8.0, ready={2: 4.0, 0: 6.0, 1: 5.0})
    buckets = [([2], 30), ([0, 1], 30)]
    overlapped = predict_overlapped(profile, buckets, lambda n: n / 10)
    assert overlapped.buckets == ((4.0, 4.0, 7.0), (6.0, 7.0, 10.0))
    assert overlapped.seconds == 10.0
    assert predict_in_turn(profile, buckets, lambda n: n / 10).seconds == 14.0
    assert predict_overlapped(profile, buckets, lambda n: 0.1).seconds == 8.0
    # In the other order the first bucket is ready late, and holds up the one behind it.
    other = predict_overlapped(profile, buckets[::-1], lambda n: n / 10)
    assert other.buckets == ((6.0, 6.0, 9.0), (6.0, 9.0, 12.0))


def test_bars_of_a_recorded_step():
    def run():
        model = OverlappedDataParallel(layers(), all_reduce=Stream(ring_all_reduce))
        with virtual_clock(LINK), recorded(model) as timeline:
            model(torch.ones(1, requires_grad=True)).sum().backward()
        return timeline.spans(), timeline.end

    for spans, end in launch(run, ranks=2, threads=1, timeout=60):
        assert [span[:2] for span in spans] == [
            ("compute", "forward"),
            ("compute", "backward"),
            ("network", "0"),
        ]
        assert all(0 <= start < stop <= end * (1 + 1e-9) for _, _, start, stop in spans)


def test_steps_with_priorities_by_hand():
    """Forward 1 + 1, backward 2 + 2, and messages of 3 (layer 0) and 4 in two slices (layer 1)."""
    profile = Profile(layers=(0.0, 1.0), forward=2.0, backward=6.0, ready={1: 4.0, 0: 6.0})
    layers = [([0], [30]), ([1], [20, 20])]
    step = predict_priority(profile, layers, lambda n: n / 10)
    # Since the backward pass ended, at 0: layer 0 travels to 3 and runs to 4. The second slice of
    # layer 1 went at -2, the other one waits for layer 0, arrives at 5: layer 1 runs to 6. Backward
    # takes 4.
    assert step.seconds == pytest.approx(10.0)
    # The slice that is ready at 8 goes then; at 10 layer 0 is ready and overtakes the other.
    times = [(8.0, 8.0, 10.0), (10.0, 10.0, 13.0), (8.0, 13.0, 15.0)]
    for bucket, expected in zip(step.buckets, times, strict=True):
        assert bucket == pytest.approx(expected)
    # Overlap alone waits for all seven seconds of messages at the end of the backward pass.
    assert predict_overlapped(profile, [([1], 40), ([0], 30)], lambda n: n / 10).seconds == 11.0
    # With a fast network nothing waits.
    assert predict_priority(profile, layers, lambda n: 0.0).seconds == pytest.approx(6.0)


class Sleeping(torch.autograd.Function):
    """The identity that takes wall time forward and backward, and no processor."""

    @staticmethod
    def forward(ctx, x):
        time.sleep(FORWARD)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(2 * FORWARD)
        return gradient


class SleepingLayer(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return Sleeping.apply(x * self.weight.mean())


def record_on_the_wall_clock(names, steps=3):
    """Return {version: this rank's timelines} over a network of 10 Mbit/s, and the buckets."""
    group = join(names)
    sizes, x = (5_000, 10_000, 20_000, 15_000), torch.ones(1, requires_grad=True)

    def model():
        return nn.Sequential(*[SleepingLayer(n) for n in sizes])

    small = {"bucket_mb": 0.03, "first_bucket_mb": 0.03}
    versions = {
        "naive": NaiveDataParallel(model(), group, all_reduce=ring_all_reduce),
        "overlapped": OverlappedDataParallel(
            model(), group, all_reduce=Stream(ring_all_reduce), **small
        ),
    }
    timelines = {name: [] for name in versions}
    for _ in range(steps + 1):
        for name, wrapped in versions.items():
            dist.barrier(group)
            with recorded(wrapped) as timeline:
                wrapped(x).sum().backward()
            wrapped.zero_grad()
            timelines[name].append(timeline)
    kept = {name: these[1:] for name, these in timelines.items()}
    return kept, contents(versions["overlapped"].buckets)


@pytest.mark.root
def test_overlap_is_predicted_on_the_wall_clock_over_a_really_limited_network():
    with network(2, gbit_s=0.01) as names:
        run = launch(record_on_the_wall_clock, names, ranks=2, threads=1, timeout=200)
    steps = {name: list(zip(*(of_rank[0][name] for of_rank in run))) for name in run[0][0]}
    profile, fit = Profile.of(steps["naive"]), fit_calls(steps["naive"])
    predicted = predict_overlapped(profile, run[0][1], fit.seconds).seconds
    ends = {name: [max(t.end for t in ranks) for ranks in of] for name, of in steps.items()}
    assert predicted == pytest.approx(statistics.median(ends["overlapped"]), rel=0.15)
    assert predicted < 0.9 * statistics.median(ends["naive"])  # there is something to predict
