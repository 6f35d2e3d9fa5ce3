"""PowerSGD: the laws, an oracle in numpy, the paper's bytes, and the hard cases of known hooks."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as peer

from lsdl_lib import launch
from lsdl_lib.communication.compression import (
    Alone,
    CompressionState,
    ErrorFeedback,
    Exact,
    Peers,
    compression_hook,
)
from lsdl_lib.communication.compression.orthogonal import orthogonalize
from lsdl_lib.communication.compression.power_sgd import PowerSGD
from lsdl_lib.communication.data_parallel import OverlappedDataParallel
from lsdl_lib.models import ResNet, ResNetConfig
from tests.communication.compression import laws

TORCHS = nn.parallel.DistributedDataParallel
CASE_68 = [(7,), (8, 3, 3, 3), (), (0, 4)]
EVERYTHING = {
    "rank 1": lambda: PowerSGD(1),
    "rank 2": lambda: PowerSGD(2),
    "every matrix": lambda: PowerSGD(3, min_compression_rate=0),
    "full rank": lambda: PowerSGD(99, min_compression_rate=0),
    "cold": lambda: PowerSGD(2, warm_start=False),
}


class Counting(Alone):
    """One rank that counts the bytes of its all-reduces."""

    def __init__(self):
        self.messages = []

    def mean_(self, vector):
        self.messages.append(vector.numel() * vector.element_size())
        return vector


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_laws_of_compressors_hold(ranks):
    def check():
        for name, make in EVERYTHING.items():
            for dtype in laws.FLOATS:
                error, problems = laws.conservation(make, dtype=dtype)
                assert problems == [], f"{name}, {dtype}"
                # Beside what the laws allow: sums over a matrix's side of at most 26 numbers.
                assert error <= (26 if dtype.itemsize >= 4 else 1), f"{name}, {dtype}: {error}"
            assert laws.not_finite(make) == [], name
            assert laws.recovers(lambda make=make: ErrorFeedback(make())), name
            assert laws.zeros_stay_zeros(make), name
            assert laws.zeros_stay_zeros(lambda make=make: ErrorFeedback(make())), name

    launch(check, ranks=ranks, threads=1)


def test_case_63_goes_on_bit_by_bit_from_a_saved_state():
    def check():
        for name, make in EVERYTHING.items():
            assert laws.resumes(make), name
            assert laws.resumes(lambda make=make: ErrorFeedback(make())), name

    launch(check, ranks=2, threads=1)


def in_numpy(gradients, q, steps):
    """PowerSGD with error feedback by the paper's algorithms, on all ranks' matrices.

    Args:
        gradients: (steps, p, n, m); q: (m, k).

    Returns:
        [(mean (n, m), errors (p, n, m))] of each step.
    """
    errors, found = np.zeros_like(gradients[0]), []
    for step in range(steps):
        matrices = gradients[step] + errors
        p, _ = np.linalg.qr((matrices @ q).mean(0))
        own = matrices.transpose(0, 2, 1) @ p
        q = own.mean(0)
        errors = matrices - p @ own.transpose(0, 2, 1)
        found.append((p @ q.T, errors))
    return found


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_equals_the_paper_s_algorithm_in_numpy(ranks):
    steps, n, m, k = 5, 6, 11, 2
    generator = np.random.default_rng(0)
    gradients, q = generator.normal(size=(steps, ranks, n, m)), generator.normal(size=(m, k))

    def run():
        compressor = ErrorFeedback(PowerSGD(k))
        start = ((1, k, n, m),), torch.from_numpy(q.T.copy()).flatten()
        compressor.inner.load_state_dict({"factors": {0: start}})
        results = []
        for step in range(steps):
            vector = torch.from_numpy(gradients[step, dist.get_rank()]).flatten()
            results.append(compressor.aggregate(vector, Peers(), 0, [(n, m)]))
        return results

    expected = in_numpy(gradients, q, steps)
    for rank, results in enumerate(launch(run, ranks=ranks, threads=1)):
        for (mean, residual), (true_mean, true_errors) in zip(results, expected, strict=True):
            np.testing.assert_allclose(mean.numpy().reshape(n, m), true_mean, atol=1e-12)
            np.testing.assert_allclose(
                residual.numpy().reshape(n, m), true_errors[rank], atol=1e-12
            )


def test_finds_the_best_approximation_of_a_gradient_that_stays():
    matrix = torch.from_numpy(np.random.default_rng(0).normal(size=(20, 30)))
    u, s, v = np.linalg.svd(matrix.numpy())
    best = torch.from_numpy((u[:, :3] * s[:3]) @ v[:3])
    away = []
    for warm_start in (True, False):
        compressor = PowerSGD(3, warm_start=warm_start)
        for _ in range(50):
            mean, _ = compressor.aggregate(matrix.flatten(), Alone(), 0, [matrix.shape])
        away.append((mean.view_as(matrix) - best).norm().item())
    # Each step shrinks what is wrong by (s4 / s3)^2, here 0.80.
    assert away[0] < 2 * (s[3] / s[2]) ** 100 * best.norm() + 1e-10
    assert away[1] > 1


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_full_rank_equals_the_exact_mean(ranks):
    shapes = [(5, 7), (7, 5), (4, 4), (3,), (2, 2, 13)]

    def away(dtype):
        compressor, found = PowerSGD(7, min_compression_rate=0), []
        for step in range(3):
            vector = laws.gradients(shapes, dtype, seed=step)
            vector[35:70].view(7, 5)[:, 3:] = 0  # a rank below full leaves nothing out either
            vector[70:86].view(4, 4)[1:] = vector[70:74]
            exact, _ = Exact().aggregate(vector, Peers())
            mean, _ = compressor.aggregate(vector, Peers(), 0, shapes)
            found.append(((mean - exact).abs().max() / exact.abs().max()).item())
        return max(found)

    def run():
        return away(torch.float64), away(torch.float32)

    for double, single in launch(run, ranks=ranks, threads=1):
        assert double < 1e-10
        assert single < 1e-5


def test_a_rank_that_saves_nothing_is_the_exact_mean_bit_by_bit():
    shapes = [(5, 7), (2, 2, 13)]
    vector = laws.gradients(shapes, rank=0)
    mean, residual = PowerSGD(5).aggregate(vector, Alone(), 0, shapes)
    assert torch.equal(mean, vector)
    assert not residual.any()


def step_by_step(wrap, state, hook, second_from=4, steps=8):
    """Case 61's model: the second layer's weight gets no gradient until a step, then it does.

    Returns:
        Its largest gradient at each step, and that of the first layer.
    """
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(20, 20, bias=False), nn.Linear(20, 20, bias=False)))
    model.register_comm_hook(state, hook)
    found = []
    for step in range(steps):
        inputs = torch.randn(8, 20, generator=torch.Generator().manual_seed(step))
        scale = float(step >= second_from)
        model.zero_grad()
        hidden = model(inputs)
        first = model.module[0](inputs)
        (scale * hidden.square().mean() + (1 - scale) * (first + 0 * hidden).mean()).backward()
        weights = model.module[1].weight, model.module[0].weight
        found.append([weight.grad.abs().max().item() for weight in weights])
    return found


def test_case_61_a_layer_without_gradient_sends_zero_and_later_its_gradient():
    def run():
        found = {}
        for rank in (1, 2, 4):
            for name, wrap in {"ours": OverlappedDataParallel, "torch's": TORCHS}.items():
                state = CompressionState(ErrorFeedback(PowerSGD(rank)))
                found[name, rank] = step_by_step(wrap, state, compression_hook)
        for epsilon in (0, 1e-8):  # the peer's hook, two steps late
            state = peer.PowerSGDState(
                None, 1, 2, min_compression_rate=1, orthogonalization_epsilon=epsilon
            )
            found["peer", epsilon] = step_by_step(TORCHS, state, peer.powerSGD_hook)
        return found

    found = launch(run, ranks=2, threads=1)[0]
    for (name, option), steps in found.items():
        second = [largest for largest, _ in steps]
        if name != "peer":
            assert second[:4] == [0, 0, 0, 0], f"{name}, rank {option}"
            assert min(second[4:]) > 1e-4, f"{name}, rank {option}"
            assert all(0 < largest < 1 for _, largest in steps), f"{name}, rank {option}"
    # When one of these fails, the peer has been mended.
    assert np.isnan(found["peer", 0][2][0])
    assert [second for second, _ in found["peer", 1e-8]] == [0] * 8


def test_case_61_a_gradient_that_moves_where_q_has_never_looked_is_found():
    """Q lies in the columns that had a gradient; then only others have one, so M Q is 0."""
    compressor, early, late = ErrorFeedback(PowerSGD(1)), torch.zeros(8, 9), torch.zeros(8, 9)
    early[:4, :4], late[4:, 4:] = 1, 1
    for _ in range(3):
        compressor.aggregate(early.flatten(), Alone(), 0, [(8, 9)])
    sent = sum(compressor.aggregate(late.flatten(), Alone(), 0, [(8, 9)])[0] for _ in range(9))
    # Of rank 1, so all of it is sent once Q is found: the second step.
    torch.testing.assert_close(sent.view(8, 9), 9 * late, atol=1e-4, rtol=0)


def test_case_62_other_shapes_under_a_key_start_anew():
    compressor = ErrorFeedback(PowerSGD(2))
    for step, shapes in enumerate([[(9, 8)], [(9, 8), (5,)], [(8, 9), (5,)], [(6, 6), (3, 4)]]):
        vector = laws.gradients(shapes, torch.float64, rank=0, seed=step)
        fresh = ErrorFeedback(PowerSGD(2))
        same_size = compressor.errors.get(0, vector[:0]).shape == vector.shape
        before = compressor.errors[0] if same_size else 0
        mean, residual = compressor.aggregate(vector, Alone(), 0, shapes)
        torch.testing.assert_close(mean + residual, vector + before)
        assert mean.shape == fresh.aggregate(vector, Alone(), 0, shapes)[0].shape
        compressor.aggregate(vector, Alone(), 0, shapes)  # and goes on with them
    compressor.forget(0)
    assert compressor.state_dict()["errors"] == compressor.inner.state_dict()["factors"] == {}


def test_case_68_vectors_numbers_and_empty_tensors_are_sent_as_they_are():
    vector, peers = laws.gradients(CASE_68, rank=0), Counting()
    mean, residual = PowerSGD(2).aggregate(vector, peers, 0, CASE_68)
    assert peers.messages == [4 * (2 * 8 + 7 + 1), 4 * 2 * 27]
    assert torch.equal(mean[:7], vector[:7])
    assert mean[-1] == vector[-1]
    assert 0 < residual[7:-1].norm() < vector[7:-1].norm()
    empty = PowerSGD(2).aggregate(vector[:0], peers, 0, [(0, 4)])
    assert [part.shape for part in empty] == [(0,), (0,)]


def test_a_gradient_that_is_not_finite_leaves_the_state_as_it_was():
    compressor, shapes = PowerSGD(2), [(9, 8), (5,)]
    compressor.aggregate(laws.gradients(shapes, rank=0), Alone(), 0, shapes)
    for value in laws.NOT_FINITE:
        before = compressor.state_dict()
        vector = laws.gradients(shapes, rank=0, seed=1)
        vector[0] = value
        mean, _ = compressor.aggregate(vector, Alone(), 0, shapes)
        after = compressor.state_dict()
        assert mean.isnan().all()
        assert torch.equal(before["factors"][0][1], after["factors"][0][1])
        assert torch.equal(before["generator"], after["generator"])
    vector = torch.full((72,), 3e38)  # each number is finite, their sums are not
    assert compressor.aggregate(vector, Alone(), 1, [(9, 8)])[0].isnan().all()


def test_in_place_the_vector_becomes_the_residual():
    for dtype in laws.FLOATS:
        one, other = PowerSGD(2), PowerSGD(2)
        for step in range(3):
            vector = laws.gradients(laws.SHAPES, dtype, rank=0, seed=step)
            expected = one.aggregate(vector, Alone(), 0, laws.SHAPES)
            if step == 1:  # nothing is lost of a vector that is not sent
                broken = vector.clone().fill_(torch.inf)
                assert other.aggregate_(broken, Alone(), 0, laws.SHAPES)[1] is broken
                assert broken.isinf().all()
            mean, residual = other.aggregate_(vector, Alone(), 0, laws.SHAPES)
            assert residual is vector
            assert laws.same_bits([mean, expected[0]])
            assert laws.same_bits([residual, expected[1]])


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1, 1e25])
def test_any_size_of_gradient_is_averaged_alike(scale):
    vector = laws.gradients([(9, 8)], rank=0)
    results = []
    for factor in (1, scale):
        compressor = PowerSGD(2)
        for _ in range(5):
            mean, _ = compressor.aggregate(vector * factor, Alone(), 0, [(9, 8)])
        results.append(mean / factor)
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4)


def test_opposite_gradients_leave_bounded_errors():
    """The mean is 0 for ever. An error against the mean would grow by a gradient each step."""

    def run():
        gradient = laws.gradients([(12, 12)], rank=0) * (1 - 2 * dist.get_rank())
        compressor, norms = ErrorFeedback(PowerSGD(2)), []
        for _ in range(100):
            mean, error = compressor.aggregate(gradient, Peers(), 0, [(12, 12)])
            norms.append((error.norm() / gradient.norm()).item())
        return max(norms), mean.abs().max().item()

    for largest, mean in launch(run, ranks=2, threads=1):
        assert largest < 30
        assert mean < 1e-4


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_of_a_gradient_arrives_in_the_long_run(ranks):
    def run(steps=100):
        compressor, sent = ErrorFeedback(PowerSGD(1)), 0
        mine = laws.gradients([(6, 9)], torch.float64)
        mean = Exact().aggregate(mine, Peers())[0]
        for _ in range(steps):
            sent = sent + compressor.aggregate(mine, Peers(), 0, [(6, 9)])[0]
        return ((sent - steps * mean).norm() / mean.norm()).item()

    for away in launch(run, ranks=ranks, threads=1):
        assert away < 15  # steps; sending nothing would be 100 away


@pytest.mark.parametrize("wrap", [OverlappedDataParallel, TORCHS])
def test_trains_in_several_buckets(wrap):
    small = {
        OverlappedDataParallel: {"bucket_mb": 0.001, "first_bucket_mb": 0.001},
        TORCHS: {"bucket_cap_mb": 0.001},
    }[wrap]

    def run():
        return laws.training(
            lambda: ErrorFeedback(PowerSGD(2)), lambda module: wrap(module, **small)
        )

    for first, last, same, buckets in launch(run, ranks=2, threads=1):
        assert same
        assert buckets > 2
        assert last < 0.5 * first


@pytest.mark.parametrize(
    ("rank", "expected", "times"),
    [(1, 4.21, 243.3), (2, 7.53, 135.8), (4, 14.18, 72.1), (7, 24.16, 42.3)],
)
def test_bytes_of_an_epoch_are_the_paper_s(rank, expected, times):
    """Vogels et al. 2019, table 3: ResNet-18 on CIFAR-10, 24 steps an epoch."""
    shapes = [p.shape for p in ResNet(ResNetConfig(), device="meta").parameters()]
    vector = torch.ones(laws.size_of(shapes))
    whole, small = Counting(), Counting()
    Exact().aggregate(vector, whole, 0, shapes)
    PowerSGD(rank).aggregate(vector, small, 0, shapes)
    assert vector.numel() == 11_173_962
    assert 24 * sum(whole.messages) / 2**20 == pytest.approx(1023.0, abs=0.05)
    assert 24 * sum(small.messages) / 2**20 == pytest.approx(expected, abs=0.005)
    assert len(small.messages) == 2
    assert sum(whole.messages) / sum(small.messages) == pytest.approx(times, abs=0.05)


def test_only_matrices_for_which_factors_save_are_compressed():
    shapes = [(10, 10), (40, 10), (40, 40)]  # at rank 2: 2.5, 4 and 10 times fewer numbers
    numbers = [40, 100, 160]
    vector = laws.gradients(shapes, rank=0)
    for rate, compressed in ((1, [0, 1, 2]), (2.5, [1, 2]), (9, [2]), (10, [])):
        peers = Counting()
        PowerSGD(2, min_compression_rate=rate).aggregate(vector, peers, 0, shapes)
        expected = [numbers[i] if i in compressed else int(np.prod(shapes[i])) for i in range(3)]
        assert sum(peers.messages) == 4 * sum(expected), rate


@pytest.mark.parametrize("scale", [1e-30, 1, 1e30])
def test_orthogonalized_vectors_are_orthonormal_and_span_the_same(scale):
    numbers = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 4, 9)))
    numbers[1, 2:] = numbers[1, :2]  # dependent
    numbers[2, 1] = 0
    given = (numbers * scale).clone()
    orthogonalize(given, torch.Generator())
    products = given @ given.mT
    torch.testing.assert_close(products, torch.eye(4, dtype=torch.float64).expand_as(products))
    projected = numbers @ given.mT @ given
    torch.testing.assert_close(projected, numbers)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PowerSGD(0), "rank=0: give a whole number of columns, at least 1"),
        (lambda: PowerSGD(1.5), "rank=1.5"),
        (lambda: PowerSGD(1, min_compression_rate=-1), "min_compression_rate=-1"),
    ],
)
def test_wrong_options_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
