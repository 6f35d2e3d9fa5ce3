"""Deep gradient compression: momentum SGD where all is sent, its rules, what it conserves."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from lsdl_lib import launch
from lsdl_lib.communication.compression import (
    DGC,
    Alone,
    ErrorFeedback,
    Exact,
    Peers,
    RandomK,
    SampledTopK,
    SignVote,
    TopK,
    warm_up_share,
)
from lsdl_lib.communication.data_parallel import OverlappedDataParallel
from tests.communication.compression import laws

SHAPES = ((5, 7), (9,), (1,))
STEPS = 20


def gradients(step, rank, shapes=SHAPES):
    return laws.gradients(shapes, torch.float64, rank=rank, seed=step)


def weights(compressor, steps=STEPS):
    """Plain SGD on what DGC gives, from 0, at rate 0.1."""
    w = torch.zeros(laws.size_of(SHAPES), dtype=torch.float64)
    for step in range(steps):
        vector = gradients(step, dist.get_rank())
        w -= 0.1 * compressor.aggregate(vector, Peers(), 0, SHAPES)[0]
    return w


def alone(p, **settings):
    """torch's SGD in one process, on the mean of p ranks' gradients."""
    w = torch.zeros(laws.size_of(SHAPES), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1, **settings)
    for step in range(STEPS):
        w.grad = sum(gradients(step, rank) for rank in range(p)) / p
        optimizer.step()
    return w.detach()


def everything_sent():
    """How far DGC that sends everything is from torch's SGD."""
    p, off = dist.get_world_size(), {}
    cases = {
        "momentum": ({"masking": False}, {"momentum": 0.9}),
        "nesterov": ({"masking": False, "nesterov": True}, {"momentum": 0.9, "nesterov": True}),
        "masked": ({}, {}),  # masking everything is no momentum
        "no momentum": ({"momentum": 0}, {}),
    }
    inners = {"top-k": TopK(1, by_tensor=True), "sampled": SampledTopK(1), "exact": Exact()}
    for name, (ours, theirs) in cases.items():
        expected = alone(p, **theirs)
        for inner, compressor in inners.items():
            got = weights(DGC(compressor, **ours))
            off[name, inner] = float((got - expected).abs().max())
    return off


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_everything_sent_is_momentum_sgd_without_masking_and_sgd_with_it(ranks):
    for found in launch(everything_sent, ranks=ranks, threads=1, timeout=240):
        for name, error in found.items():
            assert error < 1e-12, name


class Oracle:
    """Lin et al. 2018, algorithm 4 of the appendix and section 3.2, in numpy for all ranks."""

    def __init__(self, p, k, momentum=0.9, nesterov=False, clip_norm=None):
        n = laws.size_of(SHAPES)
        self.u, self.v = np.zeros((p, n)), np.zeros((p, n))
        self.p, self.k, self.m = p, k, momentum
        self.nesterov, self.clip_norm = nesterov, clip_norm

    def step(self, vectors):
        mean = np.zeros(vectors.shape[1])
        for rank, g in enumerate(vectors):
            if self.clip_norm is not None:
                limit = self.p**-0.5 * self.clip_norm
                g = g * min(1, limit / np.sqrt((g**2).sum()))
            if self.nesterov:
                self.u[rank] = self.m * (self.u[rank] + g)
                self.v[rank] += self.u[rank] + g
            else:
                self.u[rank] = self.m * self.u[rank] + g
                self.v[rank] += self.u[rank]
            start = 0
            for size, k in zip((35, 9, 1), self.k):
                part = np.abs(self.v[rank, start : start + size])
                for place in start + np.argsort(-part)[:k]:
                    mean[place] += self.v[rank, place] / self.p
                    self.u[rank, place] = self.v[rank, place] = 0
                start += size
        return mean


def beside_the_oracle():
    p, rank, off = dist.get_world_size(), dist.get_rank(), []
    for settings in ({}, {"nesterov": True}, {"clip_norm": 4.0}, {"momentum": 0.5}):
        # A tenth, rounded up, of 35, 9 and 1 numbers.
        oracle, dgc = Oracle(p, (4, 1, 1), **settings), DGC(TopK(0.1, by_tensor=True), **settings)
        for step in range(STEPS):
            expected = oracle.step(np.stack([gradients(step, r).numpy() for r in range(p)]))
            mean, left = dgc.aggregate(gradients(step, rank), Peers(), 0, SHAPES)
            u, v = dgc.memory[0]
            for got, true in ((mean, expected), (left, oracle.v[rank]), (u, oracle.u[rank])):
                off.append(np.abs(got.numpy() - true).max())
            off.append(float((v - left).abs().max()))
    return max(off)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_it_follows_the_paper_s_rules(ranks):
    for error in launch(beside_the_oracle, ranks=ranks, threads=1, timeout=240):
        assert error < 1e-12


