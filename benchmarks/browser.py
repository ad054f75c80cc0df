"""Explorers in a browser: from the press of a key to the changed picture, and to the first one.

JupyterLab runs as the tests start it (tests/browser), with the picture drawn by a kernel and shown
in a headless Chromium: everything between a reader's finger and the document is in the times.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests" / p) for p in ("", "browser")]

import browser_lab  # noqa: E402
import browser_page  # noqa: E402
import browser_view  # noqa: E402

MOVES, WARM_UPS, STARTS = 20, 3, 5
MOVE_MOST_MS, FIRST_MOST_MS = 150, 3000
RUNS_WITHIN_S = 120

IMPORTS = "import reshard_lab as rl\nfrom reshard_lab import plots, widgets\n"
TASK = """
cluster = rl.Cluster(hosts=4, devices_per_host=4)
src = rl.Layout(cluster.mesh((2, 4)), "S01R")
dst = rl.Layout(cluster.mesh((2, 4), first_host=2), "RS01")
task = rl.ReshardingTask((64, 64), "float32", src, dst, cluster)
assert len(task.unit_tasks) == 64
"""
SLIDERS = {
    "layout explorer": ("widgets.layout_explorer(task)", "unit task"),
    "plan explorer, scrubber": ("widgets.plan_explorer(task)", "step"),
    "plan explorer, chunks": ("widgets.plan_explorer(task)", "chunks"),
}
FIRST = {
    "layout explorer": "widgets.layout_explorer(task)",
    "plan explorer": "widgets.plan_explorer(task)",
    "picture of two layouts": "plots.draw_layouts(task)",
}
# Milliseconds from the command to run the cells to the first frame that shows a picture.
SHOWN = """() => new Promise(done => {
    const picture = '.jp-OutputArea-output figure > svg, .jp-OutputArea-output figure > img';
    const start = performance.now();
    window.jupyterapp.commands.execute("notebook:run-all-cells");
    const look = () => {
        const shown = document.querySelector(picture);
        const there = shown && shown.getBoundingClientRect().height && shown.complete !== false;
        there ? done(performance.now() - start) : requestAnimationFrame(look);
    };
    look();
})"""


def report(name: str, times_ms: list[float], most_ms: float) -> bool:
    """Print and return whether the median is below the mark."""
    held = statistics.median(times_ms) < most_ms
    low, middle, high = min(times_ms), statistics.median(times_ms), max(times_ms)
    print(f"  {'holds ' if held else 'MISSED'} {name}: {middle:.0f} ms ({low:.0f} to {high:.0f})")
    return held


def moves_ms(page, server, code: str, slider: str) -> list[float]:
    """Times of moves of ``slider``, there and back so that it never meets its end."""
    name = server.write("moves.ipynb", IMPORTS + TASK + code)
    browser_page.open_notebook(page, server, name).run(RUNS_WITHIN_S)
    explorer = browser_view.explorer(page)
    at, most = (
        float(explorer.control(slider).get_attribute(f"aria-value{which}"))
        for which in ("now", "max")
    )
    keys = ("ArrowRight", "ArrowLeft") if at < most else ("ArrowLeft", "ArrowRight")
    explorer.timed()
    for i in range(WARM_UPS + MOVES):
        explorer.press(slider, keys[i % 2])
    return explorer.times_ms()[WARM_UPS:]


def first_ms(page, server, code: str) -> list[float]:
    """Times to the first picture of a notebook, each in a kernel that has imported nothing."""
    name = server.write("first.ipynb", IMPORTS + TASK + code)
    times = []
    for _ in range(STARTS):
        notebook = browser_page.open_notebook(page, server, name)
        notebook.restart()
        times.append(page.evaluate(SHOWN))
    return times


def main() -> int:
    """Print the figures; returns 1 if a mark is missed."""
    executable = browser_lab.browser_path()
    if executable is None:
        print("  skipped: no Chromium is installed")
        return 0
    held = []
    with (
        tempfile.TemporaryDirectory() as private,
        browser_lab.chromium(executable) as browser,
        browser_lab.server(Path(private)) as server,
    ):
        size = {"width": browser_page.WIDTH, "height": browser_page.HEIGHT}
        page = browser.new_context(viewport=size).new_page()
        print(f"key to changed picture, 16 devices, 64 unit tasks, median of {MOVES} moves")
        for name, (code, slider) in SLIDERS.items():
            held.append(report(name, moves_ms(page, server, code, slider), MOVE_MOST_MS))
        print(f"start of a cell to its first picture, imports included, median of {STARTS} kernels")
        for name, code in FIRST.items():
            held.append(report(name, first_ms(page, server, code), FIRST_MOST_MS))
    return 0 if all(held) else 1


if __name__ == "__main__":
    raise SystemExit(main())
