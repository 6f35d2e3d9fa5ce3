"""How a value is written: in the printed line, in a table, and in a record.

Printed and shown: integers in full with thousands separators, floats with 6 (printed) or 4 (tables)
significant digits, long arrays by their shape or range. Recorded: floats rounded to 6 significant digits, so
that a rerun changes a record only where the value changed; arrays above 16 elements as a summary.
"""

import math

import numpy as np

LONGEST_LIST = 16


def text(value, digits=6):
    """Return ``value`` (a number, string, bool, list or array) as one short piece of text.

    Arrays of more than 6 elements appear as their shape: ``an array of shape (4, 1000)``.
    """
    if isinstance(value, dict):  # a summary made by `recorded`
        return f"{text(value['low'], digits)} to {text(value['high'], digits)} {_shape(value)}"
    array = np.asarray(value)
    if array.ndim == 0:
        return _scalar(array.item() if isinstance(value, np.ndarray | np.generic) else value, digits)
    flat = array.ravel().tolist()
    if len(flat) > 1 and all(item == flat[0] for item in flat):
        return f"{_scalar(flat[0], digits)} ({len(flat)} times)"
    if array.ndim == 1 and len(flat) <= 6:
        return "[" + ", ".join(_scalar(item, digits) for item in flat) + "]"
    return f"an array of shape {array.shape}"


def recorded(value):
    """Return ``value`` as JSON can hold it; a long array becomes ``{"shape", "low", "high", "mean"}``."""
    array = np.asarray(value)
    if array.size <= LONGEST_LIST:
        return _rounded(array.tolist() if isinstance(value, np.ndarray | np.generic) else value)
    summary = {"shape": list(array.shape)}
    if array.dtype.kind in "US":
        ordered = sorted(array.ravel().tolist())
        return summary | {"low": ordered[0], "high": ordered[-1], "mean": None}
    low, high, mean = array.min(), array.max(), array.astype(float).mean()
    return summary | {"low": _rounded(_plain(low)), "high": _rounded(_plain(high)), "mean": _rounded(float(mean))}


def _plain(value):
    return value.item() if isinstance(value, np.generic) else value


def _shape(summary):
    return f"(shape {' x '.join(str(n) for n in summary['shape'])})"


def _rounded(value):
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.6g}")
    return value


def _scalar(value, digits):
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        short = f"{value:.{digits}g}"
        # A whole float below a million reads better as 65536 than as 6.554e+04.
        if abs(value) < 1e6 and value == int(value):
            short = f"{value:,.0f}"
        return short
    return f'"{value}"'
