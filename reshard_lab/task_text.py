"""Shapes and meshes as people type them, on the command line and in explorers."""

import json
import math
import re

import numpy as np

from reshard_lab.errors import ReshardError, check_int, short
from reshard_lab.mesh import Mesh

MOST_DEVICES, MOST_AXES = 10**6, 32
"""More in one mesh is taken for a slip."""


def parse_shape(text: str, what: str = "shape") -> tuple[int, ...]:
    """Sizes of a tensor. ``what``: what messages call the text.

    >>> parse_shape("4, 8"), parse_shape("")
    ((4, 8), ())
    """
    if not re.fullmatch(r"\s*(-?\d{1,18}\s*([,x×]\s*-?\d{1,18}\s*)*,?)?\s*", text):
        raise ReshardError(f"{what} {short(text)} is not a list of sizes; write it as 4,4")
    return tuple(int(n) for n in re.findall(r"-?\d+", text))


def mesh_axes(text: str, what: str = "mesh") -> tuple[int, ...]:
    """Shape of the mesh in ``text``, which is that shape or the device ids.

    >>> mesh_axes("2x4"), mesh_axes("[[0, 1], [2, 3]]")
    ((2, 4), (2, 2))
    """
    if text.lstrip().startswith("["):
        return _ids(text, what).shape
    if not re.fullmatch(r"\s*\d{1,18}\s*([x×,]\s*\d{1,18}\s*)*", text):
        raise ReshardError(
            f"{what} {short(text)} is not a mesh; give its shape as 2x2 or device ids as "
            "'[[0,1],[2,3]]'"
        )
    axes = tuple(int(n) for n in re.findall(r"\d+", text))
    if len(axes) > MOST_AXES:
        raise ReshardError(f"{what} {short(text)} has {len(axes)} axes; {MOST_AXES} at most")
    if math.prod(axes) > MOST_DEVICES:
        raise ReshardError(
            f"{what} {short(text)} has {math.prod(axes)} devices; {MOST_DEVICES} at most"
        )
    return tuple(
        check_int(f"length of axis {i} of {what} {short(text)[1:-1]}", n, 1)
        for i, n in enumerate(axes)
    )


def parse_mesh(text: str, first_host: int, devices_per_host: int, what: str = "mesh") -> Mesh:
    """The mesh in ``text``; one given by its shape starts every row on a host of its own.

    >>> parse_mesh("2x2", first_host=1, devices_per_host=4)
    Mesh([[4, 5], [8, 9]])
    """
    if text.lstrip().startswith("["):
        return _ids(text, what)
    axes = mesh_axes(text, what)
    rows, last = math.prod(axes[:-1]), axes[-1]
    stride = -(-last // devices_per_host) * devices_per_host
    check_int("first host", first_host, 0, MOST_DEVICES)
    starts = first_host * devices_per_host + stride * np.arange(rows)
    return Mesh((starts[:, None] + np.arange(last)).reshape(axes))


def parse_meshes(
    src: str,
    dst: str,
    names: tuple[str, str],
    devices_per_host: int | None = None,
    dst_first_host: int | None = None,
) -> tuple[Mesh, Mesh, int]:
    """Source mesh, destination mesh and devices a host (by default the longest row of both).

    The destination starts on the host after the source's last, unless ``dst_first_host`` says
    where. ``names``: what messages call the two texts.

    >>> parse_meshes("2x2", "1x2", ("source mesh", "destination mesh"))
    (Mesh([[0, 1], [2, 3]]), Mesh([[4, 5]]), 2)
    """
    axes = mesh_axes(src, names[0]), mesh_axes(dst, names[1])
    per = devices_per_host or max(lengths[-1] for lengths in axes)
    source = parse_mesh(src, 0, per, names[0])
    if dst_first_host is None:
        dst_first_host = max(source.devices) // per + 1
    return source, parse_mesh(dst, dst_first_host, per, names[1]), per


def _ids(text: str, what: str) -> Mesh:
    try:
        ids = json.loads(text)
    except (ValueError, RecursionError):
        raise ReshardError(
            f"{what} {short(text)} is not a list of device ids; write it as '[[0,1],[2,3]]'"
        ) from None
    try:
        return Mesh(ids)
    except ReshardError as error:
        raise ReshardError(f"{what} {str(error).removeprefix('mesh ')}") from None
