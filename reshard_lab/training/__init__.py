"""Training in pipeline stages on real processes, and resharding with a gradient."""

from reshard_lab.training.autograd import reshard
from reshard_lab.training.models import Transformer, UNet
from reshard_lab.training.resolve import Paced
from reshard_lab.training.results import TrainingRun
from reshard_lab.training.train import train

__all__ = ["Paced", "TrainingRun", "Transformer", "UNet", "reshard", "train"]
