"""The commands of the study: see the package. What has run is kept, and not run again."""

import json
import sys
from pathlib import Path

from lsdl_lib import launch
from lsdl_lib.claims import studies
from lsdl_lib.communication.studies.time_to_accuracy import digest, expected, training
from lsdl_lib.communication.studies.time_to_accuracy.methods import ONE_BUCKET_MB
from lsdl_lib.communication.studies.time_to_accuracy.registration import registration
from lsdl_lib.communication.studies.time_to_accuracy.task import data
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


def once(ranks, *arguments, names=None, test=False):
    """Return the result of a run, from what is kept or by running it."""
    key = json.dumps([ranks, *arguments, "network" if names else "virtual", test])
    if (done := kept().get(key)) is not None:
        return done
    options = {"ranks": ranks, "threads": 1, "timeout": TIMEOUT}
    result = launch(training.run, *arguments, names, test, **options)[0]
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.open("a", encoding="utf-8") as file:
        row = {"digest": digest(), "key": key, "result": result}
        file.write(json.dumps(row) + "\n")
    print(*arguments, f"{ranks} ranks: {result}", flush=True)
    return result


def tune():
    """Try three learning rates a method, and three sizes of the baseline's buckets; store them."""
    plan, rules = registration(), registration()["tuning"]
    points = []
    for method, entry in plan["methods"].items():
        sizes = rules["buckets_mb"] if method == "overlapped" else [ONE_BUCKET_MB]
        found = []
        for lr in entry["lr"]:
            result = once(rules["ranks"], method, lr, rules["seed"], rules["gbit_s"], sizes[-1])
            found.append((lr, sizes[-1], result))
        best_lr = max(found, key=lambda row: (row[2]["final_accuracy"], -row[0]))[0]
        for size in sizes[:-1]:
            result = once(rules["ranks"], method, best_lr, rules["seed"], rules["gbit_s"], size)
            found.append((best_lr, size, result))
        tried = [row for row in found if row[0] == best_lr]
        best = min(tried, key=lambda row: row[2]["step_seconds"])
        points += [
            {
                "method": method,
                "lr": lr,
                "bucket_mb": size,
                "final_accuracy": result["final_accuracy"],
                "step_seconds": result["step_seconds"],
                "chosen": (lr, size) == best[:2],
            }
            for lr, size, result in found
        ]
    return store("tuning", points, ranks=[rules["ranks"]])


def chosen(method):
    """Return (learning rate, bucket size) that tuning chose."""
    point = studies.read(CHAPTER, f"{NAME}-tuning").at(method=method, chosen=True)
    return point["lr"], point["bucket_mb"]


def predict():
    """Store what every step should take, for each number of ranks and bandwidth."""
    plan = registration()["runs"]
    _, bucket_mb = chosen("overlapped")
    points = []
    for ranks in plan["ranks"]:
        options = {"ranks": 1, "threads": 1, "timeout": TIMEOUT}
        speeds = [plan["gbit_s"], *plan["gbit_s_elsewhere"]]
        for gbit_s, found in zip(
            speeds, launch(predictions, ranks, speeds, bucket_mb, **options)[0]
        ):
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
    return store("prediction", points, ranks=plan["ranks"])


def predictions(ranks, speeds, bucket_mb):
    """Run on one rank: the predictions for each bandwidth."""
    work = expected.Work(data(), ranks)
    return [expected.step_seconds(work, gbit_s, bucket_mb) for gbit_s in speeds]


def run():
    """Run every method on the virtual clock and store the results."""
    plan = registration()["runs"]
    settings = [
        (seed, ranks, plan["gbit_s"]) for ranks in plan["ranks"] for seed in plan["seeds"]
    ] + [
        (seed, ranks, gbit_s)
        for gbit_s in plan["gbit_s_elsewhere"]
        for ranks in plan["ranks"]
        for seed in plan["seeds_elsewhere"]
    ]
    points = []
    for seed, ranks, gbit_s in settings:
        for method in training.METHODS:
            lr, bucket_mb = chosen(method)
            result = once(ranks, method, lr, seed, gbit_s, bucket_mb, test=True)
            points.append(point(method, ranks, gbit_s, seed, result))
    return store(None, points, ranks=plan["ranks"])


def limited():
    """Run the registered methods on a link that the kernel limits, and store the results."""
    plan, points = registration()["network"], []
    with network(plan["ranks"], gbit_s=plan["gbit_s"]) as names:
        for seed in plan["seeds"]:
            for method in plan["methods"]:
                lr, bucket_mb = chosen(method)
                arguments = (plan["ranks"], method, lr, seed, plan["gbit_s"], bucket_mb)
                result = once(*arguments, names=names, test=True)
                points.append(point(method, plan["ranks"], plan["gbit_s"], seed, result))
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


COMMANDS = {"tuning": tune, "prediction": predict, "run": run, "network": limited}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"give one of {', '.join(COMMANDS)}")
    print(COMMANDS[sys.argv[1]]())
