"""Fitting: the line, the pieces, and this machine."""

import math

import pytest
import torch.distributed as dist

from lsdl_lib import launch
from lsdl_lib.communication.cost import Fit, Link, MeasuredLink, fit_link
from lsdl_lib.communication.cost.fitting import fit_here, fit_line

SIZES = (256, 4096, 65536, 2**20)


def test_a_line_is_found_again():
    link = Link(alpha=3e-5, beta=2e-9)
    alpha, beta = fit_line(SIZES, [link.seconds(n) for n in SIZES])
    assert math.isclose(alpha, link.alpha, rel_tol=1e-9)
    assert math.isclose(beta, link.beta, rel_tol=1e-9)


def test_a_latency_is_never_negative():
    assert fit_line((100, 200), (1.0, 3.0))[0] == 0.0


def test_bytes_always_cost_something():
    alpha, beta = fit_line((100, 200), (3.0, 2.0))  # noise: the larger was faster
    assert (alpha, beta) == (2.0, 2.0 / 200)


def test_pieces_meet_the_measured_times_and_go_on_as_the_last_piece_does():
    link = MeasuredLink((100, 200, 400), (1.0, 2.0, 8.0))
    at = {0: 1.0, 100: 1.0, 150: 1.5, 200: 2.0, 300: 5.0, 400: 8.0, 500: 11.0}
    assert {n: link.seconds(n) for n in at} == at
    assert link.between(0, 1) is link


@pytest.mark.parametrize(
    ("sizes", "times", "words"),
    [
        ((100,), (1.0,), r"sizes=\(100,\): give at least two"),
        ((200, 100), (1.0, 2.0), r"sizes=\(200, 100\): .* ascending"),
        ((100, 200), (2.0, 1.0), r"times=\(2.0, 1.0\): .* ascending"),
        ((100, 100), (1.0, 2.0), "give one time a different size"),
        ((100, 200), (1.0, 2.0, 3.0), "give one time a different size"),
    ],
)
def test_wrong_measurements_are_named(sizes, times, words):
    with pytest.raises(ValueError, match=words):
        MeasuredLink(sizes, times)


def test_noise_never_makes_a_larger_message_faster():
    fit = Fit(Link(1.0, 0.0), (100, 200, 300), (2.0, 1.0, 3.0))
    assert fit.measured == MeasuredLink((100, 200, 300), (2.0, 2.0, 3.0))
    assert fit.errors == [-0.5, 0.0, 1.0 / 3.0 - 1]


def test_this_machine_gets_a_link_the_same_on_both_ranks():
    one, other = launch(fit_here, SIZES, 5, ranks=2, threads=1, timeout=60)
    assert one == other
    assert one.sizes == SIZES
    assert all(seconds > 0 for seconds in one.seconds)
    assert one.link.beta > 0
    assert one.link.gamma > 0


def test_a_slow_step_shows_in_the_fit():
    """A rank that sleeps before each message: the fitted latency is at least its sleep."""

    def slow():
        import time

        from lsdl_lib.communication.collectives.messages import Messages

        exchange = Messages.exchange

        def late(self, sends=(), receives=()):
            time.sleep(0.02)
            return exchange(self, sends, receives)

        Messages.exchange = late
        return fit_here(SIZES, 5).link.alpha, dist.get_rank()

    assert all(alpha > 0.015 for alpha, _ in launch(slow, ranks=2, threads=1, timeout=60))


def test_one_size_is_refused():
    with pytest.raises(ValueError, match="two numbers cannot be fitted to one size"):
        fit_link((64, 64))
