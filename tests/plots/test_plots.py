"""Pictures: what they show, that no text is cut or covered, and that they are always the same."""

import subprocess
import sys
import xml.dom.minidom
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reshard_lab as rl
from reshard_lab import paper, pipeline, plots
from reshard_lab.plots import svg
from reshard_lab.plots.layouts import mesh_text, side_by_side
from reshard_lab.plots.unit_tasks import unit_tasks_text
from support.property_tasks import layouts_and_shapes
from support.svg_pages import assert_readable, contrast, read, width_of


@given(layouts_and_shapes())
@settings(max_examples=200)
def test_no_picture_of_a_layout_cuts_or_covers_text(case):
    layout, shape = case
    assert_readable(plots.draw_layout(layout, shape).svg)


@given(layouts_and_shapes(), st.data())
@settings(max_examples=100)
def test_no_picture_of_unit_tasks_cuts_or_covers_text(case, data):
    layout, shape = case
    other = data.draw(st.permutations(range(layout.mesh.size)))
    dst = rl.Layout(rl.Mesh(np.array(other).reshape(layout.mesh.shape) + 8), layout.spec)
    task = rl.ReshardingTask(shape, "float32", layout, dst)
    for whole_slices in (False, True):
        assert_readable(plots.draw_unit_tasks(task, whole_slices, limit=5).svg)
    assert_readable(plots.draw_layouts(task).svg)


def test_figure_2_shows_a_tensor_on_each_device():
    page = assert_readable(plots.draw_layouts(paper.figure2(1)).svg)
    words = page.words()
    assert [f"device {d}" for d in range(8)] == [w for w in words if w.startswith("device ")]
    # One panel beside the other: every element once at the source and twice at the destination.
    half = page.page.right / 2
    cards = min(box.top for w, box in page.texts if w == "device 0")
    numbers = [
        (int(w), box.left < half) for w, box in page.texts if w.isdigit() and box.top > cards
    ]
    assert sorted(n for n, left in numbers if left) == list(range(16))
    assert sorted(n for n, left in numbers if not left) == [n for n in range(16) for _ in "ab"]
    for box in ("[0:1, 0:4]", "[3:4, 0:4]"):
        assert words.count(box) == 1
    for box in ("[0:2, 0:4]", "[2:4, 0:4]"):
        assert words.count(box) == 2
    assert ("4,5" in words, "6,7" in words) == (True, True)
    assert [w for w in words if w.startswith("host")] == ["host 0", "host 1", "host 2", "host 3"]


def test_replicas_and_empty_pieces_are_marked_in_words_and_lines():
    layout = rl.Layout(rl.Mesh([[0, 1], [2, 3], [4, 5]]), "S0")
    page = assert_readable(plots.draw_layout(layout, (4,)).svg)
    notes = [w for w in page.words() if w.startswith(("also", "same", "empty"))]
    assert notes == ["also on 1", "same as 0", "also on 3", "same as 2", "empty", "empty"]
    cards = [r for r in page.rects if r.style.get("rx") == "4"]
    assert ["stroke-dasharray" in r.style for r in cards] == [
        False,
        True,
        False,
        True,
        False,
        False,
    ]


@given(layouts_and_shapes())
@settings(max_examples=200)
def test_the_slices_of_the_drawn_plane_cover_it_once(case):
    """Areas add up to the plane's, and the colours are those of the slices in mesh order."""
    layout, shape = case
    if not np.prod(shape, dtype=int):
        return
    page = read(plots.draw_layout(layout, shape).svg)
    tensor = next(r for r in page.rects if r.style["fill"] == "none" and "rx" not in r.style)
    cells = [
        r
        for r in page.rects
        if r.inside(tensor, 0.01) and r.style["fill"] in svg.COLORS and "stroke" in r.style
    ]
    area = sum((r.right - r.left) * (r.bottom - r.top) for r in cells)
    whole = (tensor.right - tensor.left) * (tensor.bottom - tensor.top)
    assert area == pytest.approx(whole, rel=0.02)
    for i, one in enumerate(cells):
        assert not any(one.covers(other) for other in cells[i + 1 :])


