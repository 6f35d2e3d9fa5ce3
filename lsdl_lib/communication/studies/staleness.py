"""What staleness costs and what it buys: one server, four workers, one of them slow.

    python -m lsdl_lib.communication.studies.staleness        about 2 minutes on 2 cores

Real processes push real gradients of a small net on the digits. Their time is scripted
(:mod:`lsdl_lib.communication.relaxed.pace`): a gradient takes 10 ms on a worker and ``slow`` times
as long on the last one, messages take what the link says. So who comes when, and how old each
gradient is, is the same on every machine, and does not depend on what the gradients are. For each
``bound`` and ``slow`` the processes run once, with plain SGD; the log of that run is then replayed
in one process with every rule and learning rate, on the same samples
(:mod:`lsdl_lib.communication.relaxed.replay`). Every run spends the same number of gradients.

One point: rule, bound (in steps; "none": asynchronous), slow, lr (of a push), accuracy (validation,
0 to 1), seconds (when the last update was made), staleness (mean), oldest.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from lsdl_lib import launch
from lsdl_lib.claims import studies
from lsdl_lib.communication.cost import PRESETS
from lsdl_lib.communication.relaxed import (
    Asynchronous,
    DelayCompensatedSGD,
    ParameterServer,
    PlainSGD,
    StalenessAwareSGD,
    StaleSynchronous,
    Worker,
    replay,
    scripted_clock,
    spend,
)
from lsdl_lib.communication.relaxed.event_log import APPLIED
from lsdl_lib.data import digits
from lsdl_lib.models import MLP, MLPConfig

CHAPTER, NAME = "communication/relaxed_synchronization", "staleness"
COMMAND = "python -m lsdl_lib.communication.studies.staleness"
LINK, STEP_SECONDS = "1 Gbit/s", 0.01
WORKERS, GRADIENTS, BATCH = 4, 480, 16
RULES = {
    "plain": PlainSGD,
    "staleness-aware": StalenessAwareSGD,
    "compensated": lambda lr: DelayCompensatedSGD(lr, strength=1.0, adaptive=True),
}
BOUNDS, SLOW, RATES = ("0", "1", "4", "none"), (1, 4), (0.05, 0.1, 0.2, 0.4, 0.8)


def net(seed=0):
    """Return the net that is trained: 64 pixels, 64 hidden units, 10 digits."""
    torch.manual_seed(seed)
    return MLP(MLPConfig(inputs=64, hidden=(64,)))


def batch(data, worker, step, size=BATCH):
    """Return the samples (size, 1, 8, 8) and labels (size,) of a worker's step."""
    generator = torch.Generator().manual_seed(10_000 * worker + step)
    chosen = torch.randint(len(data.train_x), (size,), generator=generator)
    return data.train_x[chosen], data.train_y[chosen]


def accuracy(model, data):
    """Return the share of the validation set that the model gets right."""
    with torch.no_grad():
        return (model(data.val_x).argmax(1) == data.val_y).double().mean().item()


def serve(data, bound, slow, rule="plain", lr=RATES[0], gradients=GRADIENTS):
    """Run on every rank: train once; rank 0, the server, returns (log, weights (n,)).

    Args:
        data: :func:`~lsdl_lib.data.digits`, standardized.
        bound, slow, rule, lr: of a point.
        gradients: updates to make.
    """
    rank, model = dist.get_rank(), net()
    with scripted_clock(PRESETS[LINK]):
        if rank == 0:
            waits = Asynchronous() if bound == "none" else StaleSynchronous(int(bound))
            server = ParameterServer(model.parameters(), RULES[rule](lr), waits, updates=gradients)
            return server.serve(), parameters_to_vector(model.parameters()).detach()
        with Worker(model.parameters()) as worker:
            goes_on = True
            while goes_on:
                spend(STEP_SECONDS * (slow if rank == dist.get_world_size() - 1 else 1))
                inputs, labels = batch(data, rank, worker.steps)
                model.zero_grad()
                cross_entropy(model(inputs), labels).backward()
                goes_on = worker.step()


def replayed(data, log, rule, lr):
    """Return the weights, (n,), that the workers of ``log`` find with this rule and rate."""
    model = net()
    parameters = list(model.parameters())

    def gradient(worker, step, weights):
        vector_to_parameters(weights, parameters)
        inputs, labels = batch(data, worker, step)
        loss = cross_entropy(model(inputs), labels)
        return parameters_to_vector(torch.autograd.grad(loss, parameters))

    return replay(log, parameters_to_vector(parameters).detach(), gradient, RULES[rule](lr))


def point(data, log, weights, **setting):
    """Return a point of the study."""
    model = net()
    vector_to_parameters(weights, model.parameters())
    updates = [event for event in log if event.fate == APPLIED]
    ages = [event.staleness for event in updates]
    return {
        **setting,
        "accuracy": accuracy(model, data),
        "seconds": updates[-1].time,
        "staleness": sum(ages) / len(ages),
        "oldest": max(ages),
    }


def main(rules=tuple(RULES), bounds=BOUNDS, slow=SLOW, rates=RATES, folder=None, **options):
    """Run the sweep and store it."""
    data, points = digits().standardized(), []
    for factor in slow:
        for bound in bounds:
            results = launch(
                lambda bound=bound, factor=factor: serve(data, bound, factor, **options),
                ranks=WORKERS + 1,
                threads=1,
                backend="gloo",
                timeout=1800,
            )
            log = results[0][0]
            for rule in rules:
                for lr in rates:
                    weights = replayed(data, log, rule, lr)
                    setting = {"rule": rule, "bound": bound, "slow": factor, "lr": lr}
                    points.append(point(data, log, weights, **setting))
            print(f"slow {factor}, bound {bound}: {results.seconds:.0f} s", flush=True)
    return studies.write(
        CHAPTER,
        NAME,
        points,
        command=COMMAND,
        clock="virtual",
        backend="gloo",
        ranks=[WORKERS + 1],
        folder=folder,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(main())
