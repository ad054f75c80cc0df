"""Records show themselves: a figure in a notebook, one line of text elsewhere."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pytest

import reshard_lab as rl
from reshard_lab import paper, planning, plots
from support.measured import measurement, training
from support.svg_pages import assert_readable, read


def records() -> dict[str, object]:
    task = paper.suite_task(9)
    plan = rl.plan(task, scheduler="load_balance")
    ops = rl.pipeline.schedule("1f1b", stages=2, microbatches=3)
    return {
        "mesh": task.src.mesh,
        "layout": task.src,
        "task": task,
        "plan": plan,
        "timeline": rl.simulate(plan),
        "gantt": plan.gantt(),
        "traffic": planning.nics.traffic(plan),
        "pipeline": rl.pipeline.simulate(ops, 1.0, 2.0, 0.5),
        "measurement": measurement(),
        "training": training(),
    }


RECORDS = records()


class Parts(HTMLParser):
    """The image and the caption of a figure."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.image: dict = {}
        self.caption = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)
        if tag == "img":
            self.image = dict(attrs)

    def handle_data(self, data: str) -> None:
        self.caption += data

    @property
    def svg(self) -> str:
        return unquote(self.image["src"].removeprefix("data:image/svg+xml,"))


@pytest.mark.parametrize("name", RECORDS)
def test_a_notebook_shows_a_figure_with_alt_text_and_caption(name):
    shown = Parts(RECORDS[name]._repr_html_())
    assert shown.tags[:3] == ["figure", "img", "figcaption"]
    beside = ["details", "summary", "table"] if name == "measurement" else []
    assert shown.tags[3:6] == beside
    assert len(shown.image["alt"]) > 20 and len(shown.caption) > 20
    assert_readable(shown.svg)


@pytest.mark.parametrize("name", RECORDS)
def test_elsewhere_it_is_one_line_the_same_every_time(name):
    text = repr(RECORDS[name])
    assert text == repr(records()[name])
    assert "\n" not in text and " at 0x" not in text
    assert text.startswith(type(RECORDS[name]).__name__ + "(")


def test_a_line_of_text_says_how_much_there_is():
    """Counted by hand, as below; four halves of 1 GiB cross, to hosts 2 and 3 from 0 and 1."""
    assert repr(RECORDS["gantt"]) == "Gantt(4 deliveries over 4 NICs in 1.295 s, bound 859 ms)"
    words = "2 GiB over the network between 4 hosts, predicted 1.295 s"
    assert repr(RECORDS["traffic"]) == f"Traffic({words})"


@pytest.mark.parametrize("axes", [5, 6, 8])
def test_names_of_rows_are_not_cut_however_many_axes_a_mesh_has(axes):
    mesh = rl.Mesh(np.arange(2**axes).reshape((2,) * axes))
    for record in (mesh, rl.Layout(mesh, "S0")):
        page = assert_readable(plots.draw_record(record).svg)
        assert "row " + ",".join("1" * (axes - 1)) in page.words()


def test_a_large_mesh_prints_how_large_it_is():
    listed = rl.Mesh(range(256))
    assert repr(listed) == f"Mesh({list(range(256))})"
    large = rl.Mesh(np.arange(7, 16391).reshape(128, 128))
    assert repr(large) == "Mesh(128x128: 16384 devices, 7 to 16390)"
    assert repr(rl.Layout(large, "S0R")) == f"Layout({large!r}, 'S0R')"


def test_figures_say_what_the_record_says():
    """Numbers counted by hand: suite case 9 under load balance takes three slots of a half."""
    shown = {name: Parts(record._repr_html_()) for name, record in RECORDS.items()}
    assert "4 unit tasks" in shown["task"].caption
    assert shown["mesh"].caption == "A mesh of 2×4, 8 devices."
    assert "row 1: devices 4, 5, 6, 7" in shown["mesh"].image["alt"]
    assert "RS0R on a mesh of 2×4, on a tensor of 4×2×4" in shown["layout"].caption
    assert "broadcast, load_balance. Predicted 1.295 s" in shown["plan"].caption
    assert "Simulated 1.295 s" in shown["timeline"].caption
    assert "510 ms" in shown["measurement"].image["alt"]
    assert "gloo, loopback, 2 cores" in shown["measurement"].image["alt"]
    assert "gloo, loopback, 2 cores" in " ".join(read(shown["measurement"].svg).words())
    label = "gloo, loopback, 2 cores, compute paced (sleeps), verified"
    assert shown["training"].caption.startswith(f"{label}. 15 s, the median of 3 steps; measured: ")
    assert label in shown["training"].image["alt"]
    assert label in read(shown["training"].svg).words()  # a file has no caption


