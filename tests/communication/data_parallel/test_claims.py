"""Each claim of the chapter on data parallelism fails when the code is made wrong."""

import pytest

from tests.mutations.runner import CELL, Mutation, cells_for, play, unbroken, uncovered

CHAPTER = "communication/data_parallelism"
OURS = "communication/data_parallel/"
STUDIES = "communication/studies/"

# Runs of mutations: those of one run do not hide each other's effects.
RUNS = {
    "averages": [
        Mutation(
            OURS + "naive.py",
            "parameter.grad.div_(self.averaged_over)",
            "parameter.grad.div_(self.averaged_over + 1)",
            ("naive: max",),
        ),
        Mutation(
            OURS + "bucketed.py",
            "scale = 1.0 if self._hook else 1.0 / self.averaged_over",
            "scale = 0.5 if self._hook else 1.0 / (self.averaged_over + 1)",
            (
                "bucketed: max",
                "overlapped: max",
                "the gradient, averaging in every pass",
                "DDP and ours",
                "a gradient sent in 16 bits",
            ),
        ),
        Mutation(
            OURS + "parameter_server.py",
            "for worker in self._workers:",
            "for worker in self._workers[:1]:",
            ("parameter server: max",),
        ),
        Mutation(
            OURS + "priority.py",
            "torch.mul(parameter.grad, 1.0 / self.averaged_over, out=view)",
            "torch.mul(parameter.grad, 1.0 / (self.averaged_over + 1), out=view)",
            ("priorities: max",),
        ),
        Mutation(
            OURS + "wrapper.py",
            "self.averaged_over = len(self._active(True))",
            "self.averaged_over = max(2, len(self._active(True)))",
            ("under join, rank 0's three gradients",),
        ),
        Mutation(
            CELL,
            "found[name] = difference, model.order",
            "found[name] = difference, [*model.order, dist.get_rank()]",
            ("all ranks follow the same plan",),
        ),
    ],
    "what is sent": [
        Mutation(
            CELL,
            "many = len(model.parameters_) if",
            "many = 1 + len(model.parameters_) if",
            ("messages of each rank",),
        ),
        Mutation(
            CELL,
            "n = 4 * sum(p.numel()",
            "n = 8 * sum(p.numel()",
            ("bytes of each version",),
        ),
        Mutation(
            CELL,
            "vector = 8 * sum(",
            "vector = 4 * sum(",
            ("one server: bytes", "p servers: bytes"),
        ),
        Mutation(
            OURS + "wrapper.py",
            "if not self._synchronize:",
            "if False:",
            ("averaging in every pass: bytes", "averaging in none"),
        ),
        Mutation(
            OURS + "wrapper.py",
            'names = ", ".join(self.names[i] for i in missing)',
            'names = ", ".join(self.names[0] for i in missing)',
            ("an unused parameter is named",),
        ),
        Mutation(
            CELL,
            "if dist.get_rank() == 0:  # rank 1 finds its loss strange",
            "if dist.get_rank() == 1:",
            ("the hang ended at the timeout",),
        ),
        Mutation(
            CELL,
            "zip(NAMES[:3], (*NAMES[1:3], NAMES[4]))",
            "zip((*NAMES[1:3], NAMES[4]), NAMES[:3])",
            ("at 1,024 ranks",),
        ),
        Mutation(
            CELL,
            '    names = ["a", "b"] if dist.get_rank() == 0 else ["b", "a"]',
            '    names = ["a", "b"]',
            ("mixed up: the gradients",),
        ),
        Mutation(
            OURS + "agreement.py",
            'f"{_first_difference(',
            'f"rank {mine}: {_first_difference(',
            ("our wrapper refuses",),
        ),
    ],
    "times": [
        Mutation(
            STUDIES + "overlap.py",
            'size = {"bucket_mb": bucket_mb, "first_bucket_mb": bucket_mb}',
            'size = {"bucket_mb": bucket_mb / 1e6, "first_bucket_mb": bucket_mb / 1e6}',
            ("bucketed step / naive step",),
        ),
        Mutation(
            OURS + "prediction.py",
            "start = max(ready, end)",
            "start = ready",
            ("predicted / measured step", "each of these predictions"),
        ),
        Mutation(
            CELL,
            '"ranks": P[0], "bucket_mb": SIZE}',
            '"ranks": P[0], "bucket_mb": 4.0}',
            ("overlapped / bucketed step: this run",),
        ),
        Mutation(
            OURS + "priority.py",
            "plan = [sent[:2] for sent in by_priority(self._ready_at, costs)]",
            "plan = as_ready(self._ready_at, costs)",
            ("step with priorities / overlapped", "step with priorities / the larger"),
        ),
        Mutation(
            STUDIES + "communication_share.py",
            "found[name] = step, bare, max(0.0, 1 - bare / step)",
            "found[name] = step, bare, 1.0",
            ("communication share of the bucketed version",),
        ),
    ],
    "overlap and priorities": [
        Mutation(
            STUDIES + "overlap.py",
            '"overlapped": OverlappedDataParallel(',
            '"overlapped": BucketedDataParallel(',
            ("overlapped step / bucketed step",),
        ),
        Mutation(
            OURS + "priority.py",
            "if self._steps == TIMED_STEP and self._priorities:",
            "if self._steps == TIMED_STEP:",
            ("the same without priorities",),
        ),
    ],
}


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    return play(CHAPTER, [], tmp_path_factory.mktemp("baseline"))


@pytest.mark.slow
def test_without_a_mutation_every_claim_holds(baseline):
    assert baseline.failed == {}
    assert baseline.errors == {}


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_claims_fail_under_their_mutations(run, baseline, tmp_path):
    outcome = play(CHAPTER, RUNS[run], tmp_path, cells_for(RUNS[run], baseline))
    assert unbroken(RUNS[run], outcome) == []


@pytest.mark.slow
def test_every_claim_has_a_mutation(baseline):
    assert uncovered(CHAPTER, [m for run in RUNS.values() for m in run], baseline) == []
