"""Jobs of training for tests that look at one without running it."""

from reshard_lab.pipeline import Paced
from reshard_lab.training.settle import settle


def settled(**given):
    """The job of ``given``, and its cluster; all else is as small as can be, its compute paced."""
    small = {
        "cluster": None,
        "model": "transformer",
        "schedule": "gpipe",
        "stages": None,
        "microbatches": 2,
        "batch": 4,
        "overlap": True,
        "compute": Paced(1.0, 2.0),
        "chunks": None,
        "delay_weights": False,
        "steps": 1,
        "warmup": 0,
        "learning_rate": 0.1,
        "seed": 0,
        "check": True,
        "timeout_s": 60,
    }
    return settle(**small | given)
