"""The quantizers keep the laws of compressors, their bounds and their bytes."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.parallel import DistributedDataParallel

from lsdl_lib import launch
from lsdl_lib.communication.compression import (
    QSGD,
    Alone,
    CompressionState,
    ErrorFeedback,
    OneBitSGD,
    Peers,
    ScaledSign,
    TernGrad,
    compression_hook,
    message_bytes,
)
from lsdl_lib.communication.data_parallel import BucketedDataParallel, OverlappedDataParallel
from lsdl_lib.models import MLP, MLPConfig
from tests.communication.compression import laws

INF = float("inf")
QUANTIZERS = {
    "1-bit SGD": OneBitSGD,
    "scaled sign": ScaledSign,
    "TernGrad": TernGrad,
    "TernGrad without clipping": lambda: TernGrad(clip=None),
    "QSGD": QSGD,
    "QSGD, 2 bits, 2-norm": lambda: QSGD(2, norm=2, bucket=16),
    "QSGD, 8 bits, 100 levels": lambda: QSGD(8, levels=100, bucket=49),
}
WRAPPERS = {
    "torch": lambda model: DistributedDataParallel(model, bucket_cap_mb=0.001),
    "bucketed": lambda model: BucketedDataParallel(model, bucket_mb=0.002, first_bucket_mb=0.001),
    "overlapped": lambda model: OverlappedDataParallel(
        model, bucket_mb=0.002, first_bucket_mb=0.001
    ),
}


def said(compressor, vector, shapes=None):
    """What a message says, of one rank."""
    return compressor.aggregate(vector, Alone(), 0, shapes)[0]


def kept(quantizers, dtypes=laws.FLOATS):
    """Check the laws on this rank; the name of the quantizer is in the error."""
    for name, make in quantizers.items():
        for dtype in dtypes:
            error, problems = laws.conservation(make, dtype=dtype)
            assert error <= 1, (name, dtype, error)
            assert problems == [], (name, dtype)
            assert laws.not_finite(make, dtype=dtype) == [], (name, dtype)
            assert laws.zeros_stay_zeros(make, dtype=dtype), (name, dtype)
        for shapes in ([], [(1,)], [(0,)], [(0, 3)], [(3, 0)], [(8, 2)], [(17,)]):
            error, problems = laws.conservation(make, shapes)
            assert error <= 1, (name, shapes, error)
            assert problems == [], (name, shapes)
        assert laws.resumes(make), name
        assert laws.resumes(lambda make=make: ErrorFeedback(make())), name
        assert laws.recovers(lambda make=make: ErrorFeedback(make())), name


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_laws(ranks):
    launch(kept, QUANTIZERS, ranks=ranks, threads=1, timeout=300)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_case_65_what_is_lost_is_sent_later(ranks):
    def check():
        return {name: laws.progress(make) for name, make in QUANTIZERS.items()}

    for found in launch(check, ranks=ranks, threads=1, timeout=300):
        for name, (furthest, _) in found.items():
            # A lost error would be 5 at the end for the number 0.1, and 22 for scaled signs.
            assert furthest < 2, name


def test_case_65_without_memory_a_biased_quantizer_goes_on_being_wrong():
    gradient = torch.tensor([1.0, 0.1], dtype=torch.float64)
    for make in (OneBitSGD, ScaledSign):
        sent = sum(said(make(), gradient) for _ in range(50))
        assert torch.allclose(sent, torch.tensor([27.5, 27.5], dtype=torch.float64))


def test_case_62_an_error_of_another_size_is_dropped():
    for make in QUANTIZERS.values():
        feedback = ErrorFeedback(make())
        for n in (5, 9):
            mean, residual = feedback.aggregate(laws.gradients([(n,)], rank=0), Alone())
            assert torch.allclose(mean + residual, laws.gradients([(n,)], rank=0))


def test_case_63_the_random_numbers_of_a_restart_go_on():
    vector = laws.gradients([(64,)], rank=0)
    for make in (TernGrad, QSGD):
        one, other, fresh = make(), make(), make()
        said(one, vector)
        other.load_state_dict(copy.deepcopy(one.state_dict()))
        following = said(one, vector)
        assert torch.equal(following, said(other, vector))
        assert not torch.equal(following, said(fresh, vector))
        fresh.load_state_dict(make().state_dict())  # saved before the first draw
        assert torch.equal(said(fresh, vector), said(make(), vector))


@pytest.mark.parametrize("name", QUANTIZERS)
def test_case_67_zeros_beside_numbers(name):
    shapes = [(3, 4), (3, 4)]
    vector = torch.cat((torch.zeros(12), torch.ones(12)))
    found = said(QUANTIZERS[name](), vector, shapes)
    assert torch.isfinite(found).all()
    if QUANTIZERS[name]().by_tensor:
        assert torch.equal(found[:12], torch.zeros(12))


@pytest.mark.parametrize("n", [1, 2, 512, 513, 1024])
def test_case_69_constant_tensors(n):
    for value in (1.0, -0.3):
        constant = torch.full((n,), value)
        for make in (OneBitSGD, ScaledSign, TernGrad, QSGD, lambda: QSGD(8)):
            # Exact, but for the rounding of a mean of n numbers that are no powers of 2.
            tolerance = 0 if value == 1 else 1e-6
            assert torch.allclose(said(make(), constant), constant, rtol=tolerance, atol=0)
        # By the 2-norm a constant is between two levels: right on average, and finite.
        assert torch.isfinite(said(QSGD(norm=2), constant)).all()
    _, scales = QSGD(bucket=512).compress(torch.ones(n))
    assert scales.shape == (math.ceil(n / 512),)


def bytes_of(name, shapes):
    """The bytes of a message of float32, by the papers."""
    sizes = [math.prod(shape) for shape in shapes]
    columns = [shape[0] if len(shape) > 1 else 1 for shape in shapes]
    n, up = sum(sizes), math.ceil
    return {
        "1-bit SGD": up(n / 8) + 8 * sum(columns),
        "scaled sign": up(n / 8) + 4 * len(shapes),
        "TernGrad": up(n / 4) + 4 * len(shapes),
        "TernGrad without clipping": up(n / 4) + 4 * len(shapes),
        "QSGD": up(n / 2) + 4 * up(n / 512),
        "QSGD, 2 bits, 2-norm": up(n / 4) + 4 * up(n / 16),
        "QSGD, 8 bits, 100 levels": n + 4 * up(n / 49),
    }[name]


@pytest.mark.parametrize("ranks", [2, 4])
def test_bytes_on_the_wire(ranks):
    cases = [laws.SHAPES, [()], [(7,)], [(8,)], [(9,)], [(512,)], [(513,)], [(16, 32)], [(0,)]]

    def check():
        for name, make in QUANTIZERS.items():
            for shapes in cases:
                sent = laws.sent_bytes(make(), laws.gradients(shapes), shapes)
                # Every rank's message goes to all others.
                assert sent == (ranks - 1) * bytes_of(name, shapes), (name, shapes)

    launch(check, ranks=ranks, threads=1, timeout=300)


def test_sixteen_times_smaller_and_what_a_perfect_code_would_reach():
    vector = laws.gradients([(2**20,)], rank=0)
    whole = 4 * vector.numel()
    assert whole / message_bytes(TernGrad().compress(vector)) == pytest.approx(16, rel=1e-4)
    assert 32 / math.log2(3) == pytest.approx(20.2, abs=0.05)
    assert whole / message_bytes(ScaledSign().compress(vector)) == pytest.approx(32, rel=1e-4)
    # 4 bits and a norm for 512 numbers: 8 times less, but for the norm.
    assert whole / message_bytes(QSGD().compress(vector)) == 32 / (4 + 32 / 512)


numbers = st.floats(-(2.0**100), 2.0**100, width=32)
matrices = st.tuples(st.integers(1, 5), st.integers(0, 9)).flatmap(
    lambda shape: st.lists(numbers, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]).map(
        lambda values: torch.tensor(values, dtype=torch.float32).view(shape)
    )
)


@settings(deadline=None)
@given(matrices)
def test_one_bit_is_the_columns_two_means(matrix):
    got = said(OneBitSGD(), matrix.view(-1), [matrix.shape]).view(matrix.shape)
    for column, out in zip(matrix.double().numpy(), got.double().numpy()):
        for chosen in (column >= 0, column < 0):
            if chosen.any():
                expected = column[chosen].mean()
                size = np.abs(column).mean()
                assert np.allclose(out[chosen], expected, rtol=1e-6, atol=1e-6 * size + 1e-44)


@settings(deadline=None)
@given(matrices)
def test_scaled_sign_and_what_it_loses(matrix):
    got = said(ScaledSign(), matrix.view(-1), [matrix.shape]).double().numpy()
    values = matrix.view(-1).double().numpy()
    if values.size:
        expected = np.where(values >= 0, 1, -1) * np.abs(values).mean()
        assert np.allclose(got, expected, rtol=1e-6, atol=1e-44)
        lost = (values**2).sum() - np.abs(values).sum() ** 2 / values.size
        assert ((values - expected) ** 2).sum() == pytest.approx(
            lost, abs=1e-12 * (values**2).sum() + 1e-300
        )


@settings(deadline=None)
@given(matrices, st.sampled_from([2, 4, 8]), st.sampled_from([2, INF]), st.integers(1, 8))
def test_qsgd_takes_a_level_beside_the_number(matrix, bits, norm, bucket):
    vector = matrix.view(-1)
    got = said(QSGD(bits, bucket=bucket, norm=norm), vector).double().numpy()
    values, levels = vector.double().numpy(), 2 ** (bits - 1) - 1
    for at in range(0, values.size, bucket):
        part, out = values[at : at + bucket], got[at : at + bucket]
        scale = np.linalg.norm(part, norm)
        if scale > 1e-36:  # below, float32 has fewer digits
            steps = out / scale * levels
            assert np.allclose(steps, steps.round(), atol=1e-3)
            assert (np.abs(out - part) <= scale / levels * (1 + 1e-5)).all()
            assert (out * part >= 0).all()


@settings(deadline=None)
@given(matrices)
def test_tern_grad_says_minus_s_or_nothing_or_s(matrix):
    got = said(TernGrad(clip=None), matrix.view(-1), [matrix.shape]).numpy()
    values = matrix.view(-1).numpy()
    scale = np.abs(values).max(initial=0)
    assert np.isin(np.abs(got), [0, scale]).all()
    assert (got * np.sign(values) >= 0).all()
    assert (np.abs(got[np.abs(values) == scale]) == scale).all()


def test_tern_grad_clips_at_deviations_from_0():
    vector = torch.cat((torch.ones(99), torch.tensor([-100.0])))
    deviation = np.sqrt((99 + 100**2) / 100)
    for clip in (0.5, 2.5):
        _, scale = TernGrad(clip).compress(vector)
        assert scale.item() == pytest.approx(clip * deviation, rel=1e-6)
    assert TernGrad(20).compress(vector)[1].item() == 100
    assert said(TernGrad(), torch.tensor([0.3])).item() == pytest.approx(0.3)


def test_one_level_and_one_bucket_is_tern_grad():
    vector = laws.gradients([(512,)], rank=0)
    one, other = QSGD(2, bucket=512, seed=3), TernGrad(clip=None, seed=3)
    for _ in range(3):
        assert torch.equal(said(one, vector), said(other, vector))


def test_exact_at_the_degenerate_points():
    vector = laws.gradients([(33,)], rank=0)
    assert torch.equal(said(QSGD(bucket=1), vector), vector)
    signs = 0.3 * torch.sign(vector)
    assert torch.allclose(said(ScaledSign(), signs), signs, rtol=1e-6)
    two = torch.where(vector >= 0, 0.7, -0.2)
    assert torch.allclose(said(OneBitSGD(), two), two, rtol=1e-6)
    one_each = vector.view(33, 1)  # columns of one number
    assert torch.equal(said(OneBitSGD(), vector, [one_each.shape]), vector)
    levels = torch.randint(-127, 128, (256,)) * 2.0**-10
    levels[0] = 127 * 2.0**-10
    assert torch.equal(said(QSGD(8, bucket=256), levels), levels)


RANDOM = {
    "TernGrad": (lambda: TernGrad(clip=None), 1, INF),
    "QSGD": (lambda: QSGD(bucket=100), 7, INF),
    "QSGD, 2-norm": (lambda: QSGD(bucket=100, norm=2), 7, 2),
    "QSGD, 2 bits, 2-norm": (lambda: QSGD(2, bucket=100, norm=2), 1, 2),
    "QSGD, 8 bits": (lambda: QSGD(8, bucket=100), 127, INF),
}
DRAWS = 40_000


def draws(make, vector):
    """Draw many times at once: equal buckets, and for TernGrad a tensor with the same s."""
    return said(make(), vector.repeat(DRAWS)).view(DRAWS, -1).double().numpy()


def deviations(samples, true):
    """Distance of the samples' mean from the truth, in its standard errors."""
    error = samples.std(0, ddof=1) / np.sqrt(len(samples))
    return np.abs(samples.mean(0) - true) / np.maximum(error, 1e-7 * np.abs(true) + 1e-12)


