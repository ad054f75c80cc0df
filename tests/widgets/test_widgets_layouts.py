"""The layout explorer: controls against what the library says of the same layouts."""

import re

import pytest

import reshard_lab as rl
from reshard_lab import paper, plots, widgets
from reshard_lab.units import ITEMSIZE
from reshard_lab.widgets.layouts import task_controls, task_of
from support.svg_pages import assert_readable


def words(explorer: widgets.Explorer) -> list[str]:
    return assert_readable(explorer.figure.svg).words()


def values_of(groups: dict) -> dict[str, object]:
    return {name: c.value for group in groups.values() for name, c in group.items()}


def sixteen() -> rl.ReshardingTask:
    """16 devices, 64 unit tasks, 3-D."""
    return paper.suite_task(4)


def test_it_starts_with_figure_2():
    explorer = widgets.layout_explorer()
    assert explorer.figure.svg == plots.draw_layouts(paper.figure2(1), highlight=0).svg
    assert "Unit task 0: 16 B of device 0 to devices 4,5." in explorer.notes.value
    for number in ("64 B", "<b>unit tasks</b>&nbsp;4", "lower bound</b>&nbsp;25.6 ns"):
        assert number in explorer.facts.value


def test_a_chosen_unit_task_lights_up_with_its_devices():
    explorer = widgets.layout_explorer()
    explorer.controls["unit"].value = 3  # the last row, device 3, to devices 6 and 7
    assert words(explorer).count("may send") == 1 and words(explorer).count("receives") == 2
    assert "[3:4, 0:4] outlined: device 3 may send it" in words(explorer)
    assert "[3:4, 0:4] outlined: it goes to devices 6,7" in words(explorer)
    assert "Unit task 3" in explorer.notes.value


def test_specs_meshes_and_shapes_change_the_picture():
    explorer = widgets.layout_explorer()
    explorer.controls["src_spec"].value = "RS01"
    explorer.controls["dst_mesh"].value = "1x4"
    explorer.controls["shape"].value = "8, 8"
    cluster = rl.Cluster(hosts=4, devices_per_host=2)
    mesh = rl.Mesh([[4, 5, 6, 7]])
    src, dst = rl.Layout(cluster.mesh((2, 2)), "RS01"), rl.Layout(mesh, "S0R")
    task = rl.ReshardingTask((8, 8), "float32", src, dst, cluster)
    assert explorer.figure.svg == plots.draw_layouts(task, highlight=0).svg
    explorer.set(dst_mesh="[[7, 5], [6, 4]]", dst_spec="S1R", dtype="int8")
    assert "Destination: S1R on a mesh of 2×2" in words(explorer)
    assert "<b>tensor</b>&nbsp;64 B" in explorer.facts.value


def test_device_ids_far_apart_are_refused_before_a_cluster_is_made_for_them():
    explorer = widgets.layout_explorer()
    explorer.controls["src_mesh"].value = "[[0, 999999]]"
    words = (
        "takes up to 4096 hosts, but device 999999 is on host 499999 with 2 a host; give smaller"
    )
    assert words in explorer.error.value
    explorer.controls["src_mesh"].value = "[[0, 8100]]"
    assert "Not drawn" not in explorer.error.value
    large = rl.Cluster(hosts=5000, devices_per_host=2)  # whoever has one may show it
    src, dst = rl.Layout(rl.Mesh([0]), "R"), rl.Layout(rl.Mesh([9999]), "R")
    task = rl.ReshardingTask((4,), "int8", src, dst, large)
    assert (
        "Unit task 0: 4 B of device 0 to device 9999." in widgets.layout_explorer(task).notes.value
    )


def test_another_unit_task_is_chosen_without_making_the_task_anew(monkeypatch):
    explorer = widgets.layout_explorer()
    before = explorer.view.table
    from reshard_lab.widgets import layouts

    for name in ("ReshardingTask", "box_text", "bytes_into_hosts"):
        monkeypatch.delattr(layouts, name)
    explorer.controls["unit"].value = 2
    assert "Unit task 2" in explorer.notes.value and explorer.view.table is before


def test_a_rule_for_uneven_sizes_on_either_side():
    explorer = widgets.layout_explorer()
    explorer.set(shape="6,1", src_mesh="4", src_spec="S0R", dst_mesh="4", dst_spec="S0R")
    chunk = explorer.figure.alt
    assert "empty" in words(explorer)
    explorer.controls["src_rule"].value = "balanced"
    assert words(explorer).count("empty") == 1  # the destination's fourth device
    assert explorer.figure.alt != chunk
    explorer.controls["dst_rule"].value = "even"
    assert "does not divide evenly" in explorer.error.value
    explorer.controls["dst_rule"].value = "balanced"
    assert "Not drawn" not in explorer.error.value and "empty" not in words(explorer)


@pytest.mark.parametrize("dtype", ITEMSIZE)
def test_every_element_type_has_its_place_in_the_menu(dtype):
    task = paper.on_figure2("S01R", "S0R", dtype=dtype)
    values = values_of(task_controls(task))
    assert values["dtype"] == dtype
    assert task_of(task.cluster, **values) == task