@pytest.mark.parametrize("masking", [True, False])
@pytest.mark.parametrize("inner", [TopK(0.1), SampledTopK(0.1, 0.5), RandomK(0.1, unbiased=False)])
def test_conservation(masking, inner):
    """What was sent and what waits is the sum of the momenta; masking drops momentum, no more.

    The second law holds element by element, with d the momenta that masking dropped.
    """
    m, dgc = 0.9, DGC(inner, 0.9, masking=masking)
    n = laws.size_of(SHAPES)
    sent, momenta, dropped, total, u = torch.zeros(5, n, dtype=torch.float64)
    for step in range(60):
        g = gradients(step, 0)
        momentum = m * u + g
        mean, left = dgc.aggregate(g, Alone(), 0, SHAPES)
        u, v = dgc.memory[0]
        sent, momenta, total = sent + mean, momenta + momentum, total + g
        dropped += momentum - u
        torch.testing.assert_close(sent + v, momenta, rtol=0, atol=1e-11)
        torch.testing.assert_close(
            sent + v + m / (1 - m) * (u + dropped), total / (1 - m), rtol=0, atol=1e-10
        )
        assert torch.equal(left, v)
    assert (dropped != 0).any() == masking
    assert 0 < (mean != 0).sum() <= 10  # of 45: it did not send everything


def test_without_masking_all_of_the_momentum_arrives_when_gradients_end():
    """5 steps of gradients, then zeros until all has been sent: momentum SGD has moved as far."""
    dgc, total = DGC(TopK(0.2), masking=False), torch.zeros(45, dtype=torch.float64)
    for step in range(400):
        g = gradients(step, 0) if step < 5 else torch.zeros(45, dtype=torch.float64)
        total += dgc.aggregate(g, Alone(), 0, SHAPES)[0]
    expected = sum(gradients(step, 0) for step in range(5)) / (1 - 0.9)
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-10)


def test_without_momentum_it_is_error_feedback():
    one, other = DGC(TopK(0.1), 0), ErrorFeedback(TopK(0.1))
    for step in range(20):
        vector = gradients(step, 0)
        for got, expected in zip(one.aggregate(vector, Alone()), other.aggregate(vector, Alone())):
            assert torch.equal(got, expected)


def test_the_schedule():
    sparsity = [100 * (1 - warm_up_share(epoch)) for epoch in range(6)]
    assert sparsity == pytest.approx([75, 93.75, 98.4375, 99.609375, 99.9, 99.9], abs=1e-12)
    assert sparsity[:4] == [75, 93.75, 98.4375, 99.609375]
    assert [warm_up_share(epoch, final=0.01) for epoch in (2, 3, 9)] == [1 / 64, 0.01, 0.01]


def test_the_share_may_follow_the_schedule():
    x, dgc = laws.gradients(((4096,),), rank=0), DGC(TopK(1))
    counts = []
    for epoch in range(5):
        dgc.inner.share = warm_up_share(epoch)
        counts.append(int(dgc.aggregate(x, Alone())[0].count_nonzero()))
    assert counts == [1024, 256, 64, 16, 5]  # 4096 / 1000 rounded up


@pytest.mark.parametrize("dtype", laws.FLOATS)
def test_clipping_is_local_and_by_the_root_of_the_ranks(dtype):
    class Four(Alone):
        size = 4

    x = torch.tensor([3.0, -4.0, 12.0], dtype=dtype)  # norm 13
    for scale, clipped in ((1, True), (0.2, False), (0, False)):
        _, v = DGC(TopK(0.01), 0, clip_norm=6.0).aggregate(x * scale, Four())
        sent, _ = DGC(Exact(), 0, clip_norm=6.0).aggregate(x * scale, Four())
        expected = x * scale * (3 / 13 if clipped else 1)
        torch.testing.assert_close(sent, expected)
        # What waits is clipped as what is sent.
        torch.testing.assert_close(v[:2], expected[:2])


