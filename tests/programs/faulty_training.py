"""The pool's process with faults in training: ``python tests/programs/faulty_training.py FILE``.

FILE holds the fault as JSON, read anew at the start of every run: which ``device``, and what it
shall ``do``: ``gradient`` (one element of what it has found is off), ``astray`` (what comes over a
link is put one element further), ``slow`` (every step alone takes ``seconds`` longer), ``stop``
(its first sum over an operator group begins after ``seconds``; it stops in place of the second).
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from reshard_lab import worker
from reshard_lab.training import compute, kit, member, reference

healthy_take_part, healthy_finish = worker.take_part, compute.Computed.finish
healthy_add_up = kit.Kit.add_up
healthy_run_rank, healthy_run_layers = member.run_rank, reference.run_layers
file = Path(sys.argv.pop(1))
now = {}


def take_part(its):
    fault = json.loads(file.read_text())
    now.clear()
    now.update(fault if fault.get("device") == its.device else {})
    healthy_take_part(its)


def finish(self, data_group):
    healthy_finish(self, data_group)
    if now.get("do") == "gradient":
        held = next(iter(self.gradients.values()))
        next(iter(held.values())).view(-1)[0] += 0.01


def run_rank(*arguments, **keywords):
    out = healthy_run_rank(*arguments, **keywords)
    if out is not None and now.get("do") == "astray":
        out = out.view(-1).roll(1).view(out.shape)
    return out


def run_layers(*arguments):
    if now.get("do") == "slow":
        time.sleep(now["seconds"])
    healthy_run_layers(*arguments)


def add_up(self, tensor):
    if now.get("do") == "stop":
        seconds = now.pop("seconds", None)
        if seconds is None:
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            time.sleep(seconds)
    healthy_add_up(self, tensor)


worker.take_part, compute.Computed.finish, kit.Kit.add_up = take_part, finish, add_up
member.run_rank, reference.run_layers = run_rank, run_layers
worker.main()
