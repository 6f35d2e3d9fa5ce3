"""Which share of a step is spent communicating, and what each remedy leaves of it.

    python -m lsdl_lib.communication.studies.communication_share      about 10 minutes on 2 cores

Measured on real ranks, on the virtual clock: rows of steps with each remedy, and in between the
same steps of the bare model; share = 1 - bare / step, medians over the rows. Simulated beyond:
compute times recorded on one rank, messages by the closed form of halving, with the latency and
bandwidth that the measured naive run shows (processor time a message included). One point: remedy,
ranks, clock, step and bare seconds, share.

The remedies, and how to add one: :mod:`lsdl_lib.communication.studies.remedies`.
"""

import math
import statistics
from dataclasses import dataclass

from lsdl_lib import launch
from lsdl_lib.claims import studies
from lsdl_lib.communication.cost import PRESETS, Link, closed_forms
from lsdl_lib.communication.data_parallel import (
    NaiveDataParallel,
    Profile,
    fit_calls,
    make_buckets,
    prediction,
    recorded,
)
from lsdl_lib.communication.studies.remedies import (
    BATCH,
    BUCKET_MB,
    BUCKETS,
    LARGER,
    PERIOD,
    REMEDIES,
    Bare,
    Priority,
    Wrapped,
)
from lsdl_lib.measure import traffic
from lsdl_lib.measure.virtual import virtual_clock

CHAPTER, NAME = "communication/data_parallelism", "communication-share"
COMMAND = "python -m lsdl_lib.communication.studies.communication_share"
LINK = "100 Mbit/s"
MEASURED, SIMULATED = (1, 2, 4, 8), tuple(2**k for k in range(1, 11))
STEPS, ROWS = 8, 2  # steps in a row, and rows


def row(trainer, steps):
    """Return the virtual seconds a step of a row of steps."""
    with virtual_clock(PRESETS[LINK]) as clock:
        for _ in range(steps):
            trainer.step()
        trainer.finish()
    return clock.now / steps


def measure(names, steps=STEPS, rows=ROWS):
    """Run on every rank: return {remedy: [(seconds a step, bare seconds a step) of each row]}.

    The remedy and the bare model take turns, so that both see what else the machine does.
    """
    found = {}
    for name in names:
        trainers = REMEDIES[name].make(), Bare(REMEDIES[name].batch)
        for trainer in trainers:
            for _ in range(3):  # memory, caches, and the plan of priorities
                trainer.step()
            trainer.finish()
        found[name] = [tuple(row(trainer, steps) for trainer in trainers) for _ in range(rows)]
    return found


def shares(run):
    """Return {remedy: (step, bare, share)} from what the ranks' ``measure`` returned."""
    found = {}
    for name in run[0]:
        rows = zip(*(of_rank[name] for of_rank in run))  # each: (step, bare) of every rank
        latest = [[max(times) for times in zip(*ranks)] for ranks in rows]
        step, bare = (statistics.median(times) for times in zip(*latest))
        found[name] = step, bare, max(0.0, 1 - bare / step)
    return found


def calibration(steps=5):
    """Run on every rank: return what simulations start from.

    Returns:
        {"steps": this rank's timelines of naive steps, "large": of those with the larger batch,
        "update": seconds of an optimizer step, "parameters", "buckets", "layers": what is sent, as
        the predictions take it}.
    """
    found = {}
    for name, batch in (("steps", BATCH), ("large", LARGER)):
        trainer, found[name], updates = Wrapped(NaiveDataParallel, batch=batch), [], []
        for _ in range(steps + 1):
            trainer.optimizer.zero_grad()
            model = trainer.model
            with virtual_clock(PRESETS[LINK]), recorded(model, model.module.blocks) as timeline:
                trainer.loss().backward()
            found[name].append(timeline)
            with virtual_clock(PRESETS[LINK]) as clock:
                trainer.optimizer.step()
            updates.append(clock.now)
        del found[name][0]  # memory and caches
    found["update"] = statistics.median(updates)
    found["parameters"] = [([i], 4 * p.numel()) for i, p in enumerate(model.parameters_)]
    found["buckets"] = prediction.contents(make_buckets(model.parameters_, **BUCKETS))
    found["layers"] = Priority().model.slices()
    return found


def wire(names):
    """Run on two ranks: return {remedy: bytes that this rank sends in a step}."""
    sent = {}
    for name in names:
        trainer = REMEDIES[name].make()
        trainer.step()
        trainer.finish()
        with traffic() as seen:
            trainer.step()
            trainer.finish()
        sent[name] = seen.sent_bytes
    return sent


