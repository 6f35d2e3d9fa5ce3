"""What the comparison's stored runs say: means over seeds, paired with the baseline's."""

import statistics

BASELINE = "overlapped"
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # 97.5 % quantile of t, by number of values


def mean_and_half(values):
    """Return (mean, half of its 95 % interval by Student's t) of 2 to 5 values.

    Raises:
        ValueError: another number of values.
    """
    values = list(values)
    if len(values) not in STUDENT:
        raise ValueError(f"{len(values)} values: give from 2 to 5")
    spread = statistics.stdev(values) / len(values) ** 0.5
    return statistics.fmean(values), STUDENT[len(values)] * spread


def paired(study, method, value, **setting):
    """Return :func:`mean_and_half` of ``value(baseline, method)`` over the seeds of a setting."""
    return mean_and_half(
        value(study.at(method=BASELINE, **setting | {"seed": point["seed"]}), point)
        for point in study.all(method=method, **setting)
    )


def times_faster(base, point):
    """Return the speed-up in seconds to the target."""
    return base["seconds_to_target"] / point["seconds_to_target"]


def points_lost(base, point):
    """Return the test accuracy that was lost against the baseline, in points."""
    return 100 * (base["test_accuracy"] - point["test_accuracy"])


def row(study, predictions, method, **setting):
    """Return a row of a table; ``HEAD`` names its columns.

    Args:
        study: the runs; predictions: what was predicted of them.
        method: of the registration.
        setting: ``ranks`` and ``gbit_s``.
    """
    points = study.all(method=method, **setting)
    speed, lost = (paired(study, method, value, **setting) for value in (times_faster, points_lost))
    reached = sum(point["reached"] for point in points)
    predicted = predictions.at(method=method, **setting)["step_seconds"]
    taken = statistics.fmean(point["step_seconds"] for point in points)
    return [
        method.replace("_", " "),
        f"{1e3 * predicted:.1f}",
        f"{1e3 * taken:.1f}",
        f"{statistics.fmean(point['steps_to_target'] for point in points):.0f}"
        if reached == len(points)
        else f"{reached} of {len(points)} seeds",
        f"{speed[0]:.2f} ± {speed[1]:.2f}" if reached == len(points) else "not reached",
        f"{lost[0]:.1f} ± {lost[1]:.1f}",
    ]


HEAD = ["method", "predicted, ms a step", "run, ms a step", "steps to 95 %", "speed-up"]
HEAD += ["test points lost"]