def some_laws():
    makers = {
        "top-k": partial(DGC, TopK(0.1, by_tensor=True)),
        "nesterov": partial(DGC, TopK(0.1), nesterov=True, clip_norm=1.0),
        "sampled": lambda: DGC(SampledTopK(0.1, 0.3)),
    }
    found = {}
    for name, make in makers.items():
        found[name] = {
            "resumes": laws.resumes(make),
            "not finite": laws.not_finite(make, SHAPES),
            "half": laws.not_finite(make, SHAPES, torch.float16),
            "recovers": laws.recovers(make),
            "zeros": laws.zeros_stay_zeros(make),
            # The first step, without a memory: the residual is all that was not sent.
            "first": laws.conservation(lambda: DGC(TopK(0.1)), dtype=torch.bfloat16),
        }
    return found


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_laws_hold(ranks):
    for found in launch(some_laws, ranks=ranks, threads=1, timeout=240):
        for name, law in found.items():
            assert law["resumes"], name  # case 63
            assert law["not finite"] == law["half"] == [], name
            assert law["recovers"], name
            assert law["zeros"], name  # case 67
            assert law["first"][0] <= 1, name
            assert law["first"][1] == [], name


def skipping():
    """Take 3 steps, one more with an infinity on rank 1 only, and look at the memory."""
    dgc, rank = DGC(TopK(0.1)), dist.get_rank()
    for step in range(3):
        dgc.aggregate(gradients(step, rank), Peers())
    before = [tensor.clone() for tensor in dgc.memory[0]]
    vector = gradients(3, rank)
    vector[7] = torch.inf if rank == 1 else 1.0
    mean, left = dgc.aggregate(vector, Peers())
    same = all(torch.equal(*pair) for pair in zip(before, dgc.memory[0]))
    return bool(torch.isfinite(mean).all()), same, torch.equal(left, before[1])


def test_a_step_that_is_not_finite_leaves_the_memory_as_it_was_on_all_ranks():
    assert launch(skipping, ranks=3, threads=1, timeout=240) == [(False, True, True)] * 3


def test_case_62_another_size_under_a_known_key_starts_anew():
    dgc = DGC(TopK(0.1))
    dgc.aggregate(laws.gradients(((12,),), rank=0), Alone(), 0, ((12,),))
    x = laws.gradients(((20,),), rank=1)
    mean, left = dgc.aggregate(x, Alone(), 0, ((20,),))
    assert torch.equal(mean + left, x)
    dgc.forget(0)
    assert dgc.memory == {}


def wire():
    """Bytes that a rank sends: 8 a pair in float32, 12 in float64."""
    return [
        laws.sent_bytes(DGC(TopK(0.001)), laws.gradients(((10000,),), dtype))
        for dtype in (torch.float32, torch.float64)
    ]


@pytest.mark.parametrize("ranks", [2, 4])
def test_bytes_on_the_wire(ranks):
    expected = [(ranks - 1) * 10 * 8, (ranks - 1) * 10 * 12]
    assert launch(wire, ranks=ranks, threads=1, timeout=240) == [expected] * ranks


def trained():
    """Train through the hook, under ours and under torch's wrapper, by plain SGD."""
    wrappers = {
        "ours": partial(OverlappedDataParallel, bucket_mb=0.004, first_bucket_mb=0.001),
        "torch": partial(nn.parallel.DistributedDataParallel, bucket_cap_mb=0.004),
    }
    make = partial(DGC, TopK(0.1, by_tensor=True), clip_norm=5.0)
    return {name: laws.training(make, wrap, rate=0.2) for name, wrap in wrappers.items()}


def test_training_in_many_buckets_under_both_wrappers():
    for found in launch(trained, ranks=2, threads=1, timeout=240):
        for name, (first, last, equal, buckets) in found.items():
            assert equal, name
            assert buckets > 1, name
            assert last < 0.5 * first, name


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DGC(TopK(0.1), 1.0), "momentum=1.0:"),
        (lambda: DGC(TopK(0.1), -0.1), "momentum=-0.1:"),
        (lambda: DGC(TopK(0.1), clip_norm=0), "clip_norm=0:"),
        (lambda: DGC(ErrorFeedback(TopK(0.1))), "DGC around ErrorFeedback"),
        (lambda: DGC(DGC(TopK(0.1))), "DGC around DGC"),
        (lambda: DGC(SignVote()), "DGC around SignVote"),
        (lambda: ErrorFeedback(DGC(TopK(0.1))), "around DGC"),
    ],
)
def test_what_cannot_work_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
