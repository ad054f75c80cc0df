"""What the closed forms of the strategies refuse."""

from functools import partial

import reshard_lab as rl
from reshard_lab.strategies import closed_form_s
from support.refusals import bad_calls, check_refusal

TWO_HOSTS = rl.Cluster(2, 4)

REFUSALS = {
    "closed_form_s": [
        (
            lambda: closed_form_s("broadcast", 4000, 2, 4, TWO_HOSTS),
            "need a cluster of 3 hosts; this one has 2",
        ),
        *[
            (partial(closed_form_s, "broadcast", 4000, 1, 4, TWO_HOSTS, bad), "chunks must be")
            for bad in (0, "x", True)
        ],
    ],
}


@bad_calls(REFUSALS)
def test_bad_calls_are_refused(call, words):
    check_refusal(call, words)
