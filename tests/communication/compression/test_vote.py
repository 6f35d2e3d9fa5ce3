"""The majority vote against numpy's, its bytes, and why error feedback refuses it."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lsdl_lib import launch
from lsdl_lib.communication.collectives import (
    direct_all_to_all,
    pairwise_all_to_all,
    ring_all_gather,
)
from lsdl_lib.communication.compression import Alone, ErrorFeedback, Peers, Signum, SignVote
from lsdl_lib.communication.data_parallel import OverlappedDataParallel
from lsdl_lib.measure import traffic
from tests.communication.compression import laws

SIZES = (0, 1, 7, 8, 9, 31, 64, 65, 1000)


def elected(vectors):
    """numpy's majority: ties go to the rank that counts the number's byte. (p, n) -> (n,)"""
    p, n = vectors.shape
    signs = np.where(vectors >= 0, 1, -1)
    share = max(1, int(np.ceil(np.ceil(n / 8) / p)))
    counter = np.arange(n) // 8 // share
    ties = signs[counter, np.arange(n)]
    total = signs.sum(0)
    return np.where(total == 0, ties, np.sign(total))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_majority_wins(ranks):
    def check():
        for all_to_all in (direct_all_to_all, pairwise_all_to_all):
            peers = Peers(all_to_all=all_to_all, all_gather=ring_all_gather)
            for n in SIZES:
                for dtype in laws.FLOATS:
                    vector = laws.gradients([(n,)], dtype)
                    mean, residual = SignVote().aggregate(vector, peers)
                    vectors = np.stack([v.double().numpy() for v in laws.of_all_ranks(vector)])
                    assert mean.dtype == dtype
                    assert np.array_equal(mean.double().numpy(), elected(vectors)), (n, dtype)
                    assert torch.equal(residual, vector - mean)
        for dtype in laws.FLOATS:
            for make in (SignVote, Signum):
                error, problems = laws.conservation(make, dtype=dtype)
                assert problems == []
                # Signum's residual is of its momentum, a tenth of the vector at first.
                assert error <= 1 or make is Signum
                assert laws.not_finite(make, dtype=dtype) == []

    launch(check, ranks=ranks, threads=1, timeout=300)


@pytest.mark.parametrize("ranks", [2, 4])
def test_bytes_both_ways(ranks):
    def check():
        for n in (8 * ranks, 64 * ranks, 8000 * ranks):
            with traffic() as counted:
                SignVote().aggregate(laws.gradients([(n,)]), Peers())
            formula = 2 * (ranks - 1) / ranks * n / 8 + (ranks - 1)
            assert counted.sent_bytes == counted.received_bytes == formula
        # Sizes that ranks cannot share evenly: the part is rounded up to whole bytes.
        assert laws.sent_bytes(SignVote(), torch.ones(1)) == 3 * (ranks - 1)
        assert laws.sent_bytes(SignVote(), torch.ones(0)) == ranks - 1

    launch(check, ranks=ranks, threads=1)


def test_ties_favor_no_direction():
    def check():
        vector = torch.ones(800) * (1 if dist.get_rank() else -1)
        return SignVote().aggregate(vector, Peers())[0].sum().item()

    assert launch(check, ranks=2, threads=1) == [0, 0]


def test_case_67_zeros_walk_and_are_finite():
    assert torch.equal(SignVote().aggregate(torch.zeros(9), Alone())[0], torch.ones(9))


def test_one_rank_is_sign_sgd():
    vector = laws.gradients([(50,)], rank=0)
    assert torch.equal(SignVote().aggregate(vector, Alone())[0], torch.sign(vector))


def test_case_65_error_feedback_refuses_a_vote_because_an_outvoted_rank_never_catches_up():
    for make in (SignVote, Signum):
        with pytest.raises(ValueError, match=f"around {make.__name__}: its residual may not"):
            ErrorFeedback(make())

    def check():
        # The mean is 0.1; two of three ranks want to go down.
        gradient = torch.tensor([2.3 if dist.get_rank() == 0 else -1.0])
        error, sizes = torch.zeros(1), []
        for _ in range(40):
            _, error = SignVote().aggregate(gradient + error, Peers())
            sizes.append(error.abs().item())
        return sizes

    outvoted, *_ = launch(check, ranks=3, threads=1)
    assert outvoted[39] > 1.8 * outvoted[19] > 3.2 * outvoted[9]


def test_signum_votes_on_momentum():
    def check():
        peers, signum = Peers(), Signum(0.5)
        momentum = np.zeros((dist.get_world_size(), 100))
        for step in range(5):
            vector = laws.gradients([(100,)], torch.float64, seed=step)
            vectors = np.stack([v.numpy() for v in laws.of_all_ranks(vector)])
            momentum = 0.5 * momentum + 0.5 * vectors
            mean, residual = signum.aggregate(vector, peers)
            assert np.array_equal(mean.numpy(), elected(momentum))
            assert np.allclose(residual.numpy(), momentum[dist.get_rank()] - mean.numpy())
            plain = Signum(0).aggregate(vector, peers)
            assert laws.same_bits((plain[0], SignVote().aggregate(vector, peers)[0]))
        assert laws.resumes(Signum)
        assert laws.recovers(Signum)
        # Case 62: a bucket of another size, or with other contents, starts at 0.
        signum.aggregate(torch.ones(7), peers)
        assert torch.equal(signum.momenta[0], torch.full((7,), 0.5))
        signum.forget(0)
        signum.aggregate(torch.ones(7), peers)
        assert torch.equal(signum.momenta[0], torch.full((7,), 0.5))

    launch(check, ranks=2, threads=1)
    with pytest.raises(ValueError, match="beta=1: give a share from 0 to below 1"):
        Signum(1)


def test_trains_in_many_buckets():
    wrappers = (
        lambda model: DistributedDataParallel(model, bucket_cap_mb=0.001),
        lambda model: OverlappedDataParallel(model, bucket_mb=0.002, first_bucket_mb=0.001),
    )

    def check():
        # Steps of one size for every parameter: a small rate.
        return [
            laws.training(make, w, steps=30, rate=0.006)
            for make in (SignVote, Signum)
            for w in wrappers
        ]

    for found in launch(check, ranks=2, threads=1, timeout=300):
        for first, last, equal, buckets in found:
            assert equal
            assert buckets > 2
            assert last < 0.5 * first
