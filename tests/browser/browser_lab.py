"""A JupyterLab of its own and a headless Chromium, both gone when their context ends.

The server reads no settings of the user's, listens on a free port of this machine only, and ends
when its standard input closes, so that it does not outlive the tests however they end.
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nbformat

from support import leftovers
from support.paths import ROOT

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
STARTS_WITHIN_S = 60
ENDS_WITHIN_S = 20
LIVES_AT_MOST_S = 1800

CONFIG = """
import os, select, signal, sys, threading, time

def end_with_the_tests():
    select.select([sys.stdin], [], [], {deadline})  # readable when the other end closes
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep({ends_within})
    os._exit(1)

threading.Thread(target=end_with_the_tests, daemon=True).start()
c = get_config()
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.port = 0
c.ServerApp.root_dir = {folder!r}
c.ServerApp.open_browser = False
c.ServerApp.allow_root = True
c.ServerApp.terminals_enabled = False
c.IdentityProvider.token = {token!r}
c.LabApp.expose_app_in_browser = True
c.LabApp.extension_manager = "readonly"
"""

SETTINGS = {
    # No question about news, and none of the requests behind it.
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # All cells are in the page at once, so a picture of the page shows them, and nothing below.
    "notebook-extension/tracker": {"windowingMode": "none", "scrollPastEnd": False},
}


@dataclass(frozen=True)
class Server:
    """A running JupyterLab: where it listens, and the folder whose notebooks it opens."""

    url: str
    token: str
    folder: Path

    def write(self, name: str, *cells: str) -> str:
        """Make a notebook of code cells; returns ``name``."""
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source) for source in cells],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        )
        nbformat.write(notebook, self.folder / name)
        return name


def copy_notebooks(folder: Path) -> None:
    """Copy the notebooks without their outputs: what is seen later was made now."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        nbformat.write(notebook, folder / path.name)


def environment(private: Path) -> dict[str, str]:
    """This process's environment, with Jupyter's and IPython's folders under ``private``."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "IPYTHON"))}
    names = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
    own = {f"JUPYTER_{name}": private / name.lower() for name in names}
    own |= {f"JUPYTERLAB_{name}_DIR": private / name.lower() for name in ("SETTINGS", "WORKSPACES")}
    own["IPYTHONDIR"] = private / "ipython"
    for path in own.values():
        path.mkdir()
    return kept | {name: str(path) for name, path in own.items()}


@contextmanager
def server(private: Path):
    """JupyterLab on a copy of the notebooks, all of it below the empty folder ``private``."""
    folder, token = private / "notebooks", secrets.token_hex(16)
    folder.mkdir()
    copy_notebooks(folder)
    own = environment(private)
    for name, values in SETTINGS.items():
        path = private / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values))
    config = private / "lab_config.py"
    config.write_text(
        CONFIG.format(
            deadline=LIVES_AT_MOST_S, ends_within=ENDS_WITHIN_S, folder=str(folder), token=token
        )
    )
    with (private / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", f"--config={config}"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=own,
            cwd=folder,
        )
    try:
        yield Server(address(private, process), token, folder)
    finally:
        end(process)


def address(private: Path, process: subprocess.Popen) -> str:
    """The URL that the server writes down once it listens."""
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        for path in (private / "runtime_dir").glob("jpserver-*.json"):
            written = path.read_text()
            if written.endswith("}"):
                return json.loads(written)["url"].rstrip("/")
        time.sleep(0.05)
    said = (private / "server.log").read_text(errors="replace")[-2000:]
    raise RuntimeError(f"JupyterLab did not start within {STARTS_WITHIN_S} s. It said:\n{said}")


def end(process: subprocess.Popen) -> None:
    """End the server, its kernels and what those started."""
    family = [process.pid, *leftovers.below(process.pid)]
    process.stdin.close()
    try:
        process.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finish(family, "JupyterLab")


def finish(family: Iterable[int], what: str) -> None:
    """See that all processes of ``family`` have ended; an error if one had to be killed."""
    if leftovers.gone(family):
        return
    left = leftovers.alive(family)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    raise RuntimeError(f"{len(left)} processes outlived {what} and were killed: {left}")


def browser_path() -> str | None:
    """Path of an installed Chromium, or None."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextmanager
def chromium(executable: str):
    """A headless Chromium that reaches this machine only."""
    from playwright.sync_api import sync_playwright

    # Its sandbox needs a user other than root.
    unboxed = ["--no-sandbox"] if os.geteuid() == 0 else []
    before = set(leftovers.below(os.getpid()))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable,
            args=["--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", *unboxed],
        )
        family = set(leftovers.below(os.getpid())) - before
        try:
            yield browser
        finally:
            browser.close()
    finish(family, "the browser")