@dataclass(frozen=True)
class Basis:
    """What simulated steps are made of.

    Attributes:
        profiles: {batch: :class:`Profile`} of one rank.
        link: latency and bandwidth of a message as the naive run shows them, its processor time
            included.
        facts: what ``calibration`` returned: what is sent.
        alone: {remedy: (seconds, bare seconds)} of a step on one rank.
        sent: {remedy: bytes} that a rank sends in a step on two ranks.
    """

    profiles: dict
    link: Link
    facts: dict
    alone: dict
    sent: dict


def basis_of(one, many, alone, sent):
    """Return the :class:`Basis` from ``calibration`` on one rank and on many, and the rest."""

    def steps(run, name):
        return list(zip(*(of_rank[name] for of_rank in run)))

    # Halving sends 2 lg p messages one after the other, and 2 (p-1)/p n bytes.
    p, fit = len(many), fit_calls(steps(many, "steps"))
    link = Link(fit.alpha / (2 * math.log2(p)), fit.beta / (2 * (p - 1) / p))
    profiles = {BATCH: Profile.of(steps(one, "steps")), LARGER: Profile.of(steps(one, "large"))}
    return Basis(profiles, link, one[0], alone, sent)


def simulate(name, p, basis):
    """Return (step, bare, share) of a remedy on p ranks, without processes."""
    remedy, facts, (one, alone) = REMEDIES[name], basis.facts, basis.alone[name]
    profile, buckets = basis.profiles[remedy.batch], facts["buckets"]
    bare = profile.backward + facts["update"]

    def seconds(n):
        return closed_forms.halving_all_reduce(p, n, basis.link)

    def compressed(_):
        """A bucket's share of the messages, and of the processor time that one rank spends."""
        n = basis.sent[name] / len(buckets)
        if remedy.gather:
            cost = closed_forms.doubling_all_gather(p, p * n, basis.link)
        else:
            cost = 2 * seconds(n / 2)  # PowerSGD's two factors
        return cost + max(0.0, one - alone) / len(buckets)

    if remedy.schedule == "naive":
        step = prediction.predict_in_turn(profile, facts["parameters"], seconds)
    elif remedy.schedule == "bucketed":
        step = prediction.predict_in_turn(profile, buckets, seconds)
    elif remedy.schedule == "priority":
        step = prediction.predict_priority(profile, facts["layers"], seconds)
    elif remedy.schedule == "local":
        total = sum(n for _, n in buckets)
        step = prediction.Prediction(profile.backward + seconds(total) / PERIOD, ())
    else:
        cost = compressed if remedy.compressed else seconds
        step = prediction.predict_overlapped(profile, buckets, cost)
    seconds_a_step = step.seconds + facts["update"]
    return seconds_a_step, bare, max(0.0, 1 - bare / seconds_a_step)


def main(measured=MEASURED, simulated=SIMULATED, steps=STEPS, rows=ROWS, folder=None):
    """Run the study and store it."""
    points, names, alone = [], list(REMEDIES), None

    def run(function, *args, ranks):
        return launch(function, *args, ranks=ranks, threads=1, backend="gloo", timeout=7200)

    def add(name, p, clock, step, bare, share):
        values = {"step_seconds": step, "bare_seconds": bare, "share": share}
        points.append({"remedy": name, "ranks": p, "clock": clock, **values})

    for p in measured:
        found = run(measure, names, steps, rows, ranks=p)
        results = shares(found)
        alone = alone or {name: result[:2] for name, result in results.items()}
        for name, result in results.items():
            add(name, p, "virtual", *result)
        print(f"{p} ranks: {found.seconds:.0f} s", flush=True)
    basis = basis_of(
        run(calibration, ranks=1),
        run(calibration, ranks=measured[-1]),
        alone,
        run(wire, names, ranks=2)[0],
    )
    for p in simulated:
        for name in names:
            add(name, p, "simulated", *simulate(name, p, basis))
    return studies.write(
        CHAPTER,
        NAME,
        points,
        command=COMMAND,
        clock="virtual",
        backend="gloo",
        ranks=list(measured),
        simulated_ranks=list(simulated),
        link=LINK,
        batch=BATCH,
        bucket_mb=BUCKET_MB,
        alpha=basis.link.alpha,
        beta=basis.link.beta,
        folder=folder,
    )


if __name__ == "__main__":
    print(main())
