"""Each claim of the chapter on the machine fails when the code is made wrong."""

import pytest

from tests.mutations.runner import CELL, Mutation, cells_for, play, unbroken, uncovered

MACHINE = "foundations/machine"

# Runs of mutations: those of one run do not hide each other's effects.
RUNS = {
    "counts and measurements": [
        Mutation(
            "communication/cost/links.py",
            "beta=8 / (gbit_s * 1e9)",
            "beta=1 / (gbit_s * 1e9)",
            ("100 MB over 1 Gbit/s", r"10\^15 FLOP/s and 100 Gbit/s"),
        ),
        Mutation(
            "foundations/roofline.py",
            "return self.peak_flop_s / self.bandwidth_byte_s",
            "return self.bandwidth_byte_s / self.peak_flop_s",
            ("ridge point of 100 GFLOP/s", "ridge point of this device"),
        ),
        Mutation(
            "foundations/strips.py",
            "(passes * k * n + m * k + m * n) * element",
            "(m * k + m * n) * element",
            ("20 rows times a large", "product of .* rows by strips of"),
        ),
        Mutation(
            "foundations/strips.py",
            "return Work(2 * m * k * n,",
            "return Work(m * k * n,",
            ("product by strips of .* rows: FLOPs", "FLOPs that torch's profiler finds"),
        ),
        Mutation(
            "foundations/strips.py",
            "torch.mm(strip, weight, out=result)",
            "torch.mm(strip[:, 1:], weight[1:], out=result)",
            ("product on 1, 2, 4 ranks",),
        ),
        Mutation(
            CELL,
            '"computing": by_both_clocks(compute)',
            '"computing": by_both_clocks(partial(compute, PRODUCTS * dist.get_world_size() ** 3))',
            ("processor time of the same work",),
        ),
        Mutation(
            "foundations/sharing.py",
            "return Clocked(time.perf_counter() - wall, ",
            "return Clocked(1e-9, ",
            ("wall time of the last rank", "virtual over wall time"),
        ),
        Mutation(
            CELL,
            'return work.flops / found["strips"][height]',
            'return 1 / found["strips"][height]',
            ("a strip of many rows",),
        ),
        Mutation(
            CELL,
            "seconds[long] / seconds[short],",
            "seconds[short] / seconds[long],",
            (".* MB over .* B: how much longer",),
        ),
        Mutation(
            "foundations/balance.py",
            "math.ceil(communication * peak_flop_s / backward_flops)",
            "math.floor(communication * peak_flop_s / backward_flops)",
            (r"with b\* examples a rank",),
        ),
        Mutation(
            CELL,
            "gradient = 4 * parameter_count(config)",
            "gradient = 2 * parameter_count(config)",
            ("GPT-2 small: tokens a rank",),
        ),
        Mutation(CELL, "first / again,", "again / first,", ("the first call on new memory",)),
        Mutation(
            CELL,
            '[b["ratio"] for b in against_wall],',
            '[2 * b["ratio"] for b in against_wall],',
            ("stored benchmarks: virtual over wall",),
        ),
        Mutation(
            CELL,
            '[(work_of(v), v["ratio"], w["ratio"]) for v, w in pairs]',
            '[(work_of(v), w["ratio"], v["ratio"]) for v, w in pairs]',
            ("stored benchmarks: virtual time of 4 ranks",),
        ),
        Mutation(CELL, "by_rows / by_strip,", "by_strip / by_rows,", ("16 rows one by one",)),
        Mutation(
            CELL,
            "return theirs.median, ours.median / 100",
            "return theirs.median, ours.median / 10_000",
            ("torch's Timer over our median",),
        ),
    ],
    "forms": [
        Mutation(
            "communication/cost/links.py",
            "return self.alpha + n_bytes * self.beta",
            "return self.alpha + 2 * n_bytes * self.beta",
            ("a message of n_1/2 bytes",),
        ),
        Mutation(
            "communication/cost/closed_forms.py",
            "return 2 * (p - 1) * link.seconds(n / p) + (p - 1) / p * n * link.gamma",
            "return 8 * (p - 1) * link.seconds(n / p) + (p - 1) / p * n * link.gamma",
            (
                "simulated ring all-reduce, message by message",
                "bus bandwidth of a ring",
                "virtual: from the last rank",
                "a straggler: its own readiness",
                "a straggler: every other rank",
            ),
        ),
        Mutation(
            "foundations/balance.py",
            "return max(1, math.ceil(",
            "return max(1, 1 + math.ceil(",
            ("with one example less",),
        ),
    ],
}


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    return play(MACHINE, [], tmp_path_factory.mktemp("baseline"))


@pytest.mark.slow
def test_without_a_mutation_every_claim_holds(baseline):
    assert baseline.failed == {}


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_claims_fail_under_their_mutations(run, baseline, tmp_path):
    outcome = play(MACHINE, RUNS[run], tmp_path, cells_for(RUNS[run], baseline))
    assert unbroken(RUNS[run], outcome) == []


@pytest.mark.slow
def test_every_claim_has_a_mutation(baseline):
    assert uncovered(MACHINE, [m for run in RUNS.values() for m in run], baseline) == []
