"""The pool's process with faults in training: ``python tests/programs/faulty_training.py FILE``.

FILE holds the fault as JSON, read anew at the start of every run: which ``device``, and what it
shall ``do``: ``gradient`` (one element of what it has found is off), ``astray`` (what comes over a
link is put one element further), ``slow`` (every step alone takes ``seconds`` longer), ``stop``
(its first sum over a tensor-parallel group begins after ``seconds``; it stops in place of the
second).
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from reshard_lab import worker
from reshard_lab.training import collectives, compute, executor

healthy_take_part, healthy_finish = worker.take_part, compute.TorchCompute.finish
healthy_all_reduce = collectives.TensorParallel.all_reduce
healthy_run_rank, healthy_train_uncut = executor.run_rank, executor.train_uncut
file = Path(sys.argv.pop(1))
now = {}


def take_part(device, *arguments):
    fault = json.loads(file.read_text())
    now.clear()
    now.update(fault if fault.get("device") == device else {})
    healthy_take_part(device, *arguments)


def finish(self, *arguments):
    healthy_finish(self, *arguments)
    if now.get("do") == "gradient":
        next(iter(self.gradients.values())).view(-1)[0] += 0.01


def run_rank(*arguments, **keywords):
    out = healthy_run_rank(*arguments, **keywords)
    if out is not None and now.get("do") == "astray":
        out = out.view(-1).roll(1).view(out.shape)
    return out


def train_uncut(config, alive):
    def slow(step):
        alive(step)
        if now.get("do") == "slow":
            time.sleep(now["seconds"])

    return healthy_train_uncut(config, slow)


def all_reduce(self, tensor):
    if now.get("do") == "stop":
        seconds = now.pop("seconds", None)
        if seconds is None:
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            time.sleep(seconds)
    healthy_all_reduce(self, tensor)


worker.take_part, compute.TorchCompute.finish = take_part, finish
collectives.TensorParallel.all_reduce = all_reduce
executor.run_rank, executor.train_uncut = run_rank, train_uncut
worker.main()
