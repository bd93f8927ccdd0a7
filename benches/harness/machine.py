"""What was measured, and where: the first line of each file of results."""

import datetime
import os
import platform
import re
import resource
import shutil
import subprocess

from .build import ROOT


def header(plan, profile, rounds, seconds):
    """The first line of the results of a plan."""
    return {
        "plan": plan,
        "commit": told("git", "-C", str(ROOT), "rev-parse", "HEAD"),
        "subject": told("git", "-C", str(ROOT), "log", "-1", "--format=%s"),
        "changed": bool(told("git", "-C", str(ROOT), "status", "--porcelain", "src", "Cargo.toml", "Cargo.lock")),
        "profile": profile,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "kernel": platform.release(),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "rustc": told("rustc", "--version"),
        "versions": versions(),
        "rounds": rounds,
        "seconds": seconds,
    }


def versions():
    """The programs that are compared with, as far as they are installed."""
    found = {
        "nginx": told("nginx", "-v"),
        "haproxy": told("haproxy", "-v"),
        "redis-server": told("redis-server", "--version"),
    }
    numbers = {name: re.search(r"\d+\.\d+\.\d+", text or "") for name, text in found.items()}
    return {name: number.group() for name, number in numbers.items() if number}


def told(*command):
    """The first line that a command prints, or None if the command is not there."""
    if not shutil.which(command[0]):
        return None
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = run.stdout.strip().splitlines()
    return lines[0] if lines else None


def cpu():
    """The name of the processor."""
    with open("/proc/cpuinfo") as info:
        names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return names[0] if names else platform.machine()


def raise_file_limit():
    """Thousands of open calls, or listeners, need two files each."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
