"""Makes the two packages of npm from a built program: python3 -m npm.pack BINARY OUT VERSION, in deploy/.

raincheck-VERSION.tgz has the launcher, raincheck-SYSTEM-MACHINE-VERSION.tgz the program. Equal input gives equal bytes.
"""

import json
import sys

import binary
import packing


def main(path, out, version):
    program = binary.read(path)
    launcher = json.loads(packing.read("deploy/npm/package.json"))
    launcher["version"] = version
    # The provenance of a package is checked against this.
    launcher["repository"] = {"type": "git", "url": f"git+{packing.about()['repository']}.git"}
    launcher["optionalDependencies"] = dict.fromkeys(launcher["optionalDependencies"], version)
    name = f"raincheck-{program.system}-{program.machine}"
    if name not in launcher["optionalDependencies"]:
        binary.fail(f"deploy/npm/package.json does not name {name} in optionalDependencies: nobody would install it")
    platform = {key: launcher[key] for key in ("description", "license", "repository")}
    platform |= {"name": name, "version": version, "os": [program.system], "cpu": [program.machine]}
    platform["description"] += f": the program for {program.system}-{program.machine}"
    if program.glibc:
        platform["libc"] = ["glibc"]
    write(out, launcher, [("launcher.js", packing.read("deploy/npm/launcher.js"), 0o755)])
    write(out, platform, [(f"bin/{program.file}", program.data, 0o755)])


def write(out, package, files):
    files = [("package.json", json.dumps(package, indent=2).encode() + b"\n", 0o644), *files]
    files.append(("README.md", packing.read("deploy/package.md"), 0o644))
    files += [(name, packing.read(name), 0o644) for name in packing.LICENCES]
    members = [(f"package/{name}", data, mode) for name, data, mode in files]
    packing.write(out, f"{package['name']}-{package['version']}.tgz", packing.tar_gz(members))


main(*sys.argv[1:])