def test_many_slices_stay_apart():
    looks = {(svg.fill(i), svg.hatch(i)) for i in range(42)}
    assert len(looks) == 42


@pytest.mark.parametrize("index", range(42))
def test_text_stands_out_on_every_slice(index):
    assert contrast(svg.fill(index), svg.ink_on(svg.fill(index))) >= 4.5
    assert svg.ink_on(svg.fill(index)) == ("#ffffff" if svg.fill(index) == "#0072B2" else "#000000")


def test_text_width_is_an_upper_bound():
    for words in (
        "device 12",
        "[1024:2048, 0:170]",
        "S01R on a mesh of 2×4",
        "0-7 (8 devices)",
        "WMwm",
    ):
        assert svg.text_width(words, 11) >= width_of(words, 11, bold=False) * (
            0.97 if "W" not in words else 0.7
        )


def test_planes_of_larger_tensors_are_chosen_and_named():
    layout = rl.Layout(rl.Mesh(np.arange(8).reshape(2, 4)), "RS0S1")
    words = read(plots.draw_layout(layout, (4, 8, 8)).svg).words()
    assert ("dim 1" in words, "dim 2" in words, "drawn at dim 0 = 0" in words) == (True,) * 3
    words = read(plots.draw_layout(layout, (4, 8, 8), axes=(0, 2)).svg).words()
    assert ("dim 0" in words, "dim 2" in words, "drawn at dim 1 = 0" in words) == (True,) * 3


def test_a_mesh_of_256_devices_can_be_read():
    assert_readable(plots.draw_layout(rl.Layout(rl.Mesh(range(256)), "S0"), (512,)).svg)


def test_unit_tasks_show_box_senders_and_receivers():
    words = assert_readable(plots.draw_unit_tasks(paper.figure2(1)).svg).words()
    assert words == [
        *["unit task", "0", "1", "2", "3"],
        *["box", "[0:1, 0:4]", "[1:2, 0:4]", "[2:3, 0:4]", "[3:4, 0:4]"],
        *["size", "16 B", "16 B", "16 B", "16 B"],
        *["from", "0", "1", "2", "3"],
        *["to", "4", "5", "4", "5", "6", "7", "6", "7"],
    ]


def test_unit_tasks_say_what_is_needed_of_whole_slices_only():
    turned = paper.on_figure2("S0R", "RS0")
    cut = read(plots.draw_unit_tasks(turned).svg).words()
    whole = read(plots.draw_unit_tasks(turned, whole_slices=True).svg).words()
    assert "needed there" not in cut
    assert whole.count("16 B each") == 2


def test_unit_tasks_mark_what_stays_local_and_what_is_left_out():
    mesh = rl.Mesh([[0, 1], [2, 3]])
    task = rl.ReshardingTask((4, 4), "int8", rl.Layout(mesh, "S01R"), rl.Layout(mesh, "RR"))
    page = assert_readable(plots.draw_unit_tasks(task, limit=2).svg)
    assert page.words()[-2:] == [
        "... and 2 more",
        "dashed, or local: holds the box already, so nothing is sent",
    ]
    assert sum(r.style.get("stroke-dasharray") == "3 2" for r in page.rects) == 2


