"""The programs that take part, built from this tree."""

import os
import subprocess
from pathlib import Path

BENCHES = Path(__file__).resolve().parent.parent
ROOT = BENCHES.parent


def build(profile):
    """Builds everything. Returns where raincheck is, and the folder of the other programs.

    `RAINCHECK_BIN` names a raincheck that is built already. The profile "shipped" is what deploy/build.sh makes."""
    binary = os.environ.get("RAINCHECK_BIN")
    if not binary and profile == "shipped":
        subprocess.run([ROOT / "deploy/build.sh"], check=True)
        binary = target(ROOT) / "shipped/raincheck"
    elif not binary:
        _cargo(ROOT, "--profile", profile, "--bin", "raincheck")
        binary = target(ROOT) / profile / "raincheck"
    return Path(binary), programs()


def programs():
    """Builds the programs beside raincheck. Returns their folder."""
    _cargo(BENCHES, "--release", "--workspace")
    return target(BENCHES) / "release"


def _cargo(folder, *arguments):
    command = ["cargo", "build", "--locked", "--quiet", *arguments]
    subprocess.run(command, cwd=folder, check=True)


def target(folder):
    return Path(os.environ.get("CARGO_TARGET_DIR") or folder / "target")
