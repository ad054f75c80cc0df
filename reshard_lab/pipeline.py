"""Pipelines, as programs use them: stage schedules, their simulation, models, training (section 4).

>>> from reshard_lab import pipeline
>>> pipeline.schedule("1f1b", stages=2, microbatches=2)
[['F0', 'F1', 'B0', 'B1'], ['F0', 'B0', 'F1', 'B1']]
"""

from reshard_lab.pipelining import *  # noqa: F403
from reshard_lab.pipelining import __all__ as _pipelining
from reshard_lab.training import Paced, TrainingRun, Transformer, UNet, train

__all__ = [*_pipelining, "Paced", "TrainingRun", "Transformer", "UNet", "train"]
