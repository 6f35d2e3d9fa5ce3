"""The commands of the study: see the package. What has run is kept, and not run again."""

import functools
import json
import sys
from pathlib import Path

from lsdl_lib import launch
from lsdl_lib.claims import studies
from lsdl_lib.communication.studies.time_to_accuracy import digest, expected, training
from lsdl_lib.communication.studies.time_to_accuracy.methods import ONE_BUCKET_MB
from lsdl_lib.communication.studies.time_to_accuracy.registration import registration
from lsdl_lib.communication.studies.time_to_accuracy.task import TASK, data
from lsdl_lib.measure.network import network

CHAPTER, NAME = "communication/compression", "time-to-accuracy"
COMMAND = "python -m lsdl_lib.communication.studies.time_to_accuracy"
KEPT = Path("_build") / "time_to_accuracy.jsonl"
TIMEOUT = 1800


def kept():
    """Return {arguments: result} of the runs that were made with this registration."""
    if not KEPT.exists():
        return {}
    rows = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]
    return {row["key"]: row["result"] for row in rows if row["digest"] == digest()}


@functools.cache
def samples():
    """Return the data, read once: every rank of every run would take seconds."""
    return data()


def once(ranks, *arguments, names=None, test=False, steps=TASK["steps"]):
    """Return the result of a run, from what is kept or by running it."""
    key = json.dumps([ranks, *arguments, "network" if names else "virtual", test, steps])
    if (done := kept().get(key)) is not None:
        return done
    options = {"ranks": ranks, "threads": 1, "timeout": TIMEOUT}
    result = launch(training.run, *arguments, names, test, steps, samples(), **options)[0]
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.open("a", encoding="utf-8") as file:
        row = {"digest": digest(), "key": key, "result": result}
        file.write(json.dumps(row) + "\n")
    print(*arguments, f"{ranks} ranks: {result}", flush=True)
    return result


def tune():
    """Try three learning rates a method and store what came out."""
    plan, rules = registration(), registration()["tuning"]
    points = []
    for method, entry in plan["methods"].items():
        if method in rules["same"]:
            continue
        found = [
            (once(rules["ranks"], method, lr, rules["seed"], rules["gbit_s"], ONE_BUCKET_MB), lr)
            for lr in entry["lr"]
        ]
        best = min(order(result, lr) for result, lr in found)
        points += [
            {
                "method": method,
                "lr": lr,
                "final_accuracy": result["final_accuracy"],
                "reached": result["reached"],
                "steps_to_target": result["steps_to_target"],
                "chosen": order(result, lr) == best,
            }
            for result, lr in found
        ]
    return store("tuning", points, ranks=[rules["ranks"]])


def order(result, lr):
    """Return what sorts the better learning rate first, as registered."""
    return not result["reached"], result["steps_to_target"], -result["final_accuracy"], lr


def tune_buckets():
    """Try the sizes of the baseline's buckets in every setting and store what came out."""
    rules, points = registration()["buckets"], []
    for setting in settings():
        ranks, gbit_s = setting["ranks"], setting["gbit_s"]
        seed, lr = registration()["tuning"]["seed"], chosen_lr("overlapped")
        seconds = {
            mb: once(ranks, "overlapped", lr, seed, gbit_s, mb, steps=rules["steps"])[
                "step_seconds"
            ]
            for mb in rules["mb"]
        }
        best = min(seconds, key=seconds.get)
        points += [
            {
                "ranks": ranks,
                "gbit_s": gbit_s,
                "bucket_mb": mb,
                "step_seconds": spent,
                "chosen": mb == best,
            }
            for mb, spent in seconds.items()
        ]
    return store("buckets", points, ranks=sorted({setting["ranks"] for setting in settings()}))


def settings():
    """Return the settings of all runs; the limited network's is the last."""
    plan = registration()
    return [*plan["runs"]["settings"], plan["network"]]


def chosen_lr(method):
    """Return the learning rate that tuning chose."""
    tuned = registration()["tuning"]["same"].get(method, method)
    return studies.read(CHAPTER, f"{NAME}-tuning").at(method=tuned, chosen=True)["lr"]