class Images(HTMLParser):
    """The images of a piece of HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag == "img":
            self.found.append(dict(attrs))


def test_a_figure_carries_its_picture_caption_and_alt_text():
    figure = plots.Figure("<svg>a &amp; b</svg>", 'one < "two"', "what <it> shows & says")
    html = figure._repr_html_()
    images = Images()
    images.feed(html)
    (image,) = images.found
    assert image["alt"] == "what <it> shows & says"
    assert unquote(image["src"].removeprefix("data:image/svg+xml,")) == figure.svg
    assert "<figcaption>one &lt; &quot;two&quot;</figcaption>" in html
    assert repr(figure) == """Figure('one < "two"')"""


def test_alt_text_says_who_holds_what(tmp_path):
    figure = plots.draw_layouts(paper.figure2(1))
    for words in ("device 0 holds [0:1, 0:4]", "devices 6,7 hold [2:4, 0:4]"):
        assert words in figure.alt
    uneven = plots.draw_layout(rl.Layout(rl.Mesh([0, 1, 2, 3, 4]), "S0"), (6,))
    assert "device 2 holds [4:6]; devices 3,4 hold nothing, [6:6]." in uneven.alt
    assert figure.save(tmp_path / "a.svg").read_text(encoding="utf-8") == figure.svg
    with pytest.raises(rl.ReshardError, match="cannot write picture"):
        figure.save(tmp_path / "none" / "a.svg")


SAME = """
import hashlib
from reshard_lab import paper, plots
from reshard_lab.plots.bar_chart import ChartBar, ChartLabels, bar_chart_svg
from reshard_lab.plots.records import png
task = paper.on_figure2("S01R", "RS0")
made = [plots.draw_layouts(task), plots.draw_unit_tasks(task)]
bars = [ChartBar("", "1", "a", 3.0, 2.5, 3.5, 3.0), ChartBar("", "2", "b", 2.0, 1.5, 2.5, 2.0)]
made.append(plots.Figure(bar_chart_svg(bars, ChartLabels(*"abcd"), "e"), "f", "e"))
text = "".join(m._repr_html_() + repr(m) for m in made)
print(hashlib.sha256(text.encode() + b"".join(map(png, made))).hexdigest())
"""


def test_pictures_are_the_same_in_every_process():
    seen = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", SAME],
            env={"PYTHONHASHSEED": seed, "HOME": "/nonexistent", "MPLCONFIGDIR": ""},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        seen.add(done.stdout)
    assert len(seen) == 1


def test_meshes_as_text():
    layout = rl.Layout(rl.Mesh([[0, 1], [2, 3]]), "S0R")
    shown = plots.layout_panel("S0R", layout, (3, 2))
    assert mesh_text(shown) == (
        "S0R\n"
        "  +---------------+---------------+\n"
        "  | 0  [0:2, 0:2] | 1  [0:2, 0:2] |\n"
        "  +---------------+---------------+\n"
        "  | 2  [2:3, 0:2] | 3  [2:3, 0:2] |\n"
        "  +---------------+---------------+"
    )


def test_meshes_too_wide_for_a_terminal_are_listed_by_slice():
    layout = rl.Layout(rl.Mesh(range(64)), "S0")
    text = mesh_text(plots.layout_panel("S0 on 64", layout, (96,)))
    lines = text.splitlines()
    assert lines[1] == "  [0:2]    devices 0"
    assert lines[48] == "  [94:96]  devices 47"
    assert lines[49] == "  empty    devices 48-63"
    assert max(map(len, lines)) <= 100


def test_blocks_of_text_stand_side_by_side_if_they_fit():
    assert side_by_side("a\nbb", "c\nd\ne") == "a       c\nbb      d\n        e"
    assert side_by_side("a" * 60, "b" * 60) == "a" * 60 + "\n\n" + "b" * 60


def test_one_unit_task_is_singular():
    mesh = rl.Mesh([0])
    task = rl.ReshardingTask((4,), "int8", rl.Layout(mesh, "R"), rl.Layout(rl.Mesh([1]), "R"))
    assert unit_tasks_text(task).startswith("1 unit task, one an intersection")


def test_names_with_characters_that_xml_lacks_are_still_drawn():
    name = "a\x00b\x1b[1m\ud800"
    plan = rl.plan(paper.figure2(1))
    timeline = pipeline.simulate(pipeline.schedule("1f1b", 2, 2), 1, 2)
    for drawn in (
        plots.gantts({name: plan.gantt()}, caption=name),
        plots.draw_pipeline({name: timeline}, name),
        plots.draw_memory({name: timeline, "b": timeline}),
        plots.draw_traffic({name: plan}),
    ):
        xml.dom.minidom.parseString(drawn.svg.encode())
        assert "a�b�[1m�" in drawn.svg
        assert drawn._repr_html_().isprintable()


def test_a_scalar_sent_whole_is_needed_whole():
    """Its box is empty, and no less a box: all of its 4 bytes are needed."""
    src, dst = (rl.Layout(rl.Mesh([device]), "") for device in (0, 1))
    task = rl.ReshardingTask((), "float32", src, dst, rl.Cluster(2, 1))
    assert "needed" not in unit_tasks_text(task, whole_slices=True)
