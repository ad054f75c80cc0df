"""A notebook open in JupyterLab: run it, read what came out, take a picture of it."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

WIDTH, HEIGHT = 1280, 900
"""Pixels: the window of a small laptop."""
OPENS_WITHIN_MS = 60_000

FIND = """
const app = window.jupyterapp;
const panel = [...app.shell.widgets("main")].find(w => w.context?.path === name);
"""
OPENED = f"""async name => {{
    await window.jupyterapp.restored;
    {FIND}
    if (!panel) throw new Error(name + " is not among the open documents");
    await Promise.all([panel.context.ready, panel.revealed, panel.sessionContext.ready]);
    app.shell.collapseLeft();
    app.shell.collapseRight();
}}"""
IDLE = f"""name => {{
    {FIND}
    const kernel = panel.sessionContext.session?.kernel;
    return kernel?.connectionStatus === "connected" && kernel.status === "idle";
}}"""
RESTART = f"""async name => {{
    {FIND}
    await panel.sessionContext.restartKernel();
}}"""
# Whatever the command answers is kept: waiting for it here would wait as long as the notebook runs.
RUN_ALL = """() => {
    window.ran = null;
    window.jupyterapp.commands.execute("notebook:run-all-cells")
        .then(() => { window.ran = "done"; }, error => { window.ran = String(error); });
}"""
CELLS = f"""name => {{
    {FIND}
    return panel.content.widgets.filter(cell => cell.model.type === "code").map(cell => ({{
        source: cell.model.sharedModel.getSource(),
        count: cell.model.executionCount,
        outputs: cell.model.outputs.toJSON(),
        shown: cell.outputArea.node.innerText,
    }}));
}}"""
# Room for the whole notebook: what its cells take, and the bars around them.
TALL = f"""name => {{
    {FIND}
    const view = panel.content.node.querySelector(".jp-WindowedPanel-outer");
    return Math.ceil(view.scrollHeight + window.innerHeight - view.clientHeight);
}}"""
AT_TOP = f"""async name => {{
    {FIND}
    const frame = () => new Promise(requestAnimationFrame);
    await frame();
    panel.content.node.querySelector(".jp-WindowedPanel-outer").scrollTop = 0;
    await frame();
    await frame();
}}"""


@dataclass
class Notebook:
    """A notebook in a page of the browser."""

    page: object
    name: str
    complaints: list[str] = field(default_factory=list)
    """Errors that scripts of the page raised."""

    def run(self, within_s: float) -> None:
        """Run all cells; an error after ``within_s`` seconds."""
        self.page.evaluate(RUN_ALL)
        self.page.wait_for_function("() => window.ran", timeout=1000 * within_s)
        assert self.page.evaluate("window.ran") == "done"
        self.page.wait_for_function(IDLE, arg=self.name, timeout=OPENS_WITHIN_MS)

    def restart(self) -> None:
        """Start the kernel anew, without outputs left from before."""
        self.page.evaluate("window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
        self.page.evaluate(RESTART, self.name)
        self.page.wait_for_function(IDLE, arg=self.name, timeout=OPENS_WITHIN_MS)

    def cells(self) -> list[dict]:
        """Source, execution count, outputs and text shown of every code cell."""
        return self.page.evaluate(CELLS, self.name)

    def failures(self) -> list[str]:
        """What went wrong in a notebook that was run, one text a cell that did."""
        found = list(self.complaints)
        for cell in self.cells():
            where = cell["source"].splitlines()[0] if cell["source"] else "an empty cell"
            if cell["source"].strip() and cell["count"] is None:
                found.append(f"{where}: did not run")
            for output in cell["outputs"]:
                if output["output_type"] == "error":
                    found.append(f"{where}: {output['ename']}: {output['evalue']}")
                elif output.get("name") == "stderr":
                    found.append(f"{where}: said on stderr {''.join(output['text'])!r}")
            if "Error displaying widget" in cell["shown"]:
                found.append(f"{where}: {cell['shown']}")
        return found

    def picture(self, path: Path) -> Path:
        """Save a picture of the whole notebook."""
        self.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        tall = self.page.evaluate(TALL, self.name)
        self.page.set_viewport_size({"width": WIDTH, "height": tall})
        self.page.evaluate(AT_TOP, self.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.locator(".jp-NotebookPanel").screenshot(path=path)
        self.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        return path


@contextmanager
def wide(page, width: int):
    """A window of ``width`` pixels; the usual one comes back."""
    try:
        page.set_viewport_size({"width": width, "height": HEIGHT})
        yield
    finally:
        page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


@contextmanager
def dark(page):
    """JupyterLab's dark theme; the light one comes back."""
    try:
        _theme(page, "JupyterLab Dark")
        yield
    finally:
        _theme(page, "JupyterLab Light")


def _theme(page, name: str) -> None:
    page.evaluate(
        "theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", name
    )
    there = f'body[data-jp-theme-name="{name}"]'
    page.wait_for_selector(there, state="attached", timeout=OPENS_WITHIN_MS)
    page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=OPENS_WITHIN_MS)


def open_notebook(page, server, name: str) -> Notebook:
    """Open ``name`` of the server's folder and wait until its kernel can run cells."""
    notebook = Notebook(page, name)
    page.on("pageerror", lambda error: notebook.complaints.append(f"script error: {error}"))
    page.goto(f"{server.url}/lab/tree/{name}?reset&token={server.token}")
    page.wait_for_function("() => window.jupyterapp", timeout=OPENS_WITHIN_MS)
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=OPENS_WITHIN_MS)
    page.evaluate(OPENED, name)
    page.wait_for_function(IDLE, arg=name, timeout=OPENS_WITHIN_MS)
    return notebook
