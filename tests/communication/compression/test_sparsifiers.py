"""Top-k, sampled top-k, random-k and the threshold: their laws, their bytes, their hard cases."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lsdl_lib import launch
from lsdl_lib.communication.compression import (
    Alone,
    ErrorFeedback,
    Peers,
    RandomK,
    SampledTopK,
    Threshold,
    TopK,
    message_bytes,
)
from lsdl_lib.communication.compression.top_k import check_index_fits, number_kept
from lsdl_lib.communication.data_parallel import OverlappedDataParallel
from tests.communication.compression import laws

MAKERS = {
    "top-k": partial(TopK, 0.1),
    "top-k by tensor": partial(TopK, 0.1, by_tensor=True),
    "sampled": partial(SampledTopK, 0.1, 0.3),
    "sampled by tensor": partial(SampledTopK, 0.1, 0.3, by_tensor=True),
    "random-k": partial(RandomK, 0.1),
    "random-k unscaled": partial(RandomK, 0.1, unbiased=False),
    "threshold": partial(Threshold, 0.5),
}
EXACT = {
    "top-k": partial(TopK, 1),
    "top-k by tensor": partial(TopK, 1, by_tensor=True),
    "sampled": partial(SampledTopK, 1),
    "random-k": partial(RandomK, 1),
    "random-k unscaled": partial(RandomK, 1, unbiased=False),
}
TYPES = (torch.float32, torch.float16)
VECTORS = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=60)
SHARES = st.floats(0.001, 1)


def said(compressor, vector):
    return compressor.decompress(compressor.compress(vector), vector)


def all_laws():
    """Run the shared laws for all; return what each found."""
    found = {}
    for name, make in MAKERS.items():
        found[name] = {
            "conservation": [laws.conservation(make, dtype=dtype) for dtype in laws.FLOATS],
            "small": [laws.conservation(make, ((n,),)) for n in (0, 1, 3)],
            "resumes": [laws.resumes(make), laws.resumes(lambda make=make: ErrorFeedback(make()))],
            "not finite": [laws.not_finite(make, ((5, 7), (3,)), dtype) for dtype in TYPES],
            "recovers": laws.recovers(lambda make=make: ErrorFeedback(make())),
            "zeros": laws.zeros_stay_zeros(make),
        }
    return found


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_laws_hold(ranks):
    for found in launch(all_laws, ranks=ranks, threads=1, timeout=240):
        for name, law in found.items():
            for error, problems in law["conservation"] + law["small"]:
                assert problems == [], name
                assert error <= 1, name
            assert law["resumes"] == [True, True], name  # case 63
            assert law["not finite"] == [[]] * len(TYPES), name
            assert law["recovers"], name
            assert law["zeros"], name  # case 67


def exact():
    """The largest difference from the mean, for those that send everything."""
    vector, off = laws.gradients(laws.SHAPES, torch.float64), {}
    true = Peers().mean_(vector.clone())
    for name, make in EXACT.items():
        mean, residual = make().aggregate(vector, Peers(), 0, laws.SHAPES)
        off[name] = ((mean - true).abs().max().item(), residual.abs().max().item())
    return off


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_everything_sent_is_the_mean(ranks):
    for found in launch(exact, ranks=ranks, threads=1, timeout=240):
        for name, (error, residual) in found.items():
            assert error < 1e-15 * ranks, name
            assert residual == 0, name


@given(vector=VECTORS, share=SHARES)
def test_top_k_keeps_the_largest_and_contracts(vector, share):
    x = torch.tensor(vector, dtype=torch.float64)
    kept, n = said(TopK(share), x).numpy(), len(vector)
    k = int(np.ceil(share * n * (1 - 1e-9)))
    numbers = np.array(vector)
    order = np.sort(np.abs(numbers))[::-1]
    assert np.count_nonzero(kept) <= k
    assert np.all((kept == 0) | (kept == numbers))
    # The sizes that were kept are the k largest sizes, whichever of equal ones.
    assert np.abs(kept).sum() == pytest.approx(order[:k].sum(), rel=1e-12)
    lost = ((numbers - kept) ** 2).sum()
    assert lost <= (1 - k / n) * (numbers**2).sum() * (1 + 1e-12)


def test_top_k_loses_all_that_the_bound_allows_where_sizes_are_equal():
    x = torch.tensor([2.0, -2.0, 2.0, 2.0, -2.0])
    assert ((x - said(TopK(0.4), x)) ** 2).sum() == (1 - 2 / 5) * 20


@pytest.mark.parametrize(
    ("share", "n", "k"),
    [(0.07, 100, 7), (0.1, 10, 1), (0.101, 10, 2), (1, 7, 7), (1e-9, 5, 1), (0.5, 0, 0)],
)
def test_a_share_is_rounded_up(share, n, k):
    assert number_kept(share, n) == k
    assert TopK(share).compress(torch.ones(n))[0].numel() == k


def test_top_k_by_tensor_takes_a_share_of_each():
    vector = torch.cat([torch.full((10,), 1e-3), torch.full((20,), 5.0), torch.tensor([7.0])])
    shapes = ((10,), (4, 5), ())
    mean, _ = TopK(0.2, by_tensor=True).aggregate(vector, Alone(), 0, shapes)
    assert [part.count_nonzero().item() for part in mean.split([10, 20, 1])] == [2, 4, 1]
    whole, _ = TopK(0.2).aggregate(vector, Alone(), 0, shapes)
    assert [part.count_nonzero().item() for part in whole.split([10, 20, 1])] == [0, 6, 1]


@pytest.mark.parametrize("dtype", laws.FLOATS)
@pytest.mark.parametrize("n", [1, 7, 8, 1000])
def test_bytes_of_a_message(n, dtype):
    x = laws.gradients(((n,),), dtype, rank=0)
    k, width = number_kept(0.1, n), x.element_size()
    assert message_bytes(TopK(0.1).compress(x)) == k * (4 + width)
    assert message_bytes(RandomK(0.1).compress(x)) == 8 + k * width
    assert message_bytes(Threshold(0.5).compress(x)) == 4 * int((x.abs() >= 0.5).sum())


def bytes_on_the_wire():
    """Bytes that a rank sends for 1,280 float32 numbers, k = 128."""
    x, p = laws.gradients(((1280,),)), dist.get_world_size()
    reached = [int((one.abs() >= 1.5).sum()) for one in laws.of_all_ranks(x)]
    return {
        "top-k": (laws.sent_bytes(TopK(0.1), x), (p - 1) * 128 * 8),
        "random-k": (laws.sent_bytes(RandomK(0.1), x), 2 * (p - 1) * 128 * 4 // p),
        # The number of words first, 8 bytes, then as many words as the longest message has.
        "threshold": (laws.sent_bytes(Threshold(1.5), x), (p - 1) * (8 + 4 * max(reached))),
    }


@pytest.mark.parametrize("ranks", [2, 4])
def test_bytes_on_the_wire(ranks):
    for found in launch(bytes_on_the_wire, ranks=ranks, threads=1, timeout=240):
        for name, (sent, expected) in found.items():
            assert sent == expected, name


def test_random_k_is_unbiased_and_its_variance_is_known():
    """z of 40 numbers over 5,000 draws: beyond 4.5 with probability 40 * 7e-6 = 0.0003 if right.

    n/k = 4, so a number's standard error is sqrt(3/5000) = 2.4 % of it: a bias of 15 % would be
    6.1 standard errors, and seen with probability 0.95. To forget the scale is a bias of 75 %.
    """
    x = laws.gradients(((40,),), torch.float64, rank=0)
    z, squares = laws.deviations(RandomK(0.25, seed=3), x, 5000)
    assert z.max() < 4.5
    # E||C(x)||^2 = n/k ||x||^2. A draw's ||C||^2 varies by about a third of it, the mean by 0.5 %.
    assert squares == pytest.approx(4 * float((x**2).sum()), rel=0.02)


def test_random_k_unscaled_contracts_in_expectation():
    """The mean of ||x - C(x)||^2 over 4,000 draws; one draw varies by under a third of it."""
    x, compressor = laws.gradients(((40,),), torch.float64, rank=0), RandomK(0.3, unbiased=False)
    lost = [float(((x - said(compressor, x)) ** 2).sum()) for _ in range(4000)]
    assert np.mean(lost) == pytest.approx((1 - 12 / 40) * float((x**2).sum()), rel=0.02)


def test_random_k_draws_each_place_equally_often():
    """Chi-squared of 30 counts over 3,000 draws of 6: mean 29 x 0.8 / 0.97, beyond 60 never."""
    x, compressor, counts = torch.ones(30), RandomK(0.2, unbiased=False, seed=5), np.zeros(30)
    for _ in range(3000):
        counts += said(compressor, x).numpy()
    assert counts.sum() == 3000 * 6
    assert ((counts - 600) ** 2 / 600).sum() < 60


def same_places():
    """The places that three means have, with other random numbers drawn on the rank before."""
    torch.manual_seed(dist.get_rank())
    compressor = RandomK(0.2, seed=1)
    x = laws.gradients(((50,),))
    return [compressor.aggregate(x, Peers())[0].nonzero().flatten().tolist() for _ in range(3)]


def test_random_k_draws_the_same_places_on_all_ranks_and_others_each_time():
    one, two, three = launch(same_places, ranks=3, threads=1, timeout=240)
    assert one == two == three
    assert all(len(places) == 10 for places in one)
    assert one[0] != one[1] != one[2]


def test_random_k_scaled_diverges_under_error_feedback_as_its_docstring_says():
    x = torch.ones(40, dtype=torch.float64)
    for unbiased, bounded in ((True, False), (False, True)):
        compressor = ErrorFeedback(RandomK(0.1, unbiased=unbiased))
        for _ in range(300):
            _, residual = compressor.aggregate(x, Alone())
        # Unscaled, the error of a number is the steps since it was sent: 10 on average.
        assert (residual.norm() < 200) == bounded


def test_sampled_top_k_sends_about_its_share_of_the_largest():
    """The threshold is the 10th of 1,000 sampled sizes: the k sent vary by about a third."""
    x, counts = laws.gradients(((100000,),), rank=0), []
    compressor = SampledTopK(0.01, 0.01, most=100)
    order = x.abs().sort(descending=True).values
    for _ in range(50):
        indices, values = compressor.compress(x)
        counts.append(values.numel())
        assert (
            values.abs().min() == order[counts[-1] - 1]
        )  # the largest ones, whatever their number
        assert torch.equal(x[indices.long()], values)
    # Its mean over 50 is within 5 % of 1/share, one standard error; 10 numbers below 10 of 1,000.
    assert 800 < np.mean(counts) < 1250
    assert np.std(counts) > 100


def test_sampled_top_k_selects_again_where_too_many_pass():
    x = torch.full((10000,), 2.0)  # all pass the threshold
    indices, values = SampledTopK(0.01).compress(x)
    assert values.numel() == 100
    assert indices.unique().numel() == 100
    x = laws.gradients(((10000,),), rank=0)
    counts = [SampledTopK(0.01, seed=seed).compress(x)[1].numel() for seed in range(60)]
    assert max(counts) <= 130
    assert counts.count(100) > 5  # those that were too many, cut to k


def test_progress_of_each_number_under_error_feedback():
    """Case 65: with a constant gradient [1, 0.1], both arrive, and no error grows."""
    makers = {
        "top-k": (partial(TopK, 0.5), 1.1),  # 0.1 waits until it is more than 1
        "random-k": (partial(RandomK, 0.5, unbiased=False, seed=2), 12),  # longest wait: 12 steps
        "sampled": (partial(SampledTopK, 0.5), 1.1),
        "threshold": (partial(Threshold, 1.5), 3),  # at least each rank's gradient, 1.33
    }

    def run():
        return {name: laws.progress(make) for name, (make, _) in makers.items()}

    for found in launch(run, ranks=2, threads=1, timeout=240):
        for name, (furthest, last) in found.items():
            assert 0 < furthest <= makers[name][1], name
            assert last <= furthest, name


def test_the_threshold_moves_by_tau_at_most_so_larger_gradients_pile_up():
    compressor, x = ErrorFeedback(Threshold(0.25)), torch.tensor([1.0, 0.1])
    for _ in range(40):
        mean, residual = compressor.aggregate(x, Alone())
    assert mean[0] == 0.25
    assert residual[0] == 40 * 0.75  # as its docstring says
    assert 0 <= residual[1] < 0.25


def test_the_threshold_is_exact_for_numbers_of_its_size():
    x = torch.tensor([0.5, 0.0, -0.5, 0.5, -0.5])
    words = Threshold(0.5).compress(x)[0]
    assert words.tolist() == [0, -3, 3, -5]
    assert torch.equal(said(Threshold(0.5), x), x)


@given(vector=VECTORS, tau=st.floats(0.01, 1e5))
def test_the_threshold_sends_signs_of_what_reaches_it(vector, tau):
    numbers = np.array(vector)
    expected = np.where(np.abs(numbers) >= tau, tau * np.sign(numbers), 0)
    got = said(Threshold(tau), torch.tensor(vector, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-15)


def test_case_62_another_size_under_a_known_key_starts_anew():
    for make in MAKERS.values():
        compressor = ErrorFeedback(make())
        compressor.aggregate(laws.gradients(((12,),), rank=0), Alone(), 0, ((12,),))
        x = laws.gradients(((20,),), rank=1)
        mean, residual = compressor.aggregate(x, Alone(), 0, ((20,),))
        torch.testing.assert_close(mean + residual, x)  # nothing of the first one's error


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TopK(0), "share=0:"),
        (lambda: TopK(1.5), "share=1.5:"),
        (lambda: RandomK(-1), "share=-1:"),
        (lambda: SampledTopK(float("nan")), "share=nan:"),
        (lambda: SampledTopK(0.1, 0), "sample=0:"),
        (lambda: SampledTopK(0.1, most=0.5), "most=0.5:"),
        (lambda: Threshold(0), "tau=0:"),
        (lambda: Threshold(float("nan")), "tau=nan:"),
        (lambda: check_index_fits(2**31), "2147483648 numbers: their indices do not fit 32 bits"),
    ],
)
def test_wrong_arguments_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def trained():
    """Train through the hook, under ours and under torch's wrapper."""
    wrappers = {
        "ours": partial(OverlappedDataParallel, bucket_mb=0.004, first_bucket_mb=0.001),
        "torch": partial(nn.parallel.DistributedDataParallel, bucket_cap_mb=0.004),
    }
    makers = {
        "top-k": partial(TopK, 0.1),
        "sampled": partial(SampledTopK, 0.1, 0.2, by_tensor=True),
        "random-k": partial(RandomK, 0.2, unbiased=False),
        "threshold": partial(Threshold, 0.05),
    }
    return {
        (name, which): laws.training(lambda make=make: ErrorFeedback(make()), wrap)
        for name, make in makers.items()
        for which, wrap in wrappers.items()
    }


def test_training_in_many_buckets_under_both_wrappers():
    for found in launch(trained, ranks=2, threads=1, timeout=240):
        for name, (first, last, equal, buckets) in found.items():
            assert equal, name
            assert buckets > 1, name
            assert last < 0.5 * first, name
