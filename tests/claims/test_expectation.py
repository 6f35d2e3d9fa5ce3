"""Every kind of comparison holds when it should, and fails when the value is off by a little."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsdl_lib.claims.expectation import Expectation

# name, expectation, values that hold, values that fail. The failing values are the mutations: what
# a wrong coefficient, a dropped term, or a comparison with the wrong sign would let through.
KINDS = [
    ("exact integer", {"expected": 6}, [6, 6.0, np.int64(6)], [5, 7, -6, 6.0000001]),
    ("exact float", {"expected": 0.5}, [0.5], [0.5000000000000001, -0.5]),
    ("rtol", {"expected": 100.0, "rtol": 0.05}, [95.0, 105.0, 100], [94.9, 105.1, -100.0]),
    ("rtol, negative", {"expected": -100.0, "rtol": 0.05}, [-95.0, -105.0], [-94.9, -105.1, 100.0]),
    ("atol", {"expected": 0.0, "atol": 1e-10}, [1e-10, -1e-10], [1.1e-10, -1.1e-10]),
    ("both", {"expected": 100.0, "rtol": 0.01, "atol": 1.0}, [98.0, 102.0], [97.9, 102.1]),
    ("at most", {"at_most": 1.05}, [1.05, 0, -9], [1.0500001, 2]),
    ("at least", {"at_least": 0.9}, [0.9, 2], [0.8999999, -2]),
    ("range", {"at_least": 1, "at_most": 2}, [1, 1.5, 2], [0.999, 2.001]),
    ("string", {"expected": "ring"}, ["ring"], ["Ring", "ring ", ""]),
    ("bool", {"expected": True}, [True, np.True_, torch.tensor(True)], [False]),
    ("all elements", {"expected": 3}, [[3, 3, 3], np.full((2, 2), 3)], [[3, 3, 4], [4, 3, 3]]),
    ("sequence", {"expected": [1, 2]}, [[1, 2], (1, 2), torch.tensor([1, 2])], [[2, 1], [1, 3]]),
    ("sequence, atol", {"expected": [1.0, 2.0], "atol": 0.1}, [[1.05, 1.95]], [[1.05, 2.2]]),
    ("all at most", {"at_most": 3}, [[1, 2, 3]], [[1, 4, 2]]),
    ("all at least", {"at_least": 1}, [[1, 2, 3]], [[1, 0, 2]]),
    ("strings", {"expected": ["a", "b"]}, [["a", "b"]], [["a", "c"]]),
    ("bools", {"expected": True}, [[True, True]], [[True, False]]),
    ("beyond 2**53", {"expected": 2**53}, [2**53], [2**53 + 1, 2**53 - 1]),
    ("beyond 64 bits", {"expected": [2**80, 1]}, [[2**80, 1]], [[2**80 + 1, 1]]),
    ("float beside a big integer", {"expected": 2**53 + 1}, [2**53 + 1], [float(2**53)]),
    ("a bound beyond 2**53", {"at_most": 2**53}, [2**53], [2**53 + 1]),
]


@pytest.mark.parametrize(("name", "arguments", "good", "bad"), KINDS, ids=[k[0] for k in KINDS])
def test_each_kind_holds_and_fails(name, arguments, good, bad):
    expectation = Expectation(**arguments)
    for measured in good:
        assert expectation.holds(measured) is True, measured
    for measured in bad:
        assert expectation.holds(measured) is False, measured


def test_unsigned_integers_do_not_wrap_around():
    assert not Expectation(expected=200, atol=60).holds(np.array([100], dtype=np.uint8))
    assert Expectation(expected=np.uint8(200), atol=100).holds(np.array([100], dtype=np.uint8))


def test_tensors_of_any_dtype_are_values():
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int8):
        tensor = torch.full((2, 2), 3, dtype=dtype)
        assert Expectation(expected=3).holds(tensor)
        assert not Expectation(expected=4).holds(tensor)
    assert Expectation(expected=torch.tensor([1.0], requires_grad=True)).holds([1.0])


NONSENSE = [
    ("no expectation", {}, "expected="),
    ("two expectations", {"expected": 1, "at_most": 2}, "expected=1"),
    ("empty range", {"at_least": 3, "at_most": 2}, "at_least=3"),
    ("negative rtol", {"expected": 1, "rtol": -0.1}, "rtol=-0.1"),
    ("negative atol", {"expected": 1, "atol": -1e-9}, "atol=-1e-09"),
    ("rtol that accepts 0", {"expected": 1, "rtol": 5}, "rtol=5"),
    ("rtol is nan", {"expected": 1, "rtol": float("nan")}, "rtol=nan"),
    ("atol is inf", {"expected": 1, "atol": float("inf")}, "atol=inf"),
    ("rtol is a string", {"expected": 1, "rtol": "5%"}, "rtol='5%'"),
    ("tolerance of a bound", {"at_most": 1, "rtol": 0.1}, "tolerance"),
    ("tolerance of a string", {"expected": "a", "atol": 1.0}, "string"),
    ("tolerance of a bool", {"expected": True, "atol": 1.0}, "bool"),
    ("expected is nan", {"expected": float("nan")}, "expected is nan"),
    ("expected is inf", {"expected": float("inf"), "rtol": 0.1}, "expected is inf"),
    ("nan in expected", {"expected": [1.0, float("nan")]}, r"expected\[1\] is nan"),
    ("bound is nan", {"at_most": float("nan")}, "at_most is nan"),
    ("bound is an array", {"at_most": [1, 2]}, "at_most=\\[1, 2\\]"),
    ("bound is a string", {"at_least": "1"}, 'at_least="1"'),
    ("expected is empty", {"expected": []}, "expected is empty"),
    ("expected is ragged", {"expected": [[1], [1, 2]]}, "expected"),
    ("expected is a dict", {"expected": {"a": 1}}, "expected={'a': 1}"),
    ("expected is mixed", {"expected": [1, "a"]}, "mixes strings"),
    ("expected is complex", {"expected": 1j}, "expected=1j"),
]


@pytest.mark.parametrize(("name", "arguments", "says"), NONSENSE, ids=[n[0] for n in NONSENSE])
def test_nonsense_is_refused_by_name(name, arguments, says):
    with pytest.raises(ValueError, match=says):
        Expectation(**arguments)


WRONG = [
    ("nan", 1.0, float("nan"), "measured is nan"),
    ("inf", 1.0, float("inf"), "measured is inf"),
    ("nan in a tensor", 1.0, torch.tensor([[1.0, float("nan")]]), r"measured\[0, 1\] is nan"),
    ("none", 1.0, None, "measured=None"),
    ("empty", 1.0, [], "measured is empty"),
    ("other shape", [1, 2], [1, 2, 3], r"shape \(3,\), expected has shape \(2,\)"),
    ("scalar for a sequence", [1, 1], 1, r"shape \(\), expected has shape \(2,\)"),
    ("string for a number", 1, "1", "measured=.* is a string"),
    ("number for a bool", True, 1, "is a number, expected=True is a bool"),
]


@pytest.mark.parametrize(("name", "expected", "measured", "says"), WRONG, ids=[w[0] for w in WRONG])
def test_measured_nonsense_is_refused_by_name(name, expected, measured, says):
    with pytest.raises(ValueError, match=says):
        Expectation(expected=expected).holds(measured)


def test_nan_never_passes_a_bound():
    for bound in ({"at_most": 1}, {"at_least": 1}, {"at_least": 0, "at_most": 2}):
        with pytest.raises(ValueError, match="measured is nan"):
            Expectation(**bound).holds(float("nan"))
        with pytest.raises(ValueError, match="string"):
            Expectation(**bound).holds("1")


@given(
    st.floats(-1e6, 1e6),
    st.floats(0, 0.5),
    st.floats(0, 10),
    st.floats(0, 2),
    st.sampled_from([1, -1]),
)
def test_the_margin_is_the_formula(expected, rtol, atol, share, sign):
    margin = atol + rtol * abs(expected)
    measured = expected + sign * share * margin
    # What rounding decides is left out: |measured - expected| itself is what is compared.
    wanted = abs(measured - expected) <= margin
    assert Expectation(expected=expected, rtol=rtol, atol=atol).holds(measured) == wanted


TEXTS = [
    ({"expected": 1572864, "unit": "B"}, "1,572,864 B, exactly"),
    ({"expected": 1.5, "rtol": 0.05, "unit": "s"}, "1.5 s, within 5 %"),
    ({"expected": 0.0, "atol": 1e-10}, "0, within 1e-10"),
    ({"expected": 2.0, "rtol": 0.01, "atol": 0.1, "unit": "s"}, "2 s, within 1 % plus 0.1 s"),
    ({"at_most": 1.05}, "at most 1.05"),
    ({"at_least": 0.9, "unit": "x"}, "at least 0.9 x"),
    ({"at_least": 1, "at_most": 2, "unit": "s"}, "from 1 to 2 s"),
    ({"expected": "ring"}, '"ring"'),
    ({"expected": True}, "True"),
    ({"expected": [1, 2000]}, "[1, 2000], exactly"),
    ({"expected": np.arange(4000).reshape(4, 1000)}, "4 x 1000 values, exactly"),
    ({"expected": np.zeros(8)}, "0 (8 times), exactly"),
]


@pytest.mark.parametrize(("arguments", "text"), TEXTS, ids=[t[1] for t in TEXTS])
def test_expectations_in_words(arguments, text):
    assert Expectation(**arguments).text() == text
