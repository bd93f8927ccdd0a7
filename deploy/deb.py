"""Makes a package for Debian and Ubuntu: python3 -m deb BINARY OUT VERSION HERE, in deploy/.

raincheck_VERSION_ARCHITECTURE.deb has what the archive has, where Debian wants it. The service is not started: it needs settings first.
HERE is as for the archive. Equal input gives equal bytes.
"""

import hashlib
import os
import sys

import archive
import binary
import packing

ARCHITECTURES = {"x64": "amd64", "arm64": "arm64"}
CONTROL = """\
Package: raincheck
Version: {version}
Architecture: {architecture}
Maintainer: The raincheck authors
Installed-Size: {size}
{depends}Section: net
Priority: optional
Description: sidecar reverse proxy for MCP servers with slow tools
 raincheck gives unmodified MCP servers the Tasks extension: a client that knows
 Tasks gets the id of a task in place of a slow answer, and fetches the result
 later.
"""
COPYRIGHT = """\
Copyright (c) The raincheck authors. MIT or Apache-2.0, as you like: the text of Apache-2.0 is in
/usr/share/common-licenses/Apache-2.0, and that of MIT is this.

"""
# A service whose program is gone would run on until the machine starts again.
BEFORE_REMOVAL = b"""\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
  systemctl --no-reload disable --now raincheck.service || true
fi
"""


def main(path, out, version, here):
    program = binary.read(path)
    architecture = ARCHITECTURES[program.machine]
    members = files(program, here)
    size = sum(-(-len(data) // 1024) for _, data, _ in members)
    # A static program depends on nothing.
    depends = f"Depends: libc6 (>= {program.glibc}), libgcc-s1\n" if program.glibc else ""
    control = CONTROL.format(version=version, architecture=architecture, size=size, depends=depends).encode()
    sums = "".join(f"{hashlib.md5(data).hexdigest()}  {name}\n" for name, data, _ in members).encode()
    about = [("./control", control, 0o644), ("./md5sums", sums, 0o644), ("./prerm", BEFORE_REMOVAL, 0o755)]
    package = b"!<arch>\n" + member("debian-binary", b"2.0\n")
    package += member("control.tar.gz", packing.tar_gz(about, ["./"]))
    package += member("data.tar.gz", packing.tar_gz([(f"./{name}", data, mode) for name, data, mode in members], folders(members)))
    packing.write(out, f"raincheck_{version}_{architecture}.deb", package)


def files(program, here):
    found = [("usr/bin/raincheck", program.data, 0o755)]
    for name, data, mode in archive.pages(here):
        is_page = name.startswith("share/man/")
        found.append((f"usr/{name}.gz", packing.gz(data), mode) if is_page else (f"usr/{name}", data, mode))
    # zsh of Debian looks here.
    found = [(name.replace("zsh/site-functions", "zsh/vendor-completions"), data, mode) for name, data, mode in found]
    # Above the first part are the steps of an installation by hand.
    unit = archive.unit()
    unit = unit[unit.index(b"[Unit]") :].replace(b"/usr/local/bin/", b"/usr/bin/")
    found.append((f"usr/{archive.UNIT}", unit, 0o644))
    documents = {
        "changelog.gz": packing.gz(packing.read("CHANGELOG.md")),
        "config.example.toml": packing.read("config.example.toml"),
        "copyright": COPYRIGHT.encode() + packing.read("LICENSE-MIT"),
    }
    return sorted(found + [(f"usr/share/doc/raincheck/{name}", data, 0o644) for name, data in documents.items()])


def folders(members):
    """All folders of the files, those above first: dpkg makes none that is not named."""
    found = {"./"}
    for name, _, _ in members:
        while name := os.path.dirname(name):
            found.add(f"./{name}/")
    return sorted(found)


def member(name, data):
    """A member of an ar file."""
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
    return header + data + b"\n" * (len(data) % 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
