"""The study of quality against bytes: a small sweep, the stored file, and its command."""

import pytest
import torch

from lsdl_lib import launch
from lsdl_lib.claims import studies
from lsdl_lib.communication.studies import compression_quality as quality
from tools import toc


def loss_of_one_process(lr, seed, steps):
    """Train with torch alone on the whole global batch; return the loss."""
    data = quality.mnist1d().standardized()
    model = quality.MLP(quality.MLPConfig(), seed=seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=quality.MOMENTUM)
    batches = quality.ShardedBatches(
        len(data.train_x), quality.BATCH, rank=0, ranks=1, seed=seed, drop_last=True
    )
    for _, rows in zip(range(steps), batches):
        loss = torch.nn.functional.cross_entropy(model(data.train_x[rows]), data.train_y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.nn.functional.cross_entropy(model(data.train_x), data.train_y).item()


def test_the_exact_average_trains_as_one_process_does():
    run = launch(quality.train, "exact", False, 0.1, 3, 10, ranks=2, threads=1, backend="gloo")
    assert run[0]["train_loss"] == pytest.approx(loss_of_one_process(0.1, 3, 10), rel=1e-4)
    assert run[0]["train_loss"] == run[1]["train_loss"]


def test_a_run_that_overflows_has_the_largest_loss():
    run = launch(quality.train, "exact", False, 1e30, 0, 4, ranks=2, threads=1, backend="gloo")
    assert run[0]["train_loss"] == quality.MOST_LOSS


def test_the_study_stores_one_point_a_setting_with_its_bytes(tmp_path):
    settings = [("exact", False), ("top 1 %", True)]
    quality.main(settings=settings, rates=(0.03,), seeds=(5,), steps=2, folder=tmp_path)
    study = studies.read(quality.CHAPTER, quality.NAME, tmp_path)
    assert [(p["method"], p["feedback"]) for p in study.points] == settings
    assert study.at(method="exact")["sent_bytes"] == 4 * 23_050  # p = 2: 2 (p-1)/p n
    assert study.at(method="top 1 %")["sent_bytes"] == 8 * 231
    assert study.facts["steps"] == 2


def test_the_stored_study_is_whole_and_its_command_runs_this_module():
    study = studies.read(quality.CHAPTER, quality.NAME, toc.BOOK / "records")
    assert study.facts["command"] == f"python -m {quality.__name__}"
    assert study.facts["steps"] == quality.STEPS
    found = {(p["method"], p["feedback"], p["lr"], p["seed"]) for p in study.points}
    assert found == {
        (*setting, lr, seed)
        for setting in quality.SETTINGS
        for lr in quality.RATES
        for seed in quality.SEEDS
    }
