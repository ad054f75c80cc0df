"""What the helpers of the notebooks refuse."""

from functools import partial

from reshard_lab import paper, teaching
from support.refusals import bad_calls, check_refusal

REFUSALS = {
    "predict": [
        (partial(teaching.predict, 1, lambda: 4 / 3, within=bad), "within must be a share")
        for bad in (1, -0.1, 2.0, None)
    ],
    "deliver": [(lambda: teaching.deliver("broadcast", 0, 1), "hosts must be at least 1, not 0")],
    "figure2": [(lambda: paper.figure2(3), "figure 2 has tasks 1 and 2, not 3")],
}


@bad_calls(REFUSALS)
def test_bad_calls_are_refused(call, words):
    check_refusal(call, words)