@pytest.mark.parametrize("make", [widgets.layout_explorer, widgets.plan_explorer])
def test_explorers_take_a_task_of_eight_bit_floats(make):
    shown = make(paper.on_figure2("S01R", "S0R", dtype="float8_e4m3fn"))
    assert shown.controls["dtype"].value == "float8_e4m3fn" and "Not drawn" not in shown.error.value


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("src_spec", "S0S0", "uses mesh axis 0 twice"),
        ("dst_spec", "S0", "has 1 tokens, but shape (4, 4) has 2 dimensions"),
        ("src_mesh", "two", "source mesh &#x27;two&#x27; is not a mesh; give its shape as 2x2"),
        ("dst_mesh", "[[0, 0]]", "lists device 0 twice"),
        ("dst_mesh", "0x2", "length of axis 0 of destination mesh 0x2 must be at least 1"),
        ("shape", "4;4", "shape &#x27;4;4&#x27; is not a list of sizes; write it as 4,4"),
        ("src_mesh", "1000x1000", "up to 256 devices, but the source mesh has 1000000"),
    ],
)
def test_bad_input_shows_the_librarys_words_and_the_last_picture_stays(name, value, message):
    explorer = widgets.layout_explorer()
    explorer.controls["unit"].value = 2
    picture, good = explorer.picture.value, explorer.controls[name].value
    explorer.controls[name].value = value
    assert message in explorer.error.value
    assert explorer.picture.value == picture
    explorer.controls[name].value = good
    assert "Not drawn" not in explorer.error.value
    assert explorer.picture.value == picture


def test_fewer_unit_tasks_move_the_end_of_the_slider():
    explorer = widgets.layout_explorer()
    explorer.controls["unit"].value = 3
    explorer.controls["src_spec"].value = "S0R"
    assert (explorer.controls["unit"].value, explorer.controls["unit"].max) == (1, 1)
    assert "Unit task 1: 32 B of devices 2,3 to devices 6,7." in explorer.notes.value
    explorer.controls["shape"].value = "0,4"
    assert "The tensor is empty." in explorer.notes.value
    explorer.controls["shape"].value = "4,4"
    assert "Unit task 0" in explorer.notes.value


def test_two_of_many_dimensions_are_chosen():
    explorer = widgets.layout_explorer(sixteen(), highlight=20)
    axes = explorer.controls["axes"]
    assert [value for _, value in axes.options] == [(), (0, 1), (0, 2), (1, 2)]
    axes.value = (0, 2)
    unit = sixteen().unit_tasks[20]
    assert words(explorer).count(f"drawn at dim 1 = {unit.box[1][0]}") == 2
    explorer.set(shape="16,16", src_spec="S01R", dst_spec="RS0")  # no third dimension now
    assert axes.value == () and "Not drawn" not in explorer.error.value


def test_a_receiver_that_has_it_already_is_named():
    mesh = rl.Mesh([[0, 1], [2, 3]])
    task = rl.ReshardingTask((4, 4), "int8", rl.Layout(mesh, "S01R"), rl.Layout(mesh, "RR"))
    explorer = widgets.layout_explorer(task)
    assert "to devices 0-3; device 0 has it already." in explorer.notes.value


def test_the_table_lists_the_unit_tasks():
    explorer = widgets.layout_explorer()
    rows = explorer.view.table
    assert rows[0] == ("unit task", "box", "bytes", "from", "to")
    assert rows[3] == (2, "[2:3, 0:4]", 16, "2", "6,7")
    assert len(rows) == 5


@pytest.mark.parametrize("case", range(1, 10))
def test_controls_say_the_task_they_were_made_from(case):
    task = paper.suite_task(case)
    assert task_of(task.cluster, **values_of(task_controls(task))) == task


def test_meshes_that_a_shape_does_not_give_are_written_out():
    cluster = rl.Cluster(hosts=4, devices_per_host=4)
    src, dst = rl.Layout(cluster.mesh((2, 2)), "S01"), rl.Layout(rl.Mesh([9, 3]), "R")
    task = rl.ReshardingTask((8,), "int8", src, dst, cluster)
    explorer = widgets.layout_explorer(task)
    assert explorer.controls["src_mesh"].value == "[[0, 1], [2, 3]]"
    assert explorer.controls["dst_mesh"].value == "[9, 3]"
    assert explorer.figure.svg == plots.draw_layouts(task, highlight=0).svg


def test_larger_meshes_get_hosts_of_the_same_kind():
    cluster = rl.Cluster(hosts=4, devices_per_host=2, nic="400Mbit")
    src, dst = rl.Layout(cluster.mesh((2, 2)), "S0R"), rl.Layout(cluster.mesh((2, 2), 2), "S0R")
    explorer = widgets.layout_explorer(rl.ReshardingTask((8, 8), "int8", src, dst, cluster))
    explorer.set(src_mesh="4x2", shape="8,1024")
    # Two hosts of the destination take 4 KiB each in at 50 MB/s.
    assert "lower bound</b>&nbsp;81.92 us" in explorer.facts.value.replace("µ", "u")


def test_shown_twice_it_is_the_same():
    one, two = widgets.layout_explorer(), widgets.layout_explorer()
    assert repr(one) == repr(two) and one.figure == two.figure
    assert re.fullmatch(r"Explorer\('layout explorer': [^\n]*\)", repr(one))
