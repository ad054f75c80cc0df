"""Exercises of the notebooks: predictions are checked, and answers not given away."""

import unittest.mock
from fractions import Fraction

import numpy as np
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
