"""python3 -m crates BINARY: the crates that a program of Linux says it is made of, a line each, and whether that is so.

`cargo auditable build` puts the list into the program. It is compared with Cargo.lock: a list that is empty, of another version,
or of crates that were not locked would make `cargo audit bin` answer for another program.
"""

import json
import sys
import tomllib
import zlib
from pathlib import Path

import binary

SECTION = ".dep-v0"
# A crate that a build without all of raincheck would lack.
NEEDED = "hyper"


def crates(data):
    found = [section for section in binary.elf_sections(data) if section["name"] == SECTION]
    if not found:
        binary.fail("the program does not carry the list of its crates: build it with `cargo auditable build`")
    [section] = found
    packages = json.loads(zlib.decompress(data[section["offset"] : section["offset"] + section["size"]]))["packages"]
    return {(package["name"], package["version"]) for package in packages}


def main(path):
    named = crates(binary.read(path).data)
    root = Path(__file__).resolve().parent.parent
    locked = {(it["name"], it["version"]) for it in tomllib.loads((root / "Cargo.lock").read_text())["package"]}
    own = tomllib.loads((root / "Cargo.toml").read_text())["package"]
    if (own["name"], own["version"]) not in named:
        binary.fail(f"the list does not name {own['name']} {own['version']}")
    if NEEDED not in {name for name, _ in named}:
        binary.fail(f"the list does not name {NEEDED}")
    if strange := sorted(named - locked):
        binary.fail(f"the list names what is not in Cargo.lock: {strange}")
    for name, version in sorted(named):
        print(name, version)


if __name__ == "__main__":
    main(*sys.argv[1:])
