"""Writes SHA256SUMS, the sums of all files in a folder but itself and its signature, as `sha256sum --check` reads them: python3 -m sums OUT, in deploy/."""

import hashlib
import os
import sys

import packing

NAME = "SHA256SUMS"


def main(out):
    packing.write(out, NAME, "".join(f"{digest}  {name}\n" for name, digest in sums(out).items()).encode())


def sums(out):
    names = sorted(entry.name for entry in os.scandir(out) if entry.is_file() and not entry.name.startswith(NAME))
    return {name: hashlib.sha256(packing.read(out, name)).hexdigest() for name in names}


if __name__ == "__main__":
    main(*sys.argv[1:])
