"""Makes a wheel from a built program: python3 -m pypi.wheel BINARY OUT VERSION SBOM, in deploy/.

The wheel has no Python in it: installers put the program beside `python`. Equal input gives equal bytes.
"""

import base64
import hashlib
import re
import sys

import binary
import packing

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
Project-URL: Repository, {repository}
Description-Content-Type: text/markdown

"""
WHEEL = """\
Wheel-Version: 1.0
Generator: raincheck deploy/package.sh
Root-Is-Purelib: false
{tags}"""


def main(path, out, version, sbom):
    # PyPI and Cargo write pre-releases in different ways; there has been none yet.
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        binary.fail(f"{version} is no version of three numbers: say here how PyPI writes it")
    program = binary.read(path)
    name = f"raincheck-{version}"
    info = f"{name}.dist-info"
    about = METADATA.format(version=version, repository=packing.about()["repository"]).encode() + packing.read("deploy/package.md")
    tags = "".join(f"Tag: py3-none-{tag}\n" for tag in program.wheel_tag.split("."))
    files = [
        (f"{name}.data/scripts/{program.file}", program.data, 0o755),
        (f"{info}/METADATA", about, 0o644),
        (f"{info}/WHEEL", WHEEL.format(tags=tags).encode(), 0o644),
        (f"{info}/sboms/raincheck.cdx.json", packing.read(sbom), 0o644),
    ]
    files += [(f"{info}/licenses/{licence}", packing.read(licence), 0o644) for licence in packing.LICENCES]
    record = "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, data, _ in files)
    record += f"{info}/RECORD,,\n"
    files.append((f"{info}/RECORD", record.encode(), 0o644))
    packing.write(out, f"{name}-py3-none-{program.wheel_tag}.whl", packing.zipped(files))


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


main(*sys.argv[1:])
