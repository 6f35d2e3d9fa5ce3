"""Each claim of the chapter on compression fails when the code is made wrong."""

import pytest

from tests.mutations.runner import CELL, Mutation, cells_for, play, unbroken, uncovered

CHAPTER = "communication/compression"
OURS = "communication/compression/"
STUDIES = "communication/studies/"

# Runs of mutations: those of one run do not hide each other's effects.
RUNS = {
    "error feedback, sizes": [
        Mutation(
            OURS + "error_feedback.py",
            "self.inner.aggregate_(vector + error, peers, key, shapes)",
            "self.inner.aggregate_(vector.clone(), peers, key, shapes)",
            (
                "signs with error feedback: distance",
                r"\(1, 0.1\) at 50 steps, signs with error feedback",
                "conservation",
                "progress",
            ),
        ),
        Mutation(
            CELL,
            "return torch.stack((along / 2 + across, along / 2 - across))",
            "return torch.stack((along / 2 + across, along / 2 - across / 4))",
            ("signs alone: x1",),
        ),
        Mutation(
            CELL,
            "n = 4 * parameter_count(resnet50)",
            "n = 2 * parameter_count(resnet50)",
            ("bytes of ResNet-50's gradient",),
        ),
        Mutation(
            OURS + "power_sgd.py",
            "return k if (n + m) * k * wider * self.min_compression_rate < n * m else 0",
            "return 0",
            ("ResNet-18, PowerSGD", "PowerSGD of rank 4, ours"),
        ),
        Mutation(
            OURS + "dgc.py",
            "4.0 ** -(epoch + 1)",
            "4.0**-epoch",
            ("DGC's warm-up",),
        ),
        Mutation(
            OURS + "one_bit_adam.py",
            "(steps - warm_up_steps) * compressed_bytes",
            "steps * compressed_bytes",
            ("1-bit Adam, BERT-Large", "1-bit Adam, 2 of 8 steps"),
        ),
        Mutation(
            CELL,
            "default_hooks.fp16_compress_hook)",
            "default_hooks.allreduce_hook)",
            ("torch's fp16 hook",),
        ),
        Mutation(
            STUDIES + "compression_quality.py",
            "STEPS, BATCH, MOMENTUM = 200, 64, 0.9",
            "STEPS, BATCH, MOMENTUM = 100, 64, 0.9",
            ("top 1 % with error feedback, this run / the stored study: loss",),
        ),
        Mutation(
            CELL,
            "study.at(method=m, feedback=False, lr=lr",
            "study.at(method=m, feedback=True, lr=lr",
            ("rate 0.03", "rate 0.1"),
        ),
    ],
    "random numbers, equality": [
        Mutation(
            OURS + "sign.py",
            "(total / max(vector.numel(), 1))",
            "(total / max(2 * vector.numel(), 1))",
            (r"\(1, 0.1\) at 50 steps, signs alone",),
        ),
        Mutation(
            CELL,
            "lost = left if feedback else lost + left",
            "lost = left",
            ("without error feedback: share missing",),
        ),
        Mutation(
            OURS + "qsgd.py",
            "level += self.uniform(exact) < exact - level",
            "level += self.uniform(exact) < 0.5",
            ("QSGD: variance", "squared error of the mean of 200 messages"),
        ),
        Mutation(
            OURS + "tern_grad.py",
            "self.uniform(row) < ratios(row, scale)",
            "self.uniform(row) < ratios(row, scale) ** 2",
            ("TernGrad: variance",),
        ),
        Mutation(
            OURS + "top_k.py",
            "return min(n, max(1, ceil(share * n * (1 - 1e-12))))",
            "return min(n, max(1, ceil(share * n * 0.6)))",
            (
                "random-k keeps",
                "top-k, all numbers",
                "random-k, all numbers",
                "DGC, all",
                "bytes that all ranks send",
                "top 1 % with error feedback, this run and the stored study: bytes",
            ),
        ),
        Mutation(
            OURS + "power_sgd.py",
            "torch.mm(p.T, q, out=out)",
            "torch.mm(p.T, q, out=out).mul_(1.01)",
            ("PowerSGD, full rank",),
        ),
        Mutation(
            OURS + "atomo.py",
            "generator=generator) < p\n",
            "generator=generator) < p - 0.5\n",
            ("ATOMO",),
        ),
        Mutation(
            OURS + "one_bit_adam.py",
            "square.mul_(beta2).addcmul_",
            "square.mul_(beta1).addcmul_",
            ("1-bit Adam, warm-up only",),
        ),
        Mutation(
            OURS + "compressor.py",
            "return peers.mean_(vector.clone()), torch",
            "return peers.mean_(vector.clone()) * 2, torch",
            ("our exact hook",),
        ),
    ],
    "largest numbers, infinity": [
        Mutation(
            OURS + "top_k.py",
            "torch.topk(sizes, k, sorted=False)",
            "torch.topk(sizes, k, largest=False, sorted=False)",
            ("top-k: what it loses",),
        ),
        Mutation(
            OURS + "power_sgd.py",
            "if self.warm_start:",
            "if not self.warm_start:",
            ("PowerSGD of rank 4, warm start", "without warm start"),
        ),
        Mutation(
            CELL,
            "def epoch_mib(compressor, steps=24):",
            "def epoch_mib(compressor, steps=23):",
            ("ResNet-18: an epoch's gradients",),
        ),
        Mutation(
            CELL,
            "vector.abs().median().view(1)",
            "vector.abs().mean().view(1)",
            ("home-made signs: every mean",),
        ),
        Mutation(
            OURS + "error_feedback.py",
            "residual if _all_finite(mean) else error",
            "residual",
            ("the library's: all ranks",),
        ),
    ],
    "infinity forgotten": [
        Mutation(
            CELL,
            "super().aggregate(vector + self.error, peers, key, shapes)",
            "super().aggregate(vector, peers, key, shapes)",
            ("home-made signs: the error of rank 1",),
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
