"""What a run may leave behind: processes, files, interfaces and network namespaces."""

import contextlib
import os
import socket
import time
from pathlib import Path

import psutil


def below(pid):
    """All processes that descend from ``pid``; none where it has ended itself."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def alive(pids):
    """Those of ``pids`` that still run; a zombie counts if it is ours to reap."""
    running = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE or process.ppid() == os.getpid():
                running.append(pid)
    return running


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
