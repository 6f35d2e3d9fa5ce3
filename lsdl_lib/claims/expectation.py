"""What a claim expects of a measured value, and whether the value meets it.

    equality   |measured - expected| <= atol + rtol |expected|, for every element
    bounds     at_least <= measured <= at_most, for every element
    strings, bools   equal

With both tolerances 0 (the default) equality is exact, also for integers beyond 2**53. NaN and
infinities are never measured values: they raise, because a comparison with them can pass by
accident.
"""

from dataclasses import dataclass

import numpy as np

from lsdl_lib.claims import numbers


class ClaimFailed(AssertionError):
    """A claim does not hold. The message names the measured value and what was expected of it."""


@dataclass(frozen=True)
class Expectation:
    """What is expected of one measured quantity: ``expected`` within tolerances, or bounds.

    Args:
        expected: number, string, bool, or a sequence or array of them.
        rtol: share of ``|expected|`` by which measured may differ, at least 0 and below 1.
        atol: amount by which measured may differ, in the unit of the value.
        at_most: upper bound, included. With ``at_least`` it makes a range.
        at_least: lower bound, included.
        unit: name of the unit, for the text only.

    Raises:
        ValueError: nothing to compare with, or a value makes no sense; the message names it.
    """

    expected: object = None
    rtol: float = 0.0
    atol: float = 0.0
    at_most: object = None
    at_least: object = None
    unit: str = ""

    def __post_init__(self):
        for name in ("expected", "at_most", "at_least"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, plain(name, getattr(self, name)))
        bounded = self.at_most is not None or self.at_least is not None
        if self.expected is None and not bounded:
            raise ValueError("nothing to compare with: give expected=, at_most= or at_least=")
        if self.expected is not None and bounded:
            raise ValueError(
                f"expected={numbers.text(self.expected)} and a bound were given: give one of them"
            )
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float | np.number):
                raise ValueError(f"{name}={value!r} is not a number")
            if not (np.isfinite(value) and value >= 0):
                raise ValueError(f"{name}={value!r}: give a finite number that is not negative")
        if self.rtol >= 1:
            raise ValueError(
                f"rtol={self.rtol!r} would accept 0: 5 % is rtol=0.05; for more use bounds"
            )
        if bounded:
            self._check_bounds()
        else:
            kind = values("expected", self.expected)[0]
            if kind != "number" and (self.rtol or self.atol):
                raise ValueError(f"expected is a {kind}: it has no tolerance")

    def _check_bounds(self):
        if self.rtol or self.atol:
            raise ValueError("a bound has no tolerance: put the margin into the bound itself")
        for name in ("at_most", "at_least"):
            if getattr(self, name) is not None:
                kind, array = values(name, getattr(self, name))
                if kind != "number" or array.ndim:
                    raise ValueError(f"{name}={numbers.text(getattr(self, name))}: give one number")
        if None not in (self.at_most, self.at_least) and self.at_least > self.at_most:
            raise ValueError(
                f"at_least={self.at_least} is above at_most={self.at_most}: nothing can hold"
            )

    def holds(self, measured):
        """Return whether every element of ``measured`` meets the expectation.

        Raises:
            ValueError: measured is not finite, is empty, or of another kind or shape than expected.
        """
        kind, got = values("measured", measured)
        if self.expected is None:
            if kind != "number":
                raise ValueError(f"measured={numbers.text(measured)} is a {kind}: it has no bounds")
            return (self.at_least is None or bool(np.all(got >= self.at_least))) and (
                self.at_most is None or bool(np.all(got <= self.at_most))
            )
        wanted_kind, wanted = values("expected", self.expected)
        if kind != wanted_kind:
            raise ValueError(
                f"measured={numbers.text(measured)} is a {kind}, "
                f"expected={numbers.text(self.expected)} is a {wanted_kind}"
            )
        if wanted.ndim and got.shape != wanted.shape:
            raise ValueError(
                f"measured has shape {got.shape}, expected has shape {wanted.shape}: "
                "give the same shape, or one number that every element must equal"
            )
        if self.rtol == 0 and self.atol == 0:
            return bool(np.all(got == wanted))
        return bool(np.all(abs(got - wanted) <= self.atol + self.rtol * abs(wanted)))

    def text(self):
        """Return the expectation in words, without any measured value."""
        if self.expected is None:
            if self.at_least is None:
                return f"at most {numbers.text(self.at_most, unit=self.unit)}"
            if self.at_most is None:
                return f"at least {numbers.text(self.at_least, unit=self.unit)}"
            high = numbers.text(self.at_most, unit=self.unit)
            return f"from {numbers.text(self.at_least)} to {high}"
        wanted = numbers.text(self.expected, unit=self.unit)
        if values("expected", self.expected)[0] != "number":
            return wanted
        return f"{wanted}, {margin_text(self.rtol, self.atol, self.unit)}"


def margin_text(rtol, atol, unit=""):
    """Return tolerances in words: ``"exactly"``, ``"within 5 % plus 0.1 s"``."""
    margins = [f"{100 * rtol:.6g} %"] if rtol else []
    margins += [numbers.text(atol, unit=unit)] if atol else []
    return "within " + " plus ".join(margins) if margins else "exactly"


def plain(name, value):
    """Return a number, string or bool as Python's own, anything longer as an array.

    Raises:
        ValueError: as :func:`values`.
    """
    array = values(name, value)[1]
    return array if array.ndim else array.item()


def values(name, value):
    """Return ``(kind, array)`` of a value: kind is ``"number"``, ``"string"`` or ``"bool"``.

    Integers become Python integers (dtype object), so that no comparison wraps around or rounds;
    floats become float64. Accepts tensors and arrays of any device.

    Raises:
        ValueError: the value is empty, ragged, not finite, or of another type; it is named.
    """
    if hasattr(
        value, "detach"
    ):  # a tensor: numpy knows neither its gradient, its device nor bfloat16
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name}={value!r} is ragged: its rows have different lengths") from None
    if array.size == 0:
        raise ValueError(
            f"{name} is empty (shape {array.shape}): a claim about nothing always holds"
        )
    if array.dtype.kind in "US":
        # numpy turns [1, "a"] into strings: only real strings may become one.
        if not all(isinstance(item, str) for item in np.array(value, dtype=object).ravel()):
            raise ValueError(f"{name}={value!r} mixes strings with other values")
        return "string", array
    if array.dtype.kind == "b":
        return "bool", array
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            where = f"{name}{[int(i) for i in bad[0]]}" if array.ndim else name
            raise ValueError(
                f"{where} is {array[tuple(bad[0])]}: only finite numbers can be compared"
            )
        return "number", array
    if array.dtype.kind in "iu" or (
        array.dtype.kind == "O" and all(type(item) is int for item in array.ravel())
    ):
        return "number", array.astype(object)
    raise ValueError(f"{name}={value!r} is no number, string, bool, or array of them")
