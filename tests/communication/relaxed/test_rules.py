"""The apply rules against their formulas in numpy; the simulator of staleness."""

import numpy as np
import pytest
import torch

from lsdl_lib.communication.relaxed.delay_compensation import DelayCompensatedSGD
from lsdl_lib.communication.relaxed.event_log import Event, EventLog
from lsdl_lib.communication.relaxed.replay import constant_staleness, replay
from lsdl_lib.communication.relaxed.rules import PlainSGD, TorchOptimizer
from lsdl_lib.communication.relaxed.staleness_aware import StalenessAwareSGD

LR = 0.1
WEIGHTS, GRADIENT, SEEN = (
    torch.tensor(values, dtype=torch.float64)
    for values in ([1.0, -2.0, 3.0], [0.5, -1.0, 2.0], [0.9, -2.5, 3.0])
)


def after(rule, staleness, times=1):
    weights = WEIGHTS.clone()
    for _ in range(times):
        rule.update(weights, GRADIENT.clone(), staleness, SEEN)
    return weights.numpy()


@pytest.mark.parametrize(("staleness", "divisor"), [(0, 1), (1, 1), (2, 2), (7, 7)])
def test_staleness_aware_divides_the_rate(staleness, divisor):
    expected = WEIGHTS.numpy() - LR / divisor * GRADIENT.numpy()
    assert np.allclose(after(StalenessAwareSGD(LR), staleness), expected, rtol=1e-15)
    assert np.array_equal(after(PlainSGD(LR), staleness), WEIGHTS.numpy() - LR * GRADIENT.numpy())


def test_delay_compensation_is_its_formula():
    w, g, v, lam = WEIGHTS.numpy(), GRADIENT.numpy(), SEEN.numpy(), 0.3
    expected = w - LR * (g + lam * g * g * (w - v))
    assert np.allclose(after(DelayCompensatedSGD(LR, lam), 3), expected, rtol=1e-15)
    assert np.array_equal(after(DelayCompensatedSGD(LR, 0.0), 3), after(PlainSGD(LR), 3))


def test_adaptive_delay_compensation_is_its_formula():
    w, g, v, lam, decay = WEIGHTS.numpy(), GRADIENT.numpy(), SEEN.numpy(), 0.3, 0.9
    mean = np.zeros(3)
    for _ in range(3):
        mean = decay * mean + (1 - decay) * g * g
        w = w - LR * (g + lam / np.sqrt(mean + 1e-7) * g * g * (w - v))
    rule = DelayCompensatedSGD(LR, lam, adaptive=True, decay=decay)
    assert np.allclose(after(rule, 3, times=3), w, rtol=1e-14)


def test_compensation_is_exact_where_the_outer_product_is_the_hessian():
    # f(w) = -log(1 - w): g = 1 / (1 - w), and f'' = g * g.
    seen, weights = 0.2, 0.2 + 1e-4
    stale, fresh = 1 / (1 - seen), 1 / (1 - weights)
    found, old = (torch.tensor([x], dtype=torch.float64) for x in (weights, seen))
    gradient = torch.tensor([stale], dtype=torch.float64)
    DelayCompensatedSGD(1.0, 1.0).update(found, gradient, 1, old)
    used = weights - found.item()
    assert abs(used - fresh) < 1e-3 * abs(stale - fresh)  # what is left is of second order


def test_any_optimizer_of_torch_is_a_rule_and_saves_its_state():
    def make(parameters):
        return torch.optim.Adagrad(parameters, lr=LR)

    alone = torch.nn.Parameter(WEIGHTS.clone())
    optimizer = make([alone])
    rule, weights = TorchOptimizer(make), WEIGHTS.clone()
    for step in range(6):
        if step == 3:
            state, rule = rule.state_dict(), TorchOptimizer(make)
            rule.load_state_dict(state)
        alone.grad = GRADIENT * (step + 1)
        optimizer.step()
        rule.update(weights, GRADIENT * (step + 1), 0, SEEN)
        assert torch.equal(weights, alone.detach())


@pytest.mark.parametrize("tau", [0, 1, 4])
def test_the_simulator_of_constant_staleness(tau):
    history = [WEIGHTS.numpy()]
    for t in range(20):
        old = history[max(0, t - tau)]
        history.append(history[-1] - LR * (old * np.array([1.0, 0.5, 0.1]) - 0.1 * t))

    def gradient(worker, step, weights):
        return weights * torch.tensor([1.0, 0.5, 0.1], dtype=torch.float64) - 0.1 * step

    log = constant_staleness(20, tau)
    found = replay(log, WEIGHTS, gradient, PlainSGD(LR))
    assert np.allclose(found.numpy(), history[-1], rtol=0, atol=1e-14)
    assert log.staleness()[tau] == 20 - tau
    assert torch.equal(WEIGHTS, torch.tensor([1.0, -2.0, 3.0]).double())


def test_on_a_quadratic_staleness_lowers_the_largest_stable_rate():
    # w_{t+1} = w_t - lr h w_{t-tau} is stable below lr h = 2 sin(pi / (2 (2 tau + 1))).
    for tau in (0, 1, 2, 5):
        limit = 2 * np.sin(np.pi / (2 * (2 * tau + 1)))
        for factor, shrinks in ((0.95, True), (1.05, False)):
            log = constant_staleness(1500, tau)
            one = torch.ones(1, dtype=torch.float64)
            end = replay(log, one, lambda k, m, weights: weights, PlainSGD(factor * limit))
            assert (end.abs().item() < 1) == shrinks, (tau, factor)


def test_logs_that_do_not_fit_are_refused():
    one = EventLog([Event(0.0, 1, 0, 0, 0, "applied"), Event(1.0, 1, 1, 1, 1, "applied")])
    other = EventLog([Event(0.0, 1, 0, 2, 1, "applied")])
    with pytest.raises(ValueError, match="never came"):
        replay([other], torch.zeros(2), lambda k, m, w: w, PlainSGD(LR))
    assert torch.equal(replay(one, torch.zeros(2), lambda k, m, w: w, PlainSGD(LR)), torch.zeros(2))
