"""Quality against bytes: one small training run for each compressor, with and without memory.

    python -m lsdl_lib.communication.studies.compression_quality        about 5 minutes on 2 cores

The same for every method:

    data       MNIST-1D, standardized; 4,000 training and 1,000 validation signals
    model      MLP 40-128-128-10, 23,050 parameters
    training   200 steps, global batch 64 on 2 ranks, cross-entropy
    optimizer  SGD with momentum 0.9 on the average that the compressor gives
    grid       learning rates 0.1, the best of 0.03, 0.1 and 0.3 for the exact average, and 0.03,
               which was added when the results of 0.1 were there;
               seeds 0 and 1, of the model and of the order of the samples. All points are shown
    quality    loss over the training set and accuracy on the validation set, after the last step

The test set is not read. One point: method, feedback, lr, seed; sent_bytes (a rank's in the first
step, counted on the wire; these messages have one size), train_loss (at most ``MOST_LOSS``; a run
that overflows has that), val_accuracy (0-1).
"""

import contextlib
import itertools
import math

import torch
import torch.nn.functional as F

from lsdl_lib import launch
from lsdl_lib.claims import studies
from lsdl_lib.communication.compression import (
    QSGD,
    ErrorFeedback,
    Exact,
    OneBitSGD,
    Peers,
    PowerSGD,
    RandomK,
    ScaledSign,
    TernGrad,
    TopK,
)
from lsdl_lib.data import ShardedBatches, mnist1d
from lsdl_lib.measure import traffic
from lsdl_lib.models import MLP, MLPConfig

CHAPTER, NAME = "communication/compression", "quality"
COMMAND = "python -m lsdl_lib.communication.studies.compression_quality"
RANKS, RATES, SEEDS = (2,), (0.03, 0.1), (0, 1)
STEPS, BATCH, MOMENTUM = 200, 64, 0.9
MOST_LOSS = 10.0

# method: (family, function that makes the compressor)
METHODS = {
    "sign": ("signs", ScaledSign),
    "1-bit SGD": ("signs", OneBitSGD),
    "TernGrad": ("quantizers", TernGrad),
    "QSGD, 2 bits": ("quantizers", lambda: QSGD(2)),
    "QSGD, 4 bits": ("quantizers", lambda: QSGD(4)),
    "top 10 %": ("sparsifiers", lambda: TopK(0.1)),
    "top 1 %": ("sparsifiers", lambda: TopK(0.01)),
    "top 0.1 %": ("sparsifiers", lambda: TopK(0.001)),
    "random 10 %": ("sparsifiers", lambda: RandomK(0.1, unbiased=False)),
    "random 1 %": ("sparsifiers", lambda: RandomK(0.01, unbiased=False)),
    "PowerSGD, rank 1": ("low rank", lambda: PowerSGD(1)),
    "PowerSGD, rank 4": ("low rank", lambda: PowerSGD(4)),
}
SETTINGS = [("exact", False)] + [(name, yes) for name in METHODS for yes in (False, True)]


def compressor_of(method, feedback):
    """Return a new compressor for a run."""
    if method == "exact":
        return Exact()
    compressor = METHODS[method][1]()
    return ErrorFeedback(compressor) if feedback else compressor


def train(method, feedback, lr, seed, steps=STEPS):
    """Train on every rank; return this run's point.

    Args:
        method: ``"exact"`` or a key of ``METHODS``.
        feedback: with error feedback.
        lr: learning rate.
        seed: of the model and of the order of the samples.
        steps: optimizer steps.
    """
    data, model, peers = mnist1d().standardized(), MLP(MLPConfig(), seed=seed), Peers()
    parameters = list(model.parameters())
    shapes = [parameter.shape for parameter in parameters]
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM)
    compressor = compressor_of(method, feedback)
    sent_bytes = 0
    for rows in _batches(len(data.train_x), seed, steps):
        loss = F.cross_entropy(model(data.train_x[rows]), data.train_y[rows])
        gradients = torch.autograd.grad(loss, parameters)
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        with contextlib.nullcontext() if sent_bytes else traffic() as seen:
            mean, _ = compressor.aggregate(flat, peers, 0, shapes)
        sent_bytes = sent_bytes or seen.sent_bytes
        if not torch.isfinite(mean).all():  # the same on all ranks
            break
        for parameter, part in zip(parameters, mean.split([s.numel() for s in shapes])):
            parameter.grad = part.view(parameter.shape)
        optimizer.step()
    loss, accuracy = _quality(model, data)
    return {
        "method": method,
        "feedback": feedback,
        "lr": lr,
        "seed": seed,
        "sent_bytes": sent_bytes,
        "train_loss": loss,
        "val_accuracy": accuracy,
    }


def _batches(samples, seed, steps):
    """Yield this rank's rows of each global batch, ``steps`` times."""
    batches, epoch = ShardedBatches(samples, BATCH, seed=seed, drop_last=True), 0
    while True:
        batches.set_epoch(epoch)
        for rows in batches:
            if steps == 0:
                return
            steps -= 1
            yield rows
        epoch += 1


@torch.no_grad()
def _quality(model, data):
    loss = F.cross_entropy(model(data.train_x), data.train_y).item()
    accuracy = (model(data.val_x).argmax(1) == data.val_y).double().mean().item()
    return (min(loss, MOST_LOSS) if math.isfinite(loss) else MOST_LOSS), accuracy


def train_all(settings, lr, seed, steps):
    """Run on every rank: all trainings of a rate and a seed, one after the other."""
    return [train(*setting, lr, seed, steps) for setting in settings]


def main(settings=SETTINGS, rates=RATES, seeds=SEEDS, steps=STEPS, folder=None):
    """Run the trainings and store them."""
    mnist1d()  # made here, not by both ranks at once
    points = []
    for lr, seed in itertools.product(rates, seeds):
        run = launch(
            train_all,
            settings,
            lr,
            seed,
            steps,
            ranks=RANKS[0],
            threads=1,
            backend="gloo",
            timeout=3600,
        )
        points += run[0]
        print(f"rate {lr}, seed {seed}: {run.seconds:.0f} s", flush=True)
    return studies.write(
        CHAPTER,
        NAME,
        points,
        command=COMMAND,
        clock=None,
        backend="gloo",
        ranks=list(RANKS),
        steps=steps,
        batch=BATCH,
        momentum=MOMENTUM,
        folder=folder,
    )


if __name__ == "__main__":
    print(main())