@pytest.mark.parametrize("name", RANDOM)
def test_right_on_average(name):
    make = RANDOM[name][0]
    vector = laws.gradients([(100,)], rank=0)
    # Beyond 5 standard errors in any of 100 numbers: by chance once in 17,000 seeds. A bias of 8
    # standard errors (8/200 of one draw's deviation) in a single number is found 99.8 % of times.
    assert deviations(draws(make, vector), vector.double().numpy()).max() < 5
    assert make().unbiased


def test_clipping_is_not_right_on_average():
    vector = laws.gradients([(100,)], rank=0)
    assert deviations(draws(lambda: TernGrad(clip=1.0), vector), vector.numpy()).max() > 20
    assert not TernGrad(clip=1.0).unbiased


@pytest.mark.parametrize("name", RANDOM)
def test_noise_is_what_the_papers_say(name):
    make, levels, norm = RANDOM[name]
    vector = laws.gradients([(100,)], rank=0)
    values = vector.double().numpy()
    n, squared = values.size, (values**2).sum()
    scale = np.linalg.norm(values, norm)
    place = np.abs(values) / scale * levels
    chance = place - np.floor(place)
    expected = squared + ((scale / levels) ** 2 * chance * (1 - chance)).sum()
    squares = (draws(make, vector) ** 2).sum(1)
    # One number at 5 standard errors: by chance once in 1.7 million seeds.
    assert deviations(squares[:, None], expected).max() < 5
    assert expected <= (1 + min(n / levels**2, np.sqrt(n) / levels)) * squared
    if name == "TernGrad":
        assert expected == pytest.approx(scale * np.abs(values).sum())


