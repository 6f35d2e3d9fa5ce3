import json
from statistics import median

import numpy as np
import pytest

from benchmarks.pairs import machine, paired, report


class Clock:
    """A clock that only moves when a job says so, times a load that both sides feel."""

    def __init__(self, load=lambda: 1.0):
        self.now, self.load, self.order = 0.0, load, []

    def __call__(self):
        return self.now

    def job(self, name, seconds):
        def run():
            self.order.append(name)
            self.now += seconds() * self.load()

        return run


def test_order_alternates_and_warm_up_does_not_count():
    clock = Clock()
    result = paired(clock.job("A", lambda: 3.0), clock.job("B", lambda: 2.0), 30, clock=clock)
    assert "".join(clock.order[:8]) == "ABBAABBA"
    assert len(clock.order) == 2 * (30 + 2)
    assert result.ratio == result.low == result.high == 1.5
    assert result.a_seconds == (3.0,) * 30


def test_a_load_that_drifts_cancels_in_the_pairs():
    draws = np.random.default_rng(1)
    clock = Clock(load=lambda: 1 + clock.now / 500)  # slower and slower: 1 x to 3 x
    job_a = clock.job("A", lambda: 0.8 * draws.normal(1, 0.02))
    job_b = clock.job("B", lambda: 1.0 * draws.normal(1, 0.02))
    result = paired(job_a, job_b, 300, clock=clock)
    assert max(result.b_seconds) > 2 * min(result.b_seconds)
    assert result.low <= 0.8 <= result.high
    assert result.high - result.low < 0.01


def test_interval_covers_the_known_ratio():
    draws = np.random.default_rng(2)
    inside = 0
    for _ in range(400):
        clock = Clock(load=lambda: draws.lognormal(0, 0.5))
        result = paired(
            clock.job("A", lambda: 1.1 * draws.lognormal(0, 0.1)),
            clock.job("B", lambda: draws.lognormal(0, 0.1)),
            30,
            clock=clock,
        )
        inside += result.low <= 1.1 <= result.high
    assert 0.95 - 3 * 0.011 < inside / 400 < 1  # three standard errors


def test_before_runs_untimed_before_each_run():
    clock = Clock()
    wait = clock.job("-", lambda: 100.0)
    result = paired(
        clock.job("A", lambda: 1.0), clock.job("B", lambda: 1.0), before=wait, warmup=0, clock=clock
    )
    assert "".join(clock.order[:8]) == "-A-B-B-A"
    assert result.ratio == 1


def test_real_clock():
    result = paired(lambda: sum(range(20000)), lambda: sum(range(5000)))
    assert result.low > 2
    assert median(result.b_seconds) > 0


def test_errors_name_the_value():
    with pytest.raises(ValueError, match="pairs is 29"):
        paired(lambda: None, lambda: None, 29)
    with pytest.raises(ValueError, match="took no time"):
        paired(lambda: None, lambda: None, clock=lambda: 0.0)


def test_report_prints_one_line_and_writes_a_record(tmp_path, capsys):
    clock = Clock()
    result = paired(clock.job("A", lambda: 0.5), clock.job("B", lambda: 1.0), clock=clock)
    record = report("Ours against theirs", result, folder=tmp_path, ranks=2, size="4 MB")
    line = (
        "Ours against theirs [ranks 2, size 4 MB]: "
        "0.500 x (95 %: 0.500 to 0.500, 30 pairs; 500 ms against 1.00 s)\n"
    )
    assert capsys.readouterr().out == line
    stored = json.loads((tmp_path / "ours-against-theirs-ranks-2-size-4-mb.json").read_text())
    assert stored == record
    assert stored["a_seconds"] == [0.5] * 30
    assert stored["machine"] == machine()
    assert stored["machine"]["cores"] >= 1
