"""Each claim of the chapters on communication fails when the code is made wrong."""

import pytest

from tests.mutations.runner import CELL, Mutation, cells_for, play, unbroken, uncovered

COLLECTIVES = "communication/collectives"
COST = "communication/cost/"
OURS = "communication/collectives/"

# Runs of mutations: those of one run do not hide each other's effects.
RUNS = {
    "results": [
        Mutation(
            OURS + "reductions.py",
            "ReduceOp.SUM: torch.Tensor.add_",
            "ReduceOp.SUM: torch.Tensor.sub_",
            (
                "wrong entries after each of the eight collectives",
                "numbers that differ in the five identities",
                r"\w+: largest error in p eps sum",
                "torch's all_reduce and the ring",
            ),
        ),
        Mutation(
            CELL,
            "    dist.all_reduce(shard, group=between)",
            "    shard.div_(1)",
            ("all-reduce in two levels",),
        ),
        # Messages and bytes: one term less in each formula.
        Mutation(
            COST + "counts.py",
            "return _sum(star_reduce(p, n), star_broadcast(p, n))",
            "return star_broadcast(p, n)",
            ("star: messages and bytes",),
        ),
        Mutation(
            COST + "counts.py",
            "return _sum(ring_all_gather(p, n), ring_all_gather(p, n))",
            "return ring_all_gather(p, n)",
            ("ring: messages and bytes",),
        ),
        Mutation(
            COST + "counts.py",
            "return _folded(p, n, [(q_rounds(p), q_rounds(p) * n)] * largest_power_of_two(p))",
            "return _folded(p, n, [(q_rounds(p), n // 2)] * largest_power_of_two(p))",
            ("doubling: messages and bytes",),
        ),
        Mutation(
            COST + "counts.py",
            "return _folded(p, n, [(2 * q_rounds(p), 2 * (q - 1) * n // q)] * q)",
            "return _folded(p, n, [(q_rounds(p), 2 * (q - 1) * n // q)] * q)",
            ("halving: messages and bytes",),
        ),
        Mutation(
            COST + "counts.py",
            "return _sum(tree_reduce(p, n), tree_broadcast(p, n))",
            "return tree_broadcast(p, n)",
            ("tree: messages and bytes",),
        ),
        Mutation(
            COST + "counts.py",
            "2 * (x - 1) * n // x + 2 * (y - 1) * n // p",
            "2 * (x - 1) * n // x + 2 * y * n // p",
            ("torus: messages and bytes",),
        ),
    ],
    "simulated times and messages of errors": [
        Mutation(
            COST + "simulation.py",
            "end = start + self.links.between(message.source, message.to).seconds(size)",
            "end = start + 2 * self.links.between(message.source, message.to).seconds(size)",
            (
                "steps, vectors and sums of the table",
                "steps on 32 ranks, simulated",
                "steps, vectors, sums of the torus on 64 ranks",
                "pipelined / plain ring",
            ),
        ),
        Mutation(
            COST + "closed_forms.py",
            "(link.beta * (lg - 2 * (p - 1) / p))",
            "(link.beta * (lg - (p - 1) / p))",
            (r"at n\* the simulated ring and doubling take equally long",),
        ),
        Mutation(
            COST + "links.py",
            '"100 Mbit/s": Link.of(0.1, 100)',
            '"100 Mbit/s": Link.of(0.2, 100)',
            ("this run / the stored study",),
        ),
        Mutation(
            CELL,
            "algorithm * 2 * (p - 1) / p",
            "algorithm * (p - 1) / p",
            ("bus bandwidth of the ring",),
        ),
        Mutation(
            "launch/outcome.py",
            "culprit = min(busy or (waiting and returned) or silent or stacks)",
            "culprit = min(stacks)",
            ("the rank that skipped its call is named",),
        ),
        Mutation(
            CELL,
            "    tensor = torch.ones(2 + dist.get_rank())",
            "    tensor = torch.ones(3 - dist.get_rank())",
            ("without checks, rank 0 notices nothing",),
        ),
        Mutation(
            OURS + "checking.py",
            "raise ValueError(found)",
            'raise ValueError(f"rank {dist.get_rank()}: {found}")',
            ("in checked mode both ranks raise the same error",),
        ),
        Mutation(
            CELL,
            "dist.all_reduce(torch.ones(2 + dist.get_rank()), group=group)",
            "dist.all_reduce(torch.ones(4 + dist.get_rank()), group=group)",
            ("torch's checked mode names both shapes",),
        ),
    ],
    "the ring, and overlap": [
        Mutation(
            OURS + "ring.py",
            "reduce(coming, arrived)",
            "coming.copy_(arrived)",
            ("watched ring, doubling, halving", "ring: largest error"),
        ),
        Mutation(
            COST + "closed_forms.py",
            "return 2 * (p - 1) * link.seconds(n / p) + (p - 1) / p * n * link.gamma",
            "return (p - 1) * link.seconds(n / p) + (p - 1) / p * n * link.gamma",
            (
                "simulated time / closed form",
                "virtual time / closed form",
                "steps on 1,024 ranks",
                "in turn: virtual time",
            ),
        ),
        Mutation(
            OURS + "calling.py",
            "self._clock.join(self._beside)",
            "self._clock.now += self._beside.now; self._clock.join(self._beside)",
            ("in the background: virtual time",),
        ),
    ],
}


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    return play(COLLECTIVES, [], tmp_path_factory.mktemp("baseline"))


@pytest.mark.slow
def test_without_a_mutation_every_claim_holds(baseline):
    assert baseline.failed == {}


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_claims_fail_under_their_mutations(run, baseline, tmp_path):
    outcome = play(COLLECTIVES, RUNS[run], tmp_path, cells_for(RUNS[run], baseline))
    assert unbroken(RUNS[run], outcome) == []


@pytest.mark.slow
def test_every_claim_has_a_mutation(baseline):
    assert uncovered(COLLECTIVES, [m for run in RUNS.values() for m in run], baseline) == []
