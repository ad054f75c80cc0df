"""What a run may leave behind: processes, files, interfaces and network namespaces."""

import os
import socket
import time
from pathlib import Path


def below(pid):
    """All processes that descend from ``pid``."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *below(int(child))]
    return found


def alive(pids):
    """Those of ``pids`` that still run; a zombie counts if it is ours to reap."""
    found = []
    for pid in pids:
        try:
            state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z" or int(parent) == os.getpid():
            found.append(pid)
    return found


def gone(pids, within_s=5.0):
    """Whether all processes have ended, soon."""
    end = time.monotonic() + within_s
    while alive(pids) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(pids)


def processes(pool):
    """All processes of a pool that has run."""
    return [pool._process.pid, *below(pool._process.pid)]


def workers(pool):
    """``{device: process id}`` as this process numbers them, whatever namespace they are in."""
    by_inner = {}
    for pid in below(pool._process.pid):
        status = Path(f"/proc/{pid}/status").read_text()
        numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
        by_inner[int(numbers[-1])] = pid
    return {device: by_inner[inner] for device, inner in pool.pids.items()}


def traces(temporary):
    """What is there to be left: temporary files, interfaces, named network namespaces."""
    names = Path("/run/netns")
    return {
        "files": sorted(p.name for p in Path(temporary).iterdir()),
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "namespaces": sorted(p.name for p in names.iterdir()) if names.is_dir() else [],
    }