def test_the_bound_on_noise_is_met_where_numbers_are_equal():
    # n equal numbers, one level, 2-norm: each is sent with probability 1/sqrt(n), as ||v||.
    vector = torch.ones(100)
    squares = (draws(lambda: QSGD(2, bucket=100, norm=2), vector) ** 2).sum(1)
    assert deviations(squares[:, None], np.sqrt(100) * 100).max() < 5


def test_ranks_draw_different_numbers_and_the_same_in_every_run():
    vector = laws.gradients([(64,)], rank=0)

    def check():
        return [make().aggregate(vector, Peers())[1] for make in (TernGrad, QSGD)]

    found, again = (launch(check, ranks=2, threads=1) for _ in range(2))
    for one, other in zip(*found):
        assert not torch.equal(one, other)
    for mine, same in zip(found, again):
        assert all(torch.equal(one, other) for one, other in zip(mine, same))


def test_error_feedback_brings_noise_back_that_is_larger_than_the_vector():
    vector = laws.gradients([(1000,)], rank=0)
    sizes = {}
    for name, make in {"coarse": lambda: QSGD(2, norm=2), "fine": QSGD}.items():
        feedback = ErrorFeedback(make())
        for _ in range(100):
            _, error = feedback.aggregate(vector, Alone())
        sizes[name] = (error.norm() / vector.norm()).item()
    assert sizes["coarse"] > 1000
    assert sizes["fine"] < 0.5


