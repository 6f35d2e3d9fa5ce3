"""ATOMO: the laws, exact expectations over all draws, and least variance."""

import itertools

import numpy as np
import pytest
import torch

from lsdl_lib import launch
from lsdl_lib.communication.compression import Alone, ErrorFeedback, message_bytes
from lsdl_lib.communication.compression.atomo import Atomo, probabilities
from tests.communication.compression import laws

SHAPES = [(5, 7), (9,), (), (0, 4), (2, 2, 13)]


class Told(Atomo):
    """Sends the pairs that it is told to; keeps the probabilities."""

    def draw(self, p):
        self.p = p
        return torch.tensor(self.sent[: len(p)])


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_laws_of_compressors_hold(ranks):
    def make():
        return Atomo(2)

    def check():
        for dtype in laws.FLOATS:
            error, problems = laws.conservation(make, dtype=dtype)
            assert problems == [], dtype
            assert error <= 1, f"{dtype}: {error}"
        assert laws.not_finite(make) == []
        assert laws.recovers(lambda: ErrorFeedback(make()))
        assert laws.zeros_stay_zeros(make)
        assert laws.resumes(make)  # case 63

    launch(check, ranks=ranks, threads=1)


def outcomes(matrix, pairs):
    """Return [(probability, what is said)] of all draws, and the p of the pairs."""
    compressor, found = Told(pairs), []
    for sent in itertools.product([True, False], repeat=min(matrix.shape)):
        compressor.sent = list(sent)
        said = compressor.aggregate(matrix.flatten(), Alone(), 0, [matrix.shape])[0]
        p = compressor.p.numpy()
        found.append((np.prod(np.where(sent, p, 1 - p)), said.view_as(matrix).numpy()))
    return [(weight, said) for weight, said in found if weight > 0], p


@pytest.mark.parametrize("pairs", [0.3, 1, 2, 2.5, 4, 4.9])
@pytest.mark.parametrize("shape", [(5, 7), (8, 5)])
def test_the_expectation_over_all_draws_is_the_matrix_and_the_variance_is_the_formula(shape, pairs):
    matrix = laws.gradients([shape], torch.float64, rank=0).view(shape)
    matrix[:, 0] *= 10  # so that one pair is sent always from pairs=2 on
    everything, p = outcomes(matrix, pairs)
    assert sum(weight for weight, _ in everything) == pytest.approx(1)
    mean = sum(weight * said for weight, said in everything)
    np.testing.assert_allclose(mean, matrix.numpy(), atol=1e-12)
    variance = sum(weight * ((said - matrix.numpy()) ** 2).sum() for weight, said in everything)
    sizes = np.linalg.svd(matrix.numpy(), compute_uv=False)
    assert variance == pytest.approx((sizes**2 * (1 / p - 1)).sum(), abs=1e-10)
    assert p.sum() == pytest.approx(pairs)


def test_draws_have_their_probabilities_and_are_independent():
    """With the test before: the mean of many draws is the matrix."""
    p, draws = torch.tensor([0.5, 0.3, 0.02, 1.0, 0.0], dtype=torch.float64), 100_000
    sent = Atomo(1).draw(p.expand(draws, -1)).double().numpy()
    assert (sent[:, 3] == 1).all()
    assert (sent[:, 4] == 0).all()
    for columns in [[0], [1], [2], [0, 1], [0, 2], [1, 2]]:
        expected = p[columns].prod().item()
        error = np.sqrt(expected * (1 - expected) / draws)  # at most 0.0016
        found = sent[:, columns].prod(1).mean()
        assert abs(found - expected) < 5 * error  # a bias of 0.01 is seen, chance 1 in 300,000 not


@pytest.mark.parametrize(
    ("sizes", "total", "expected"),
    [
        ([4, 3, 2, 1], 1, [0.4, 0.3, 0.2, 0.1]),
        ([4, 3, 2, 1], 2.5, [1, 0.75, 0.5, 0.25]),
        ([10, 1, 1], 2, [1, 0.5, 0.5]),
        ([100, 10, 1, 1], 3, [1, 1, 0.5, 0.5]),
        ([3, 2], 2, [1, 1]),
        ([3, 2], 5, [1, 1]),
        ([3, 0], 2, [1, 0]),
        ([0, 0], 1, [0, 0]),
        ([1, 1, 1], 0.6, [0.2, 0.2, 0.2]),
    ],
)
def test_probabilities_by_hand(sizes, total, expected):
    found = probabilities(torch.tensor(sizes, dtype=torch.float32), total)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_no_other_probabilities_of_that_sum_have_less_variance():
    generator = np.random.default_rng(0)
    for _ in range(30):
        k = generator.integers(2, 9)
        sizes = np.sort(generator.exponential(size=k) ** 3)[::-1].copy()
        total = generator.uniform(0.1, k)
        best = probabilities(torch.from_numpy(sizes), total).numpy()
        assert best.sum() == pytest.approx(total)
        assert best.max() <= 1
        variance = (sizes**2 / best).sum()
        for _ in range(100):
            give, take = generator.choice(k, 2, replace=False)
            moved = best.copy()
            some = generator.uniform() * min(1 - moved[take], moved[give])
            moved[take], moved[give] = moved[take] + some, moved[give] - some
            if moved[give] > 0:
                assert (sizes**2 / moved).sum() >= variance * (1 - 1e-12)


def test_as_many_pairs_as_the_smaller_side_send_everything():
    for dtype, near in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        vector = laws.gradients(SHAPES, dtype, rank=0)
        mean, residual = Atomo(5).aggregate(vector, Alone(), 0, SHAPES)
        torch.testing.assert_close(mean, vector, atol=near, rtol=0)
        assert residual.abs().max() < near


def test_a_message_has_the_vectors_that_were_drawn():
    compressor, matrix = Told(2), laws.gradients([(6, 9)], rank=0).view(6, 9)
    for sent in ([True] * 6, [False, True, False, True, False, False], [False] * 6):
        compressor.sent = sent
        assert message_bytes(compressor.compress(matrix)) == 4 * sum(sent) * (6 + 9)
    vector = matrix.flatten()
    assert message_bytes(compressor.compress(vector)) == 4 * 54
    assert compressor.compress(vector)[0].equal(vector)


def test_ranks_draw_on_their_own():
    def run():
        matrix = laws.gradients([(8, 8)], rank=0).view(8, 8)
        compressor = Atomo(4)
        return [len(compressor.compress(matrix)[0]) for _ in range(30)]

    one, other = launch(run, ranks=2, threads=1)
    assert one != other


def test_no_pairs_are_refused():
    with pytest.raises(ValueError, match="pairs=0: give the expected number of pairs, above 0"):
        Atomo(0)
