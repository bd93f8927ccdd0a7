"""Files of packages, written so that equal input gives equal bytes. A member is a name, its bytes and its mode."""

import gzip
import io
import os
import tarfile
import tomllib
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LICENCES = ("LICENSE-APACHE", "LICENSE-MIT")
# The first moment that a ZIP file can hold.
MOMENT = (1980, 1, 1, 0, 0, 0)


def read(*path):
    """The bytes of a file; a path that is not absolute is one of the repository."""
    with open(os.path.join(ROOT, *path), "rb") as file:
        return file.read()


def about():
    """Our part of Cargo.toml."""
    return tomllib.loads(read("Cargo.toml").decode())["package"]


def tar_gz(members, folders=()):
    """A compressed tar file, as bytes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in folders:
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(member)
        for name, data, mode in members:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    return gz(raw.getvalue())


def gz(data):
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", 6, packed, mtime=0) as file:
        file.write(data)
    return packed.getvalue()


def zipped(members):
    """A ZIP file, as bytes."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in members:
            member = zipfile.ZipInfo(name, MOMENT)
            member.create_system = 3
            member.external_attr = (0o100000 | mode) << 16
            archive.writestr(member, data, zipfile.ZIP_DEFLATED)
    return raw.getvalue()


def write(out, name, data):
    """Writes a file of a release and prints its path."""
    path = os.path.join(out, name)
    with open(path, "wb") as file:
        file.write(data)
    print(path)
