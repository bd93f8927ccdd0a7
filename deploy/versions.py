"""Checks before a release, in deploy/:

python3 -m versions check TAG REPOSITORY   ends with an error where the tag, Cargo.toml, the chart, the manifests and CHANGELOG.md differ
python3 -m versions notes                  prints the part of CHANGELOG.md about the version of Cargo.toml
"""

import re
import sys

import binary
import packing

# Files that name the version, each with the expression that finds it.
NAMED = {
    "Cargo.lock": r'\nname = "raincheck"\nversion = "(.+)"',
    "deploy/helm/raincheck/Chart.yaml": r"(?m)^(?:version|appVersion): (.+)$",
    "deploy/compose.yaml": r"image: raincheck:(\S+)",
    "deploy/kubernetes/component/sidecar.yaml": r"image: raincheck:(\S+)",
}


def main(what, *arguments):
    {"check": check, "notes": notes}[what](*arguments)


def check(tag, repository):
    wrong = list(differences(tag, repository))
    if wrong:
        binary.fail("this cannot be released:\n" + "\n".join(wrong))


def differences(tag, repository):
    own = packing.about()
    version = own["version"]
    if tag != f"v{version}":
        yield f"the tag is {tag}, and Cargo.toml has the version {version}"
    if own["repository"] != repository:
        yield f"repository in Cargo.toml is {own['repository']}, and this one is {repository}: `cargo binstall` would look there"
    for name, expression in NAMED.items():
        found = set(re.findall(expression, packing.read(name).decode()))
        if found != {version}:
            yield f"{name} names {', '.join(sorted(found)) or 'no version'}, and Cargo.toml {version}"
    if not section(version):
        yield f"CHANGELOG.md has no part with the heading: ## {version}"
    if section("Unreleased"):
        yield "CHANGELOG.md has a part Unreleased: give it the number"


def notes():
    text = section(packing.about()["version"])
    if not text:
        binary.fail("CHANGELOG.md has no part about this version")
    print(text)


def section(heading):
    """The text below a heading of the second level, which may go on after a blank, such as `## 0.2.0 (2027-01-31)`."""
    parts = re.split(r"(?m)^## (.+)\n", packing.read("CHANGELOG.md").decode())
    headings = (title.split(" ")[0] for title in parts[1::2])
    return dict(zip(headings, parts[2::2])).get(heading, "").strip()


main(*sys.argv[1:])
