"""How a value is written: in the printed line, in a table, and in a record.

Printed and shown: integers in full with thousands separators, floats with 6 (printed) or 4 (tables)
significant digits, long arrays by their shape or range. Recorded: floats rounded to 6 significant
digits, so that a rerun changes a record only where the value changed; arrays above 16 elements as a
summary.
"""

import numpy as np

LONGEST_LIST = 16
LONGEST_SHOWN = 6


def text(value, digits=6, unit=""):
    """Return a number, string, bool, list, array or summary, with its unit, as one short piece.

    Arrays of more than 6 elements that differ appear as their shape: ``4 x 1000 values``.
    """
    unit = f" {unit}" if unit else ""
    if isinstance(value, dict):  # a summary made by `recorded`
        low, high = _scalar(value["low"], digits), _scalar(value["high"], digits)
        if low == high:
            return f"{low}{unit} ({_shape(value['shape'])} times)"
        return f"{low} to {high}{unit} ({_shape(value['shape'])} values)"
    array = np.asarray(value)
    if array.ndim == 0:
        return _scalar(array.item() if array.dtype != object else value, digits) + unit
    flat = array.ravel().tolist()
    if len(flat) > 1 and all(item == flat[0] for item in flat):
        return f"{_scalar(flat[0], digits)}{unit} ({_shape(array.shape)} times)"
    if array.ndim == 1 and len(flat) <= LONGEST_SHOWN:
        # No thousands separators here: their commas would look like the list's.
        return "[" + ", ".join(_scalar(item, digits, "") for item in flat) + f"]{unit}"
    return f"{_shape(array.shape)} values"


def recorded(value):
    """Return a scalar or an array as JSON can hold it; long arrays as shape, low, high, mean."""
    if not isinstance(value, np.ndarray):
        return _rounded(value)
    if value.size <= LONGEST_LIST:
        return _rounded(value.tolist())
    summary = {"shape": list(value.shape)}
    if value.dtype.kind in "US":
        ordered = sorted(value.ravel().tolist())
        return summary | {"low": ordered[0], "high": ordered[-1], "mean": None}
    low, high = value.min(), value.max()
    mean = float(value.astype(float).mean())
    low, high = (x.item() if isinstance(x, np.generic) else x for x in (low, high))
    return summary | {"low": _rounded(low), "high": _rounded(high), "mean": _rounded(mean)}


def _shape(shape):
    return " x ".join(str(n) for n in shape)


def _rounded(value):
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _scalar(value, digits, separator=","):
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:{separator}}"
    if isinstance(value, float):
        # A whole float below a million reads better as 65,536 than as 6.554e+04.
        whole = abs(value) < 1e6 and value == int(value)
        return f"{value:{separator}.0f}" if whole else f"{value:.{digits}g}"
    return f'"{value}"'