def test_what_no_picture_can_show_stays_text():
    mesh = rl.Mesh(range(257))
    assert mesh._repr_html_() is None
    assert rl.Layout(mesh, "S0")._repr_html_() is None
    assert rl.Mesh(range(256))._repr_html_() is not None


def test_mistakes_of_the_program_are_not_taken_for_large_records(monkeypatch):
    def broken(_: object) -> None:
        raise KeyError("a mistake of the program")

    from reshard_lab.plots import records as shown

    monkeypatch.setitem(shown._PICTURES, rl.Mesh, broken)
    with pytest.raises(KeyError):
        rl.Mesh([0])._repr_html_()


@pytest.mark.parametrize("devices", [[5], range(20), [[3, 1], [2, 0]], [[[0, 1]], [[2, 3]]]])
def test_a_mesh_shows_every_device_in_its_row(devices):
    page = assert_readable(plots.draw_mesh(rl.Mesh(devices)).svg)
    words = [w for w in page.words() if w.isdigit()]
    assert words == [str(d) for d in rl.Mesh(devices).devices]
    rows = [w for w in page.words() if w.startswith("row ")]
    assert len(rows) == (0 if rl.Mesh(devices).ndim == 1 else len(rl.Mesh(devices).devices) // 2)


def test_every_nic_of_a_timeline_has_a_row_with_its_idle_share():
    """Two NICs a host: one task over NIC 1 of host 0, which is idle none of the time."""
    cluster = rl.Cluster(hosts=2, devices_per_host=2, nics_per_host=2, nic_latency=0)
    task = rl.ReshardingTask(
        (1000,), "int8", rl.Layout(rl.Mesh([1]), "R"), rl.Layout(rl.Mesh([2]), "R"), cluster
    )
    page = assert_readable(plots.draw_timeline(rl.simulate(rl.plan(task))).svg)
    assert {"NIC 1 of host 0 sends", "NIC 0 of host 1 receives"} <= set(page.words())
    assert page.words().count("0% idle") == 2


def test_bars_of_a_timeline_lie_where_the_simulator_put_them():
    timeline = rl.simulate(rl.plan(paper.suite_task(9), scheduler="naive"))
    page = assert_readable(plots.draw_timeline(timeline).svg)
    bars = [r for r in page.rects if r.style.get("stroke")]
    left = min(r.left for r in bars)
    third = 620 / 3
    slots: dict[float, list] = {}
    for r in bars:
        slots.setdefault(r.top, []).append(round((r.left - left) / third, 1))
        assert r.right - r.left == pytest.approx(third, rel=0.02)
    assert [slots[top] for top in sorted(slots)] == [[0, 1], [1, 2], [0, 1], [1, 2]]


def test_pictures_of_records_load_nothing_heavy():
    code = (
        "import sys, reshard_lab as rl\n"
        "assert '<figure' in rl.Mesh([0])._repr_html_()\n"
        "print(sorted({'pandas', 'matplotlib', 'ipywidgets', 'scipy', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_numbers_of_bars_keep_clear_of_the_bound():
    """Case 7: a bar's middle lies on the bound; its number stands beside the line."""
    drawn = plots.draw_timeline(rl.simulate(rl.plan(paper.suite_task(7), chunks=8))).svg
    page = assert_readable(drawn)
    bound = float(re.search(r'<line x1="([\d.]+)"[^>]*stroke-dasharray', drawn)[1])
    top = min(r.top for r in page.rects)
    numbers = [box for words, box in page.texts if words.isdigit() and box.top > top]
    assert numbers and all(box.right < bound or bound < box.left for box in numbers)
