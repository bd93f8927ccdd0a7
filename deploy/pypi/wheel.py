"""Makes a wheel from a built program: python3 -m pypi.wheel BINARY OUT VERSION SBOM, in deploy/.

The wheel has no Python in it: installers put the program beside `python`. Equal input gives equal bytes.
"""

import base64
import hashlib
import os
import re
import sys
import zipfile

import binary

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The first moment that a ZIP file can tell.
MOMENT = (1980, 1, 1, 0, 0, 0)

METADATA = """\
Metadata-Version: 2.4
Name: raincheck
Version: {version}
Summary: A sidecar reverse proxy that gives unmodified MCP servers the Tasks extension
Keywords: mcp,proxy,sidecar,tasks
License-Expression: MIT OR Apache-2.0
License-File: LICENSE-APACHE
License-File: LICENSE-MIT
Requires-Python: >=3.8
Description-Content-Type: text/markdown

"""
WHEEL = """\
Wheel-Version: 1.0
Generator: raincheck deploy/package.sh
Root-Is-Purelib: false
Tag: {tag}
"""


def main(path, out, version, sbom):
    # PyPI and Cargo write pre-releases in different ways; there has been none yet.
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        binary.fail(f"{version} is no version of three numbers: say here how PyPI writes it")
    program = binary.read(path)
    tag = f"py3-none-{program.wheel_tag}"
    name = f"raincheck-{version}"
    info = f"{name}.dist-info"
    about = METADATA.format(version=version).encode() + read(os.path.join(ROOT, "deploy/package.md"))
    files = [
        (f"{name}.data/scripts/raincheck", program.data, 0o755),
        (f"{info}/METADATA", about, 0o644),
        (f"{info}/WHEEL", WHEEL.format(tag=tag).encode(), 0o644),
        (f"{info}/sboms/raincheck.cdx.json", read(sbom), 0o644),
    ]
    files += [(f"{info}/licenses/{licence}", read(os.path.join(ROOT, licence)), 0o644) for licence in ("LICENSE-APACHE", "LICENSE-MIT")]
    record = "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, data, _ in files)
    record += f"{info}/RECORD,,\n"
    files.append((f"{info}/RECORD", record.encode(), 0o644))
    wheel = os.path.join(out, f"{name}-{tag}.whl")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in files:
            member = zipfile.ZipInfo(name, MOMENT)
            member.external_attr = (0o100000 | mode) << 16
            archive.writestr(member, data, zipfile.ZIP_DEFLATED)
    print(wheel)


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def read(path):
    with open(path, "rb") as file:
        return file.read()


main(*sys.argv[1:])
