"""The records a plan is made of: transfers, and what each device does in order."""

from typing import NamedTuple

from reshard_lab.boxes import Box, Span, box_text, box_volume, is_contiguous

MESSAGE_BYTES = 16 * 2**20
"""Longest message an executor sends; longer chunks are cut further."""
IN_FLIGHT = 2
"""Messages a device stages at once in each direction."""


class Transfer(NamedTuple):
    """One payload on its way down a chain of devices.

    ``path[0]`` holds the payload; each further device takes it from the one before and passes
    it on chunk by chunk as the chunks arrive. A path of one device is a local copy from its
    source piece into its destination piece.
    """

    id: int
    """Position in ``Plan.transfers``."""
    unit: int
    """Index of the unit task among all unit tasks of the plan."""
    box: Box
    """Box of the tensor the payload lies in (global coordinates)."""
    span: Span | None
    """Row-major range of the box's elements that is carried; None = all of them."""
    path: tuple[int, ...]
    nbytes: int
    """Bytes of the payload (1 for a ``signal``)."""
    chunks: int
    """Chunks the payload is cut into: byte ``i * nbytes // chunks`` starts chunk ``i``."""
    stage: int
    """A device takes its transfers by stage, within a stage by hop (a ring shares one stage)."""
    after: tuple[int, ...]
    """Transfers complete (at their last device) before the first byte of this one leaves."""

    @property
    def elements(self) -> int:
        """Number of elements carried."""
        return box_volume(self.box) if self.span is None else self.span[1] - self.span[0]

    @property
    def text(self) -> str:
        """What messages call it."""
        span = "" if self.span is None else f" elements {self.span[0]}:{self.span[1]}"
        path = " -> ".join(map(str, self.path))
        return f"transfer {self.id} ({box_text(self.box)}{span}, {path})"

    @property
    def messages(self) -> int:
        """Messages an executor carries it in: its chunks, or more where those would be too long."""
        return max(self.chunks, -(-self.nbytes // MESSAGE_BYTES))

    def staged_bytes(self, piece: Box) -> int:
        """Bytes that one end stages, its data lying in the array that holds ``piece``.

        Nothing where the payload is one run of memory: it moves straight from or into the array.
        """
        if is_contiguous(self.box, piece):
            return 0
        return min(self.nbytes, IN_FLIGHT * -(-self.nbytes // self.messages))


class Step(NamedTuple):
    """One thing a device does: its end of one hop of a transfer, or a local copy.

    Sends of a device happen one after another in program order, its receives likewise; sends
    and receives run side by side. A hop moves when both its ends have come to it.
    """

    op: str
    """``"copy"``, ``"send"`` or ``"recv"``."""
    transfer: int
    peer: int
    """The device at the other end (the device itself for a copy)."""
    nbytes: int
    dtype: str
