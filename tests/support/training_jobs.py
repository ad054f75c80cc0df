"""Configs of training runs for tests that look at one without running it."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from reshard_lab.planning import Plan
from reshard_lab.runtime import Pool
from reshard_lab.training import Paced, Transformer, train
from reshard_lab.training.config import TrainingConfig
from reshard_lab.training.executor import CONFIG


class Handed(Exception):
    """What ``train`` hands to a pool has been read."""


class Reader(Pool):
    """A pool that reads the job it is given, and starts nothing."""

    def carry_out(self, job, read):
        with TemporaryDirectory() as folder:
            for name, text in job.files.items():
                (Path(folder) / name).write_text(text)
            raise Handed(
                TrainingConfig.from_json(job.files[CONFIG]),
                [Plan.from_json(Path(folder) / name) for name in job.files if name != CONFIG],
            )


def resolved(**options):
    """The config of ``given`` and its plans; all else as small as can be, compute paced."""
    small = {"schedule": "gpipe", "microbatches": 2, "batch": 4, "compute": Paced(1.0, 2.0)}
    with pytest.raises(Handed) as handed:
        train(where=Reader(16), **small | options)
    return handed.value.args


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
