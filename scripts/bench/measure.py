"""Clocks and counters. Times in seconds, sizes in bytes."""

import os
import statistics
import time
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid):
    """CPU seconds that a process has used, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def memory_bytes(pid):
    """Proportional set size: shared pages count by their share."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"process {pid} shows no Pss")


def idle(pid, seconds=10):
    """Share of one core that a process uses while nobody asks it for anything, and its memory."""
    before, began = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return {"cpu_share": (cpu_s(pid) - before) / (time.monotonic() - began), "memory_bytes": memory_bytes(pid)}


def spread(samples):
    """p50, p99 and count of durations."""
    ordered = sorted(samples)
    return {"p50": statistics.median(ordered), "p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
            "n": len(ordered)}


def window(samples, begin, end):
    """How much every further figure grew while the first went from one share of its last value to another; between two samples it is taken
    to grow evenly. Samples are tuples in the order of time."""
    def at(share):
        wanted = share * samples[-1][0]
        for before, after in zip(samples, samples[1:]):
            if after[0] >= wanted and after[0] > before[0]:
                part = max(0.0, (wanted - before[0]) / (after[0] - before[0]))
                return [low + part * (high - low) for low, high in zip(before[1:], after[1:])]
        return list(samples[-1][1:])
    return [late - early for early, late in zip(at(begin), at(end))]


def until(condition, timeout_s=60):
    """Waits without sleeping long: how long something takes to become true."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise TimeoutError(f"not true after {timeout_s} s")
        time.sleep(0.002)
    return time.monotonic() - began


def machine():
    """What it was measured on."""
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), "unknown")
    return {"cpu": model, "cores": os.cpu_count(), "load": os.getloadavg()[0], "kernel": os.uname().release}
