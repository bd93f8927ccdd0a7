"""What the disk itself takes to make a write durable: the limit of every store on it."""

import os
import statistics
import time

WRITES = 100


def fdatasync(folder):
    """Writes pages of 4 KiB, each with fdatasync."""
    took = []
    path = folder / "fdatasync"
    with open(path, "wb", buffering=0) as file:
        for _ in range(WRITES):
            file.write(b"\0" * 4096)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1e6)
    path.unlink()
    p50 = round(statistics.median(took), 1)
    rps = round(1e6 / statistics.mean(took), 1)
    return {"label": "disk", "mode": "fdatasync", "concurrency": 1, "rps": rps, "p50_us": p50, "errors": 0}
