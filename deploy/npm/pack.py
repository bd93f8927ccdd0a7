"""Makes the two packages of npm from a built program: python3 -m npm.pack BINARY OUT VERSION, in deploy/.

raincheck-VERSION.tgz has the launcher, raincheck-SYSTEM-MACHINE-VERSION.tgz the program. Equal input gives equal bytes.
"""

import gzip
import io
import json
import os
import sys
import tarfile

import binary

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def main(path, out, version):
    program = binary.read(path)
    with open(os.path.join(HERE, "package.json")) as file:
        launcher = json.load(file)
    launcher["version"] = version
    launcher["optionalDependencies"] = dict.fromkeys(launcher["optionalDependencies"], version)
    name = f"raincheck-{program.system}-{program.machine}"
    if name not in launcher["optionalDependencies"]:
        binary.fail(f"deploy/npm/package.json does not name {name} in optionalDependencies: nobody would install it")
    platform = {key: launcher[key] for key in ("description", "license")}
    platform |= {"name": name, "version": version, "os": [program.system], "cpu": [program.machine]}
    platform["description"] += f": the program for {program.system}-{program.machine}"
    if program.system == "linux":
        platform["libc"] = ["glibc"]
    write(out, launcher, [("launcher.js", read(os.path.join(HERE, "launcher.js")), 0o755)])
    write(out, platform, [("bin/raincheck", program.data, 0o755)])


def write(out, package, files):
    files = [("package.json", json.dumps(package, indent=2).encode() + b"\n", 0o644), *files]
    files.append(("README.md", read(os.path.join(ROOT, "deploy/package.md")), 0o644))
    files += [(name, read(os.path.join(ROOT, name)), 0o644) for name in ("LICENSE-APACHE", "LICENSE-MIT")]
    path = os.path.join(out, f"{package['name']}-{package['version']}.tgz")
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as zipped:
        with tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, data, mode in files:
                member = tarfile.TarInfo(f"package/{name}")
                member.size, member.mode = len(data), mode
                archive.addfile(member, io.BytesIO(data))
    print(path)


def read(path):
    with open(path, "rb") as file:
        return file.read()


main(*sys.argv[1:])