def test_scales_neither_overflow_nor_vanish():
    large = torch.full((1000,), 60_000.0, dtype=torch.float16)  # the sum and the squares overflow
    for make in (OneBitSGD, ScaledSign, TernGrad, QSGD, lambda: QSGD(8, norm=2)):
        assert torch.allclose(said(make(), large).mean(), large.mean(), rtol=0.1), make
    for size in (1e-30, 1e25):  # the squares vanish or overflow in float32
        vector = size * laws.gradients([(512,)], rank=0)
        found = said(QSGD(8, norm=2), vector) / size
        assert torch.allclose(found, vector / size, atol=0.3)


def test_scales_of_large_tensors_are_right():
    # Added one after the other, 2^20 numbers in float32 would be off by 5e-4.
    constant = torch.full((2**20,), 0.3)
    for make in (OneBitSGD, ScaledSign, lambda: QSGD(8, bucket=2**20, norm=2)):
        scale = make().compress(constant)[1].max().item()
        assert scale == pytest.approx(0.3 * (2**10 if make().unbiased else 1), rel=2e-6)
    alternating = constant * torch.tensor([1.0, -1.0]).repeat(2**19)
    assert TernGrad(clip=0.5).compress(alternating)[1].item() == pytest.approx(0.15, rel=2e-6)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_trains_in_many_buckets(wrapper):
    def check():
        found = {}
        for name, make in QUANTIZERS.items():
            biased = not make().unbiased
            with_memory = (lambda make=make: ErrorFeedback(make())) if biased else make
            found[name] = laws.training(with_memory, WRAPPERS[wrapper], steps=30, rate=0.5)
        return found

    for found in launch(check, ranks=2, threads=1, timeout=300):
        for name, (first, last, equal, buckets) in found.items():
            assert equal, name
            assert buckets > 2, name
            assert last < 0.5 * first, (name, first, last)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_gradients_are_the_mean_of_what_the_ranks_say_of_each_tensor(wrapper):
    def check():
        torch.manual_seed(dist.get_rank())
        inputs, labels = torch.randn(8, 40), torch.randint(10, (8,))
        for make in (OneBitSGD, ScaledSign):
            torch.manual_seed(0)
            alone = MLP(MLPConfig(hidden=(32, 32)))
            model = WRAPPERS[wrapper](copy.deepcopy(alone))
            model.register_comm_hook(CompressionState(make()), compression_hook)
            for each in (alone, model):
                F.cross_entropy(each(inputs), labels).backward()
            for mine, averaged in zip(alone.parameters(), model.parameters(), strict=True):
                own = make().decompress(make().compress(mine.grad), mine.grad)
                mean = sum(laws.of_all_ranks(own)) / dist.get_world_size()
                assert torch.allclose(averaged.grad, mean, rtol=1e-5, atol=1e-8)

    launch(check, ranks=2, threads=1, timeout=300)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: QSGD(3), "bits=3: give one of 2, 4, 8"),
        (lambda: QSGD(4, levels=8), "levels=8: 4 bits hold 1 to 7"),
        (lambda: QSGD(4, levels=0), "levels=0"),
        (lambda: QSGD(bucket=0), "bucket=0: give"),
        (lambda: QSGD(norm=1), "norm=1: give 2 or infinity"),
        (lambda: TernGrad(clip=0), "clip=0: give a number above 0, or None"),
        (lambda: TernGrad(clip=float("nan")), "clip=nan"),
        (lambda: ErrorFeedback(ErrorFeedback(ScaledSign())), "around ErrorFeedback: .* use it as"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
