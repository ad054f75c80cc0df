"""One device's part of a plan, compiled: where every byte lies, and what waits for what.

A transfer that comes ``after`` others starts when each of them is complete at its last device,
which notifies a device that waits by a token (``lanes.Tokens``): that follows from the plan alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reshard_lab.boxes import (
    Box,
    box_shape,
    box_text,
    box_volume,
    contains,
    is_contiguous,
    slices_within,
    span_boxes,
)
from reshard_lab.errors import ReshardError
from reshard_lab.planning import Plan
from reshard_lab.planning.hops import Wait
from reshard_lab.runtime.arrays import RankPieces, bytes_of
from reshard_lab.runtime.calls import torch_modules
from reshard_lab.transfer import IN_FLIGHT, Step, Transfer

if TYPE_CHECKING:
    import torch


class BufferSlice(NamedTuple):
    """Where a payload lies in the array of a piece, in bytes.

    The last dimension counts bytes: ``box`` is the payload's box, ``piece`` the array's, both in
    global coordinates.
    """

    task: int
    side: str
    """``"src"`` or ``"dst"``: the piece a device starts with, or the one it is brought."""
    box: Box
    piece: Box
    first: int
    """Byte of ``box``, row-major, at which the payload starts."""
    offset: int | None
    """Byte of the array at which it starts, if it is one run of memory."""


class HopEnd(NamedTuple):
    """A device's end of one hop (or a local copy), ready to be carried out."""

    step: int
    """Position in the device's program."""
    transfer: int
    peer: int
    nbytes: int
    messages: int
    """Message ``i`` starts at byte ``i * nbytes // messages``."""
    buffer: BufferSlice | None
    """Where the payload lies (None: a byte that means nothing, under ``signal``)."""
    target: BufferSlice | None
    """Where a local copy goes."""
    staged: int
    """Bytes of staging memory it uses (0: straight from or into the array)."""
    forward: bool
    """Sent on as it comes in, message by message."""
    last: bool
    """Whether the transfer is complete when it is complete here."""
    local: tuple[int, ...]
    """Transfers that must be complete at this device before."""
    remote: tuple[tuple[int, int], ...]
    """(device, transfer): those that another device reports complete."""
    notify: tuple[int, ...]
    """Devices to notify when this one is complete here."""
    level: int = 0
    """How many transfers it comes after, one behind the other, at most."""

    def edge(self, message: int) -> int:
        """First byte of a message."""
        return message * self.nbytes // self.messages

    def slot(self, message: int) -> int:
        """Where in the staging memory a message lies; it takes the place of an earlier one."""
        if self.messages <= IN_FLIGHT:
            return self.edge(message)
        return message % IN_FLIGHT * -(-self.nbytes // self.messages)


class Lane(NamedTuple):
    """Sends, or receives, that one thread carries out."""

    ends: tuple[HopEnd, ...]
    in_turn: bool
    """Whether the messages of one level take turns; else one follows another."""

    def messages(self) -> list[tuple[HopEnd, int]]:
        """(end, message) in order, the same at both ends."""
        messages = [(end, i) for end in self.ends for i in range(end.messages)]
        if self.in_turn:
            messages.sort(key=lambda m: (m[0].level, (m[1] + 0.5) / m[0].messages, m[0].transfer))
        return messages


class Program(NamedTuple):
    """The local copies, sends and receives of one device."""

    device: int
    copies: tuple[HopEnd, ...]
    sends: tuple[HopEnd, ...]
    recvs: tuple[HopEnd, ...]
    ordered: bool = True
    """Whether sends, and receives, follow one another; else their messages take turns."""

    def lanes(self, ends: tuple[HopEnd, ...]) -> list[Lane]:
        """``ends`` (sends or receives) by the lanes that carry them out side by side.

        In a plan without an order there is a lane for each other device. In it the messages of
        one level take turns, in proportion, in an order that both ends work out alike.
        """
        if self.ordered:
            return [Lane(ends, in_turn=False)] if ends else []
        by_peer: dict[int, list[HopEnd]] = {}
        for end in ends:
            by_peer.setdefault(end.peer, []).append(end)
        return [Lane(tuple(lane), in_turn=True) for lane in by_peer.values()]

    @property
    def awaited(self) -> list[tuple[int, int]]:
        """(device, transfer) of every token to come, in the order in which they are waited for."""
        ends = (*self.sends, *self.copies)
        return list(dict.fromkeys(token for end in ends for token in end.remote))


Observer = Callable[[str, int, int], None]
"""Called as (``"copy"``, ``"send"`` or ``"recv"``, step, messages done): 0 as the step begins."""


class Compiler:
    """Compiles the devices' programs of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.have = [task.src.boxes(task.shape) for task in plan.tasks]
        self.need = [task.dst.boxes(task.shape) for task in plan.tasks]
        self.levels = [0] * len(plan.transfers) if plan.ordered else plan.hops.levels

    @cached_property
    def waiters(self) -> Mapping[int, tuple[int, ...]]:
        """``{transfer: devices}`` that wait for it, its own last device left out."""
        hops, waits = self.plan.hops, self.plan.hops.waits
        after = waits.kind == Wait.AFTER
        earlier, later = waits.earlier[after], waits.later[after]
        at, waiter = hops.destination[earlier], hops.source[later]
        pairs = np.stack([hops.transfer[earlier], waiter], axis=1)[at != waiter]
        waiters: dict[int, list[int]] = {}
        for transfer, device in np.unique(pairs, axis=0).tolist():
            waiters.setdefault(transfer, []).append(device)
        return {transfer: tuple(devices) for transfer, devices in waiters.items()}

    def compile(self, device: int) -> Program:
        """The program of ``device``; empty if it takes no part."""
        lanes: dict[str, list[HopEnd]] = {"copy": [], "send": [], "recv": []}
        for index, step in enumerate(self.plan.programs.get(device, ())):
            lanes[step.op].append(self._end(device, index, step))
        copies, sends, recvs = (tuple(lanes[op]) for op in ("copy", "send", "recv"))
        return Program(device, copies, sends, recvs, self.plan.ordered)

    def _end(self, device: int, index: int, step: Step) -> HopEnd:
        t = self.plan.transfers[step.transfer]
        starts, last = device == t.path[0], device == t.path[-1]
        after = [(self.plan.transfers[o].path[-1], o) for o in t.after] if starts else []
        buffer, target, staged = None, None, 0
        if step.op == "copy":
            buffer, _ = self._buffer(t, device, source=True)
            target, _ = self._buffer(t, device, source=False)
        elif self.plan.delivers:
            buffer, piece = self._buffer(t, device, source=starts)
            staged = t.staged_bytes(piece)
        return HopEnd(
            step=index,
            transfer=t.id,
            peer=step.peer,
            nbytes=t.nbytes,
            messages=t.messages,
            buffer=buffer,
            target=target,
            staged=staged,
            forward=step.op == "send" and not starts,
            last=last,
            local=tuple(o for at, o in after if at == device),
            remote=tuple((at, o) for at, o in after if at != device),
            notify=self.waiters.get(t.id, ()) if last else (),
            level=self.levels[t.id],
        )

    def _buffer(self, t: Transfer, device: int, source: bool) -> tuple[BufferSlice, Box]:
        """Where the payload lies, and in which piece: that of the source if ``source`` and held."""
        task = self.plan.units[t.unit].task
        side, piece = "src", self.have[task].get(device) if source else None
        if piece is None or not contains(piece, t.box):
            side, piece = "dst", self.need[task].get(device)
        if piece is None or not contains(piece, t.box):
            raise ReshardError(
                f"transfer {t.id} passes device {device}, but box {box_text(t.box)} lies in no "
                "piece of that device; cut the transfer at the edges of the pieces"
            )
        itemsize = self.plan.tasks[task].itemsize
        box, array = in_bytes(t.box, itemsize), in_bytes(piece, itemsize)
        first = (t.span[0] if t.span else 0) * itemsize
        if not is_contiguous(t.box, piece):
            return BufferSlice(task, side, box, array, first, None), piece
        corner = [lo - start for (lo, _), (start, _) in zip(box, array, strict=True)]
        offset = int(np.ravel_multi_index(corner, box_shape(array))) + first
        return BufferSlice(task, side, box, array, first, offset), piece


def in_bytes(box: Box, itemsize: int) -> Box:
    """``box`` with its last dimension counted in bytes; a single byte range for 0 dimensions."""
    if not box:
        return ((0, itemsize),)
    lo, hi = box[-1]
    return (*box[:-1], (lo * itemsize, hi * itemsize))


class PieceMemory:
    """Reads and writes payloads in the pieces of one device."""

    def __init__(self, pieces: RankPieces, on: torch.device | None = None) -> None:
        self.on = on
        sides = {"src": pieces.source, "dst": pieces.target}
        self.flat = {
            (side, task): bytes_of(tensor)
            for side, tensors in sides.items()
            for task, tensor in enumerate(tensors)
            if tensor is not None
        }

    def zeros(self, nbytes: int) -> torch.Tensor:
        """Bytes beside the pieces."""
        torch, _ = torch_modules()
        return torch.zeros(nbytes, dtype=torch.uint8, device=self.on)

    def message(self, end: HopEnd, number: int, sends: bool, staging: torch.Tensor) -> torch.Tensor:
        """The bytes of a message: of the piece, if they are one run of memory there, else of the
        start of ``staging``, gathered if the message is to be sent.
        """
        lo, hi = end.edge(number), end.edge(number + 1)
        buffer = end.buffer
        if buffer is None:
            return self.zeros(hi - lo)
        if not end.staged:
            assert buffer.offset is not None
            return self.flat[buffer.side, buffer.task][buffer.offset + lo : buffer.offset + hi]
        data = staging[: hi - lo]
        if sends:
            for at, part in self._parts(buffer, lo, hi):
                data[at : at + part.numel()].view(part.shape).copy_(part)
        return data

    def unpack(self, end: HopEnd, number: int, data: torch.Tensor) -> None:
        """Put a staged message that was received where it belongs."""
        for at, part in self._parts(end.buffer, end.edge(number), end.edge(number + 1)):
            part.copy_(data[at : at + part.numel()].view(part.shape))

    def copy(self, end: HopEnd) -> None:
        """A local copy."""
        source = self._parts(end.buffer, 0, end.nbytes)
        target = self._parts(end.target, 0, end.nbytes)
        for (_, a), (_, b) in zip(source, target, strict=True):
            b.copy_(a)

    def _parts(
        self, buffer: BufferSlice | None, lo: int, hi: int
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """``(first byte, view)`` of the boxes that make up bytes ``lo`` to ``hi`` of a payload."""
        assert buffer is not None
        array = self.flat[buffer.side, buffer.task].view(box_shape(buffer.piece))
        at = 0
        for box in span_boxes(buffer.box, (buffer.first + lo, buffer.first + hi)):
            yield at, array[slices_within(box, buffer.piece)]
            at += box_volume(box)
