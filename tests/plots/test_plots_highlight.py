"""A unit task pointed at in pictures of layouts and of unit tasks."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reshard_lab as rl
from reshard_lab import paper, plots
from reshard_lab.plots import svg
from support.property_tasks import layouts_and_shapes
from support.svg_pages import assert_readable


def cube() -> rl.ReshardingTask:
    """Eight devices to eight, 3-D, no two unit tasks of one sender."""
    cluster = rl.Cluster(hosts=4, devices_per_host=4)
    src, dst = rl.Layout(cluster.mesh((2, 4)), "RS0S1"), rl.Layout(cluster.mesh((2, 4), 2), "S01RR")
    return rl.ReshardingTask((16, 8, 8), "float32", src, dst, cluster)


def thick(page) -> list:
    """The outlines that stand out."""
    return [r for r in page.rects if float(r.style.get("stroke-width", 1)) >= 2]


def test_box_senders_and_receivers_are_outlined_and_named():
    task = paper.figure2(1)
    figure = plots.draw_layouts(task, highlight=2)  # row 2, from device 2 to 6 and 7
    page = assert_readable(figure.svg)
    cards = [r for r in thick(page) if r.style.get("rx") == "4"]
    inside = {w for w, box in page.texts if w.startswith("device ") for c in cards if box.inside(c)}
    assert inside == {"device 2", "device 6", "device 7"}
    words = page.words()
    assert (words.count("may send"), words.count("receives")) == (1, 2)
    assert "[2:3, 0:4] outlined: device 2 may send it" in words
    assert "[2:3, 0:4] outlined: it goes to devices 6,7" in words
    assert figure.caption.endswith("Outlined: unit task 2, [2:3, 0:4].")
    assert "it goes to devices 6,7" in figure.alt
    # In both tensors the outline is the third of four rows, and the whole width.
    frames = [r for r in page.rects if r.style["fill"] == "none" and "stroke-width" not in r.style]
    tensors = [r for r in frames if "rx" not in r.style]
    boxes = [r for r in thick(page) if "rx" not in r.style]  # in the tensors and on the cards
    for tensor, row in zip(tensors, (boxes[0], boxes[2]), strict=True):
        quarter = (tensor.bottom - tensor.top) / 4
        assert row.top == pytest.approx(tensor.top + 2 * quarter, abs=2.1)
        assert row.bottom == pytest.approx(tensor.top + 3 * quarter, abs=2.1)


def test_nothing_is_outlined_without_being_asked_for():
    assert not thick(assert_readable(plots.draw_layouts(paper.figure2(1)).svg))


def test_a_receiver_that_holds_the_box_is_told_apart():
    mesh = rl.Mesh([[0, 1], [2, 3]])
    task = rl.ReshardingTask((4, 4), "int8", rl.Layout(mesh, "S01R"), rl.Layout(mesh, "RR"))
    words = assert_readable(plots.draw_layouts(task, highlight=1).svg).words()
    assert words.count("has it already") == 1 and words.count("receives") == 3


@pytest.mark.parametrize("axes", [(0, 1), (0, 2), (1, 2)])
def test_the_drawn_plane_goes_through_the_box(axes):
    """Box of rows 8:10, columns 4:8, depth 2:4: where it is not drawn it is cut at its start."""
    task = cube()
    number = next(i for i, u in enumerate(task.unit_tasks) if u.box == ((8, 10), (4, 8), (2, 4)))
    words = assert_readable(plots.draw_layouts(task, axes, number).svg).words()
    hidden = next(d for d in range(3) if d not in axes)
    assert words.count(f"drawn at dim {hidden} = {(8, 4, 2)[hidden]}") == 2
    assert words.count("may send") == 1


@pytest.mark.parametrize("number", [0, 9, 63])
def test_the_slices_of_that_plane_cover_the_tensors(number):
    page = assert_readable(plots.draw_layouts(cube(), (1, 2), number).svg)
    half = page.page.right / 2
    plain = [r for r in page.rects if "rx" not in r.style and "stroke-width" not in r.style]
    tensors = [r for r in plain if r.style["fill"] == "none"]
    assert [r.left < half for r in tensors] == [True, False]
    for tensor in tensors:
        cells = [r for r in plain if r.style["fill"] in svg.COLORS and r.inside(tensor, 0.01)]
        area = sum((r.right - r.left) * (r.bottom - r.top) for r in cells if "stroke" in r.style)
        whole = (tensor.right - tensor.left) * (tensor.bottom - tensor.top)
        assert area == pytest.approx(whole, rel=0.02)
    # Along dimension 0 only the destination is cut: what is drawn of it is the receiver's slice.
    (receiver,) = cube().unit_tasks[number].receivers
    assert [w for w, box in page.texts if box.inside(tensors[1])] == [str(receiver)]


def test_chips_of_large_meshes_are_outlined():
    cluster = rl.Cluster(hosts=4, devices_per_host=16)
    src = rl.Layout(cluster.mesh((2, 16)), "S1")
    task = rl.ReshardingTask((32,), "int8", src, rl.Layout(cluster.mesh((2, 16), 2), "S0"), cluster)
    page = assert_readable(plots.draw_layouts(task, highlight=3).svg)
    chips = [r for r in thick(page) if r.right - r.left == pytest.approx(30)]
    numbers = {w for w, box in page.texts if w.isdigit() for c in chips if box.inside(c)}
    unit = task.unit_tasks[3]
    assert numbers == {str(d) for d in (*unit.senders, *unit.receivers)}


@given(layouts_and_shapes(), st.data())
@settings(max_examples=60)
def test_no_picture_with_an_outlined_task_cuts_or_covers_text(case, data):
    layout, shape = case
    other = data.draw(st.permutations(range(layout.mesh.size)))
    dst = rl.Layout(rl.Mesh(np.array(other).reshape(layout.mesh.shape) + 8), layout.spec)
    task = rl.ReshardingTask(shape, "float32", layout, dst)
    if task.unit_tasks:
        number = data.draw(st.integers(0, len(task.unit_tasks) - 1))
        assert_readable(plots.draw_layouts(task, highlight=number).svg)
        assert_readable(plots.draw_unit_tasks(task, limit=5, highlight=number).svg)


def test_labels_keep_clear_of_the_outline():
    """Whatever unit task is outlined, no label in the tensors stands on the line."""
    task = paper.suite_task(4)
    for number in range(64):
        page = assert_readable(plots.draw_layouts(task, highlight=number).svg)
        lines = [r for r in thick(page) if r.style["stroke-width"] == "4" and "rx" not in r.style]
        assert len(lines) == 2
        for words, box in page.texts:
            for line in lines:
                assert not box.covers(line) or box.inside(line, -4), (number, words)


def test_unit_tasks_shown_include_the_one_outlined():
    task = cube()
    for number, shown, note in (
        (2, range(4), "... and 60 more"),
        (20, range(17, 21), "unit tasks 17 to 20 of 64"),
    ):
        figure = plots.draw_unit_tasks(task, limit=4, highlight=number)
        page = assert_readable(figure.svg)
        words = page.words()
        assert words[1:5] == [str(i) for i in shown]
        assert note in words
        (row,) = thick(page)
        inside = [w for w, box in page.texts if box.inside(row)]
        assert inside[0] == str(number)
        assert f"Unit task {number} (outlined)" in figure.alt
        assert len(re.findall(r"Unit task \d+", figure.alt)) == 4
