"""The pool's process with faults: ``python tests/programs/faulty_worker.py FILE``.

FILE holds the fault as JSON, read anew in every repeat: which ``device``, in which ``repeat`` of
the run (from 1), and what it shall ``do``: ``kill`` (the worker kills itself), ``exit``, ``hang``,
``stop`` (by SIGSTOP), ``raise``, ``wrong`` (a bit of ``byte`` of what arrived is flipped), ``skip``
(it does not take part), ``astray`` (what arrives is put elsewhere), ``start`` (it fails before it
is ready).
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

from reshard_lab import worker
from reshard_lab.runtime import trial
from reshard_lab.runtime.arrays import bytes_of

healthy_init, healthy_observe = worker.Worker.__init__, worker.Worker.observe
healthy_begin, healthy_repeat = trial.Trial.__init__, trial.Trial.repeat
healthy_run_rank = trial.run_rank
file = Path(sys.argv.pop(1))
now = {"device": None, "repeat": 0, "fault": {}}


def read_fault():
    now["fault"] = json.loads(file.read_text())


def strikes(*kinds):
    fault = now["fault"]
    return (
        fault.get("do") in kinds
        and fault["device"] == now["device"]
        and fault["repeat"] == now["repeat"]
    )


def init(self, config, forks, device, reports):
    now["device"] = device
    read_fault()
    if strikes("start"):
        raise RuntimeError("no start today")
    healthy_init(self, config, forks, device, reports)


def begin(self, *arguments):
    now["repeat"] = 0
    healthy_begin(self, *arguments)


def repeat(self):
    now["repeat"] += 1
    read_fault()
    return healthy_repeat(self)


def observe(self, lane, step, done):
    healthy_observe(self, lane, step, done)
    if done == 1 and strikes("kill", "exit", "hang", "stop", "raise"):
        print("the fault strikes", file=sys.stderr, flush=True)
        if strikes("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        elif strikes("exit"):
            os._exit(7)
        elif strikes("hang"):
            ctypes.PyDLL(None).sleep(1000)  # with the interpreter's lock held
        elif strikes("stop"):
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            raise KeyError("a mishap")


def run_rank(plan, pieces, **keywords):
    if strikes("skip"):
        return
    if strikes("astray"):
        keywords["out"] = [None if out is None else out.clone() for out in keywords["out"]]
    healthy_run_rank(plan, pieces, **keywords)
    if strikes("wrong"):
        bytes_of(keywords["out"][0])[now["fault"]["byte"]] ^= 1


worker.Worker.__init__, worker.Worker.observe = init, observe
trial.Trial.__init__, trial.Trial.repeat, trial.run_rank = begin, repeat, run_rank
worker.main()
