"""Each claim of the chapter on relaxed synchronization fails when the code is made wrong."""

import pytest

from tests.mutations.runner import CELL, Mutation, cells_for, play, unbroken, uncovered

CHAPTER = "communication/relaxed_synchronization"
OURS = "communication/relaxed/"

# Runs of mutations: those of one run do not hide each other's effects.
RUNS = {
    "averages": [
        Mutation(
            OURS + "averager.py",
            "vector.div_(size)  # before the sum, which could overflow",
            "vector.div_(size + 1)",
            ("springs: ranks and center together", "springs: what an exchange leaves"),
        ),
        Mutation(
            OURS + "local_sgd.py",
            "flat.write(memory)",
            "flat.write(memory.zero_())",
            (
                "local SGD, H = 1",
                "local SGD, H = 4",
                "rank 0 with momentum kept",
                "accuracy of each method",
            ),
        ),
        Mutation(
            "communication/cost/closed_forms.py",
            "return 2 * (p - 1) * link.seconds(n / p) + (p - 1) / p * n * link.gamma",
            "return (p - 1) * link.seconds(n / p) + (p - 1) / p * n * link.gamma",
            (
                "a synchronous step",
                "virtual time of all-reduce and local SGD",
                "virtual time of the delayed all-reduce",
            ),
        ),
        Mutation(
            OURS + "mixing.py",
            "return 1.0 if len(sizes) == 1 else float(1 - sizes[1])",
            "return 1.0 if len(sizes) == 1 else float(1 - sizes[1] ** 2)",
            ("distance to the average /", "spectral gap of the ring", "spectral gap of the exp"),
        ),
        Mutation(
            CELL,
            "        x = weights[rank, rank] * x\n",
            "        x = 0.9 * weights[rank, rank] * x\n",
            ("directed gossip by columns", "directed gossip by rows"),
        ),
        Mutation(
            OURS + "push_sum.py",
            "self.weight = sum(map(_weight, [own, *incoming.values()]))",
            "self.weight = 1.0",
            ("push-sum: where the ranks end",),
        ),
        Mutation(
            OURS + "stochastic.py",
            '", or use push-sum, which needs columns alone"',
            '""',
            ("every rank refuses the directed matrix",),
        ),
    ],
    "periods, gossip and versions": [
        Mutation(
            OURS + "local_sgd.py",
            "return self.steps % self.period == 0",
            "return self.steps % (self.period + 1) == 0",
            ("bytes of all ranks in 16 steps",),
        ),
        Mutation(
            OURS + "gossip.py",
            "into.add_(vector, alpha=float(weights[self.rank, rank]))",
            "into.add_(vector, alpha=1.01 * float(weights[self.rank, rank]))",
            (
                "gossip on real ranks",
                "gossip: largest drift",
                "distance of the one-peer graph",
            ),
        ),
        Mutation(
            OURS + "event_log.py",
            "return self.version - self.seen",
            "return self.version - self.seen + 1",
            (
                "staleness of the last 100 gradients",
                "largest staleness less",
                "this run / the stored study",
            ),
        ),
        Mutation(
            OURS + "replay.py",
            "self.weights, self.rule = weights, rule",
            "self.weights, self.rule = 1.001 * weights, rule",
            ("asynchronous run in real time", "delay 0 and 1"),
        ),
        Mutation(
            "communication/studies/staleness.py",
            'def serve(data, bound, slow, rule="plain", lr=RATES[0], gradients=GRADIENTS):',
            'def serve(data, bound, slow, rule="plain", lr=0.0, gradients=GRADIENTS):',
            ("accuracy, this run less the stored study",),
        ),
        Mutation(
            OURS + "staleness_aware.py",
            "self.lr / max(1, staleness)",
            "self.lr",
            ("rate 0.8 without a bound: the staleness-aware",),
        ),
        Mutation(
            CELL,
            '("none", 4, "plain", 0.8)',
            '("none", 4, "plain", 0.1)',
            ("rate 0.8 without a bound: plain SGD",),
        ),
        Mutation(
            OURS + "post_local.py",
            "local_steps % self.period == 0",
            "local_steps % self.period == 1",
            ("PyTorch's post-local SGD and ours",),
        ),
        Mutation(
            CELL,
            "alpha=-step.item())",
            "alpha=-0.01 * step.item())",
            ("Hogwild: error relative to the start",),
        ),
        Mutation(
            CELL,
            "return 2 * np.sin(np.pi / (2 * (2 * tau + 1)))",
            "return 2 * np.sin(np.pi / (2 * (2 * tau + 2)))",
            ("largest root at the limit",),
        ),
        Mutation(
            CELL,
            "if dist.get_rank() == last and mine.steps == 4:",
            "if dist.get_rank() == 1 and mine.steps == 4:",
            ("all ranks, the server too, name the worker",),
        ),
    ],
    "updates and bounds": [
        Mutation(
            OURS + "rules.py",
            "weights.sub_(gradient, alpha=self.lr)",
            "weights.sub_(gradient, alpha=0.0)",
            (
                "how far that run moved the weights",
                "bound 0: max",
                r"\|w\| at 0.85 of the limit",
                r"\|w\| at 1.15 of the limit",
            ),
        ),
        Mutation(
            OURS + "stale_synchronous.py",
            "<= self.bound",
            "<= self.bound + 1",
            ("largest lead less the bound",),
        ),
    ],
}


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    return play(CHAPTER, [], tmp_path_factory.mktemp("baseline"))


@pytest.mark.slow
def test_without_a_mutation_every_claim_holds(baseline):
    assert baseline.failed == {}


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_claims_fail_under_their_mutations(run, baseline, tmp_path):
    outcome = play(CHAPTER, RUNS[run], tmp_path, cells_for(RUNS[run], baseline))
    assert unbroken(RUNS[run], outcome) == []


@pytest.mark.slow
def test_every_claim_has_a_mutation(baseline):
    assert uncovered(CHAPTER, [m for run in RUNS.values() for m in run], baseline) == []
