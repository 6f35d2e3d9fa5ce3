"""The laws hold for sending everything, and each finds the fault that it is for."""

import torch

from lsdl_lib import launch
from lsdl_lib.communication.compression import ErrorFeedback, Exact
from lsdl_lib.communication.compression.randomness import RandomCompressor
from tests.communication.compression import laws


class Forgets(Exact):
    """Loses the second half and says that nothing was lost."""

    def aggregate(self, vector, peers, key=0, shapes=None):
        mean, residual = super().aggregate(vector, peers, key, shapes)
        mean[mean.numel() // 2 :] = 0
        return mean, residual


class Differs(Exact):
    def aggregate(self, vector, peers, key=0, shapes=None):
        mean, residual = super().aggregate(vector, peers, key, shapes)
        return mean + 1e-6 * peers.rank, residual - 1e-6 * peers.rank * peers.size


class Writes(Exact):
    def aggregate(self, vector, peers, key=0, shapes=None):
        vector.add_(1)
        return super().aggregate(vector, peers, key, shapes)


class Silent(Exact):
    """Sends nothing: what is lost is known, and nothing is learned."""

    def aggregate(self, vector, peers, key=0, shapes=None):
        return torch.zeros_like(vector), vector.clone()


class Hides(Exact):
    def aggregate(self, vector, peers, key=0, shapes=None):
        return super().aggregate(vector.nan_to_num(0, 0, 0), peers, key, shapes)


class Divides(Exact):
    def aggregate(self, vector, peers, key=0, shapes=None):
        return super().aggregate(vector / vector.norm() * vector.norm(), peers, key, shapes)


class Noisy(RandomCompressor):
    """Unbiased but for a shift; its generator may be left out of the state."""

    def __init__(self, shift=0.0, saved=True):
        super().__init__()
        self.shift, self.saved = shift, saved

    def aggregate(self, vector, peers, key=0, shapes=None):
        said = vector + (self.uniform(vector).to(vector.dtype) - 0.5 + self.shift)
        return peers.mean_(said.clone()), vector - said

    def state_dict(self):
        return super().state_dict() if self.saved else {}


class Remembers(Exact):
    """Adds all it has seen, NaN too."""

    total = 0

    def aggregate(self, vector, peers, key=0, shapes=None):
        self.total = self.total + vector
        return peers.mean_(self.total.clone()), vector - self.total


def test_laws_hold_for_everything_sent_and_find_their_faults():
    def check():
        error, problems = laws.conservation(Exact)
        assert error <= 1, error
        assert problems == []
        assert laws.conservation(Forgets)[0] > 1
        assert "the ranks' means differ" in laws.conservation(Differs)[1]
        assert "the vector was changed" in laws.conservation(Writes)[1]
        assert laws.progress(Exact)[0] < 1e-12
        assert laws.progress(Silent) == (50, 50)
        assert laws.progress(Forgets)[1] > 4.9
        assert laws.resumes(lambda: ErrorFeedback(Noisy()))
        assert not laws.resumes(lambda: Noisy(saved=False))
        assert laws.not_finite(Exact) == []
        assert len(laws.not_finite(Hides)) == 9
        assert laws.recovers(lambda: ErrorFeedback(Exact()))
        assert not laws.recovers(Remembers)
        assert laws.zeros_stay_zeros(Exact)
        assert not laws.zeros_stay_zeros(Divides)

    launch(check, ranks=2, threads=1)


def test_a_bias_of_a_hundredth_is_seen_and_none_is_not():
    vector = laws.gradients(laws.SHAPES, torch.float64, rank=0)
    # Standard error sqrt(1/12/40000) = 0.0014; 98 means beyond 5 of it by chance: 1 in 18,000.
    assert laws.deviations(Noisy(), vector, 40_000)[0].max() < 5
    assert laws.deviations(Noisy(shift=0.01), vector, 40_000)[0].min() > 2
    assert laws.deviations(Exact(), vector, 10)[0].max() == 0
    assert laws.deviations(Forgets(), vector, 10)[0].max() == float("inf")