def chosen_mb(ranks, gbit_s):
    """Return the size of the baseline's buckets that tuning chose for a setting."""
    found = studies.read(CHAPTER, f"{NAME}-buckets")
    return found.at(ranks=ranks, gbit_s=gbit_s, chosen=True)["bucket_mb"]


def predict():
    """Store what every step should take, in every setting of the runs."""
    points = []
    for setting in settings():
        ranks, gbit_s = setting["ranks"], setting["gbit_s"]
        options = {"ranks": 1, "threads": 1, "timeout": TIMEOUT}
        found = launch(prediction, ranks, gbit_s, chosen_mb(ranks, gbit_s), **options)[0]
        points += [
            {
                "method": method,
                "ranks": ranks,
                "gbit_s": gbit_s,
                "step_seconds": found[method],
                "speedup": found["overlapped"] / found[method],
            }
            for method in training.METHODS
        ]
    return store("prediction", points, ranks=sorted({setting["ranks"] for setting in settings()}))


def prediction(ranks, gbit_s, bucket_mb):
    """Run on one rank: {method: predicted seconds of a step}."""
    return expected.step_seconds(expected.Work(data(), ranks), gbit_s, bucket_mb)


def run():
    """Run every method on the virtual clock and store the results."""
    points = []
    for setting in registration()["runs"]["settings"]:
        for seed in setting["seeds"]:
            for method in sorted(training.METHODS, key=is_short):
                found = short if is_short(method) else full
                points.append(found(method, setting["ranks"], setting["gbit_s"], seed))
    return store(None, points, ranks=sorted({point["ranks"] for point in points}))


def is_short(method):
    """Whether the method is timed over a few steps only."""
    return method in registration()["runs"]["short"]


def full(method, ranks, gbit_s, seed, names=None):
    """Return the point of a run over all steps."""
    arguments = (method, chosen_lr(method), seed, gbit_s, chosen_mb(ranks, gbit_s))
    return point(method, ranks, gbit_s, seed, once(ranks, *arguments, names=names, test=True))


def short(method, ranks, gbit_s, seed):
    """Return the point of a method that computes the baseline's average: its time, its accuracy."""
    base = full("overlapped", ranks, gbit_s, seed)
    arguments = (method, chosen_lr(method), seed, gbit_s, chosen_mb(ranks, gbit_s))
    timed = once(ranks, *arguments, steps=registration()["buckets"]["steps"])["step_seconds"]
    times = {
        "seconds_to_target": timed * base["steps_to_target"],
        "step_seconds": timed,
        "total_seconds": timed * TASK["steps"],
    }
    return base | {"method": method} | times


def limited():
    """Run the registered methods on a link that the kernel limits, and store the results."""
    plan, points = registration()["network"], []
    with network(plan["ranks"], gbit_s=plan["gbit_s"]) as names:
        for seed in plan["seeds"]:
            for method in plan["methods"]:
                points.append(full(method, plan["ranks"], plan["gbit_s"], seed, names))
    return store("network", points, ranks=[plan["ranks"]], clock="wall")


def point(method, ranks, gbit_s, seed, result):
    """Return a point of a study."""
    family = registration()["methods"][method]["family"]
    who = {"method": method, "family": family, "ranks": ranks, "gbit_s": gbit_s, "seed": seed}
    return {**who, **result}


def store(suffix, points, clock="virtual", **facts):
    """Write a study; return its path."""
    name = f"{NAME}-{suffix}" if suffix else NAME
    command = f"{COMMAND} {suffix or 'run'}"
    facts = {"registration": digest(), "backend": "gloo", **facts}
    return studies.write(CHAPTER, name, points, command=command, clock=clock, **facts)


COMMANDS = {
    "tuning": tune,
    "buckets": tune_buckets,
    "prediction": predict,
    "run": run,
    "network": limited,
}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"give one of {', '.join(COMMANDS)}")
    print(COMMANDS[sys.argv[1]]())
