"""Writes the files of a release that name others of its files: python3 -m channels OUT REPOSITORY, in deploy/.

OUT has what deploy/package.sh made for all targets, and REPOSITORY is the address whose releases will have these files. raincheck.rb is
a formula of Homebrew, the manifests are for winget, and install.sh is deploy/install.sh with its version and address. SHA256SUMS is
written anew.
"""

import json
import sys

import binary
import packing
import sums

APPLE = {"arm": "aarch64-apple-darwin", "intel": "x86_64-apple-darwin"}
LINUX = {"arm": "aarch64-unknown-linux-musl", "intel": "x86_64-unknown-linux-musl"}
WINDOWS = "x86_64-pc-windows-gnu"
WINGET = "Raincheck.Raincheck"

FORMULA = """\
class Raincheck < Formula
  desc "{short}"
  homepage "{repository}"
  version "{version}"
  license any_of: ["MIT", "Apache-2.0"]
{systems}
  def install
    bin.install "bin/raincheck"
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/bash-completion/completions/raincheck"
    zsh_completion.install "share/zsh/site-functions/_raincheck"
    fish_completion.install "share/fish/vendor_completions.d/raincheck.fish"
    doc.install Dir["share/doc/raincheck/*"]
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/raincheck --version")
  end
end
"""
ARCHIVE = """\
    on_{machine} do
      url "{url}"
      sha256 "{sum}"
    end
"""
MANIFEST = """\
PackageIdentifier: {winget}
PackageVersion: {version}
{fields}ManifestType: {kind}
ManifestVersion: 1.10.0
"""
# The parts of a manifest, each with its end of the file's name and its own fields.
MANIFESTS = {
    "version": ("", "DefaultLocale: en-US\n"),
    "installer": (
        ".installer",
        """\
InstallerType: zip
NestedInstallerType: portable
NestedInstallerFiles:
- RelativeFilePath: raincheck-{version}-{windows}\\raincheck.exe
  PortableCommandAlias: raincheck
Installers:
- Architecture: x64
  InstallerUrl: {url}
  InstallerSha256: {sum}
""",
    ),
    "defaultLocale": (
        ".locale.en-US",
        """\
PackageLocale: en-US
Publisher: The raincheck authors
PackageName: raincheck
PackageUrl: {repository}
License: MIT OR Apache-2.0
ShortDescription: {description}
Moniker: raincheck
Tags:
- mcp
- proxy
""",
    ),
}


def main(out, repository):
    own = packing.about()
    version = own["version"]
    release = Release(out, repository, version, own["description"])
    packing.write(out, "raincheck.rb", release.formula().encode())
    for kind, (end, fields) in MANIFESTS.items():
        packing.write(out, f"{WINGET}{end}.yaml", release.manifest(kind, fields).encode())
    script = packing.read("deploy/install.sh").decode()
    said = {"version": version, "address": f"{repository}/releases/download"}
    for name, value in said.items():
        script = script.replace(f"\nreleased_{name}=\n", f"\nreleased_{name}={value}\n")
    packing.write(out, "install.sh", script.encode())
    sums.main(out)


class Release:
    def __init__(self, out, repository, version, description):
        self.sums = sums.sums(out)
        self.repository, self.version, self.description = repository, version, description

    def file(self, target, end):
        """The address of an archive, and its sum."""
        name = f"raincheck-{self.version}-{target}.{end}"
        if name not in self.sums:
            binary.fail(f"{name} is missing: the release has archives for all targets")
        return {"url": f"{self.repository}/releases/download/v{self.version}/{name}", "sum": self.sums[name]}

    def formula(self):
        systems = ""
        for system, targets in {"macos": APPLE, "linux": LINUX}.items():
            archives = (ARCHIVE.format(machine=machine, **self.file(target, "tar.gz")) for machine, target in targets.items())
            systems += f"\n  on_{system} do\n" + "\n".join(archives) + "  end\n"
        # Homebrew wants no article there.
        short = self.description.removeprefix("A ")
        return FORMULA.format(systems=systems, short=short[0].upper() + short[1:], **self.about())

    def manifest(self, kind, fields):
        about = self.about() | self.file(WINDOWS, "zip") | {"windows": WINDOWS}
        about |= {"sum": about["sum"].upper(), "description": json.dumps(self.description)}
        return MANIFEST.format(winget=WINGET, kind=kind, fields=fields.format(**about), **self.about())

    def about(self):
        return {"repository": self.repository, "version": self.version, "description": self.description}


main(*sys.argv[1:])
