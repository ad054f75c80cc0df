"""Sizes, rates, times, dtypes and ids: strings at the edge, numbers (SI) inside.

Bits carry a lower-case ``b`` or ``bit`` and decimal prefixes (``400Mbit``, ``10Gbps``); bytes
carry ``B`` with decimal (``150GB/s``) or binary (``64MiB``) prefixes.
"""

import math
import re
from collections.abc import Iterable, Sequence

from reshard_lab.errors import ReshardError, check_number, must_be, short

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_PREFIX = {**_DECIMAL, **_BINARY}
_PER_SECOND = {"ns": 1e9, "us": 1e6, "µs": 1e6, "μs": 1e6, "ms": 1e3, "s": 1.0}
_NUMBER = r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*"
_SCALED = _NUMBER + r"([KMGTP]i|[kKMGTP]|)"
_RATE = re.compile(_SCALED + r"(bps|bit/s|bits/s|b/s|bit|B/s|Bps)\s*$")
_SIZE = re.compile(_SCALED + r"B\s*$")
_TIME = re.compile(_NUMBER + r"(ns|us|µs|μs|ms|s)\s*$")

_DTYPES = {
    1: "bool int8 uint8 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu",
    2: "int16 uint16 float16 bfloat16",
    4: "int32 uint32 float32",
    8: "int64 uint64 float64 complex64",
    16: "complex128",
}
ITEMSIZE = {name: size for size, names in _DTYPES.items() for name in names.split()}
"""Bytes an element, for every dtype name the package knows."""


def _is_number(value: object) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, (str, bool))


def _match(pattern: re.Pattern[str], value: object, what: str, wanted: str) -> re.Match[str]:
    match = pattern.match(value) if isinstance(value, str) else None
    if match is None:
        raise ReshardError(f"{what} {short(value)} is not {wanted}")
    return match


def parse_bandwidth(value: object, what: str = "bandwidth") -> float:
    """Bytes a second from ``"10Gbps"``, ``"400Mbit"``, ``"150GB/s"``, ``"inf"`` or a number.

    >>> parse_bandwidth("10Gbps"), parse_bandwidth("150GB/s"), parse_bandwidth("400Mbit")
    (1250000000.0, 150000000000.0, 50000000.0)
    """
    if _is_number(value):
        return check_number(what, value, above=0, finite=False)
    if isinstance(value, str) and value.strip() == "inf":
        return math.inf
    wanted = (
        "a rate; write bits as '10Gbps' or '400Mbit', bytes as '150GB/s', or give a number of "
        "bytes a second"
    )
    match = _match(_RATE, value, what, wanted)
    bits = match[3] not in ("B/s", "Bps")
    return check_number(what, float(match[1]) * _PREFIX[match[2]] / (8 if bits else 1), above=0)


def parse_bytes(value: object, what: str = "size") -> int:
    """A number of bytes from ``"64MiB"``, ``"1GB"`` or a whole number.

    >>> parse_bytes("64MiB"), parse_bytes("1kB"), parse_bytes(12)
    (67108864, 1000, 12)
    """
    if _is_number(value):
        number = check_number(what, value, 0)
    else:
        match = _match(_SIZE, value, what, "a number of bytes; write '64MiB', '1GB' or '512B'")
        number = float(match[1]) * _PREFIX[match[2]]
        if math.isinf(number):
            raise must_be(what, "finite", value)
    if number != int(number):
        raise ReshardError(f"{what} {short(value)} is not a whole number of bytes")
    return int(number)


def parse_seconds(value: object, what: str = "time") -> float:
    """Seconds from ``"20us"``, ``"1.5ms"`` or a number; nothing at all needs no unit.

    >>> parse_seconds("20us"), parse_seconds(0), parse_seconds("0")
    (2e-05, 0.0, 0.0)
    """
    if isinstance(value, str) and value == "0":
        return 0.0
    if _is_number(value):
        return check_number(what, value, 0)
    match = _match(_TIME, value, what, "a time; write '20us', '1.5ms' or '2s'")
    return check_number(what, float(match[1]) / _PER_SECOND[match[2]], 0)


def _scaled(value: float, unit: str, steps: tuple[tuple[float, str], ...]) -> str:
    for factor, prefix in steps:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def format_bytes(nbytes: float) -> str:
    """Bytes with a binary prefix.

    >>> format_bytes(16), format_bytes(3 * 2**20)
    ('16 B', '3 MiB')
    """
    steps = ((2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki"))
    return _scaled(nbytes, "B", steps)


def format_rate(bytes_per_second: float) -> str:
    """A rate in bits a second.

    >>> format_rate(1.25e9)
    '10 Gbit/s'
    """
    if math.isinf(bytes_per_second):
        return "unlimited"
    return _scaled(8 * bytes_per_second, "bit/s", ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")))


def format_seconds(seconds: float) -> str:
    """A time with a fitting unit.

    >>> format_seconds(0), format_seconds(2.5e-5), format_seconds(0.368)
    ('0 s', '25 us', '368 ms')
    """
    if seconds == 0:
        return "0 s"
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
    factor, unit = next((step for step in units if seconds >= step[0]), (1e-9, "ns"))
    return f"{seconds / factor:.4g} {unit}"


def dtype_name(dtype: object) -> str:
    """The canonical name of a dtype given as a name, a numpy dtype or a torch dtype.

    >>> import numpy as np
    >>> dtype_name("float32"), dtype_name(np.int16), dtype_name(np.dtype("bool"))
    ('float32', 'int16', 'bool')
    """
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if not isinstance(name, str):
        name = getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    if name not in ITEMSIZE:
        raise ReshardError(f"unknown dtype {short(dtype)}; known are {', '.join(ITEMSIZE)}")
    return name


def device_list(devices: Iterable[int]) -> str:
    """Device ids with runs shortened.

    >>> device_list([0, 1, 2, 5]), device_list([4, 6])
    ('0-2,5', '4,6')
    """
    runs: list[list[int]] = []
    for d in sorted(devices):
        if runs and d == runs[-1][1] + 1:
            runs[-1][1] = d
        else:
            runs.append([d, d])
    return ",".join(str(a) if a == b else f"{a}-{b}" if b > a + 1 else f"{a},{b}" for a, b in runs)


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines of left-aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
