"""Configs of training runs for tests that look at one without running it."""

from reshard_lab.training import Paced, Transformer
from reshard_lab.training.resolve import resolve_config


def resolved(**given):
    """The config of ``given`` and its cluster; all else as small as can be, compute paced."""
    small = {
        "where": "local",
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
    return resolve_config(**small | given)


def two_by_two():
    """Samples over devices 0 and 1, then over 2 and 3 with the sequence cut as well."""
    stages = [((2, 1), "S0RR"), ((1, 2), "RS1R")]
    config, _ = resolved(
        model=Transformer(blocks=2, hidden=16, heads=2, sequence=6),
        schedule="1f1b",
        stages=stages,
        batch=8,
        compute=Paced(0.0, 0.0),
        timeout_s=5,
    )
    return config
