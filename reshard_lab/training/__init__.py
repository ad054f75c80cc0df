"""Training in pipeline stages on real processes, and resharding with a gradient."""

from __future__ import annotations

from reshard_lab.training.autograd import reshard
from reshard_lab.training.record import TrainingRun
from reshard_lab.training.run import train
from reshard_lab.training.settle import Paced
from reshard_lab.training.transformer import Transformer
from reshard_lab.training.unet import UNet

__all__ = ["Paced", "TrainingRun", "Transformer", "UNet", "reshard", "train"]
