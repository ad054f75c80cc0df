"""Exercises of the notebooks: predictions are checked, and answers not given away."""

import unittest.mock
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from reshard_lab.teaching import predict


def test_predictions_are_checked_and_answers_not_given_away():
    def answer():
        return (2, np.int64(4))

    assert predict(..., lambda: pytest.fail("worked out too early")).right is None
    wrong = predict((2, 3), answer)
    assert wrong.right is False
    assert "4" not in repr(wrong)
    assert predict([2, 4], answer).right is True
    assert predict(1, lambda: True).right is False
    assert repr(predict("reveal", lambda: np.int64(7))) == "the answer is 7"
    assert repr(predict("reveal", lambda: "reveal")) == "the answer is 'reveal'"
    assert repr(predict(" Reveal", lambda: 0.1 + 0.2)) == "the answer is 0.3"


def test_a_wrong_prediction_gets_the_hint():
    said = repr(predict(3, lambda: 4, "count the hosts"))
    assert said == '3 is not it. Count the hosts. ("reveal" shows the answer)'
    assert repr(predict(4, lambda: 4, "count the hosts")) == "right: 4"
    assert "the hosts" not in repr(predict(..., lambda: 4, "count the hosts"))


def test_predictions_are_as_close_as_asked():
    def third():
        return 4 / 3

    for near in (4 / 3, 1.33, 1.34, Fraction(4, 3)):
        assert predict(near, third, within=0.01).right is True
    for far in (1.3, 1.37, 4 / 3 + 0j, -4 / 3):
        assert predict(far, third, within=0.01).right is False
    assert predict(1.33, third).right is False
    assert repr(predict(1.33, third, within=0.01)) == "right: 1.333"


def test_sets_are_right_in_any_order_and_only_like_equals_like():
    for order in ([2, 0], (0, 2), {2, 0}):
        assert predict(order, lambda: {0, 2}).right is True
    for order in ([0, 2, 2], (0,), {0, 1}, 2, "02"):
        assert predict(order, lambda: {0, 2}).right is False
    assert predict([2, 0], lambda: [0, 2]).right is False
    assert predict(unittest.mock.ANY, lambda: 4).right is False


PREDICTIONS = [
    (np.array([1, 2]), [1, 2], True),
    ([1, 2], np.array([1, 2]), True),
    (pd.Series([1, 2]), (1, 2), True),
    (np.array([1, 2]), 3, False),
    ([1, 2, 3], [1, 2], False),
    ("True", True, False),
    (True, "True", False),
    (np.bool_(True), True, True),
    (True, np.bool_(True), True),
    (np.bool_(False), True, False),
    (1, True, False),
    (0.1 + 0.2, 0.3, True),
    (0.3001, 0.3, False),
    (1e-12, 0.0, False),
    ({"a": 1.0}, {"a": 1 + 1e-12}, True),
    ({"a": 1.0}, {"b": 1.0}, False),
    pytest.param(10**400, 1.0, False, id="beyond-floats"),
]


@pytest.mark.parametrize(("prediction", "answer", "right"), PREDICTIONS)
def test_a_prediction_is_right_if_it_says_the_same(prediction, answer, right):
    assert predict(prediction, lambda: answer).right is right
