"""Writes the list of all crates that a program is made of, as CycloneDX 1.5: python3 -m sbom BINARY FILE VERSION, in deploy/.

From `cargo metadata` and Cargo.lock for the system of the program, without what only tests and build scripts need. Equal
input gives equal bytes.
"""

import json
import os
import subprocess
import sys
import tomllib
import uuid

import binary

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main(program, path, version):
    target = binary.read(program).target
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    command += ["--manifest-path", os.path.join(ROOT, "Cargo.toml")]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    edges = {node["id"]: runtime_dependencies(node) for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    reached, waiting = set(), [root]
    while waiting:
        package = waiting.pop()
        if package not in reached:
            reached.add(package)
            waiting += edges[package]
    with open(os.path.join(ROOT, "Cargo.lock"), "rb") as file:
        checksums = {(one["name"], one["version"]): one.get("checksum") for one in tomllib.load(file)["package"]}
    components = {purl(packages[one]): component(packages[one], checksums) for one in reached}
    own = components.pop(purl(packages[root])) | {"type": "application"}
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own, "tools": {"components": [{"type": "application", "name": "deploy/sbom.py"}]}},
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": sorted(
            ({"ref": purl(packages[one]), "dependsOn": sorted({purl(packages[other]) for other in edges[one]})} for one in reached),
            key=lambda dependency: dependency["ref"],
        ),
    }
    if own["version"] != version:
        binary.fail(f"Cargo.toml says {own['version']}, not {version}")
    bom["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(bom, sort_keys=True)).urn
    with open(path, "w") as file:
        json.dump(bom, file, indent=1)
        file.write("\n")
    print(path)


# Kind `None` is what the program is made of; the others are "dev" and "build".
def runtime_dependencies(node):
    return [one["pkg"] for one in node["deps"] if any(kind["kind"] is None for kind in one["dep_kinds"])]


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    found = {"type": "library", "bom-ref": purl(package), "name": package["name"], "version": package["version"], "purl": purl(package)}
    if package["license"]:
        # Old crates write a slash for "or".
        found["licenses"] = [{"expression": package["license"].replace(" / ", " OR ").replace("/", " OR ")}]
    if checksum := checksums.get((package["name"], package["version"])):
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return found


main(*sys.argv[1:])
