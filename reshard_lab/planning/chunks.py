"""K, the number of chunks of a broadcast (section 3.1)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from reshard_lab.cluster import Cluster
from reshard_lab.errors import ReshardError, check_int

MOST_CHUNKS = 1024
"""Most that ``"auto"`` takes."""


def check_chunks(chunks: object) -> int | str:
    """``chunks`` if it is a whole number of at least 1 or ``"auto"``, else raise."""
    if isinstance(chunks, str):
        if chunks == "auto":
            return chunks
        raise ReshardError(f"chunks must be a whole number of at least 1 or 'auto', not {chunks!r}")
    return check_int("chunks", chunks, 1)


def chunk_count(path: tuple[int, ...], nbytes: int, cluster: Cluster, chunks: int | str) -> int:
    """Chunks for ``nbytes`` down the chain ``path``: as asked, never more than bytes.

    ``"auto"`` takes the number that makes the chain shortest. If hop i has latency a_i and takes
    t_i for all bytes, K chunks take the sum of a_i + t_i/K and (K - 1) times the largest of them,
    which is convex in K. With one NIC hop to each of A hosts, K* = sqrt((A - 1)·t/a).
    """
    if isinstance(chunks, int):
        return max(1, min(chunks, nbytes))
    hops = Counter(
        (cluster.link_latency_s(a, b), nbytes / cluster.link_Bps(a, b)) for a, b in pairwise(path)
    )

    def lasts(k: int) -> float:
        fill = sum(count * (a + t / k) for (a, t), count in hops.items())
        return fill + (k - 1) * max(a + t / k for a, t in hops)

    low, high = 1, max(1, min(MOST_CHUNKS, nbytes))
    while low < high:
        middle = (low + high) // 2
        if lasts(middle + 1) < lasts(middle) * (1 - 1e-12):
            low = middle + 1
        else:
            high = middle
    return low
