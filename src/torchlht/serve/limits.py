"""What a server allows, as plain values that its worker processes are started with."""

from __future__ import annotations

import msgspec

VARIABLE = "LHT_SERVE"  # of the environment: `Settings` as JSON


class Settings(msgspec.Struct, frozen=True):
    """What is served, and within which limits.

    Attributes:
        runs: run directories or exported files; the first answers unless a request names another.
        batch: most pictures that the network sees at a time.
        latency: most seconds that a batch may take, judged by the batches before it.
        queue: most pictures that wait or are worked on; more are refused.
        bytes: most bytes of a request.
        pixels: most pixels of a picture.
        pictures: most pictures of a request.
        seconds: most seconds to send a request, and to answer it.
        threads: how many batches are computed at a time, each on a thread, in each process.
        shared: folder where the processes keep their counts.
        parent: the process that starts them; when it is gone, they stop. 0 if there is none.
    """

    runs: tuple[str, ...]
    batch: int = 4
    latency: float = 0.5
    queue: int = 256
    bytes: int = 2**26
    pixels: int = 2**26
    pictures: int = 64
    seconds: float = 30.0
    threads: int = 1
    shared: str = ""
    parent: int = 0
