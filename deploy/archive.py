"""Makes the archive for installation by hand: python3 -m archive BINARY OUT VERSION HERE, in deploy/.

raincheck-VERSION-TARGET.tar.gz unpacks into /usr/local: the program, its pages for `man`, what shells complete, an example of the
settings, and the unit of systemd. For Windows, raincheck-VERSION-TARGET.zip has the program and its documents. HERE is a program of the
same version that runs on this machine, and makes the pages and completions. Equal input gives equal bytes.
"""

import os
import subprocess
import sys
import tempfile

import binary
import packing

# Where each shell looks for what packages bring.
COMPLETIONS = {
    "bash": "share/bash-completion/completions/raincheck",
    "zsh": "share/zsh/site-functions/_raincheck",
    "fish": "share/fish/vendor_completions.d/raincheck.fish",
}
DOCUMENTS = ("config.example.toml", "CHANGELOG.md", *packing.LICENCES)
UNIT = "lib/systemd/system/raincheck.service"


def main(path, out, version, here):
    program = binary.read(path)
    name = f"raincheck-{version}-{program.target}"
    if program.system == "win32":
        files = [(program.file, program.data, 0o755), ("raincheck.ps1", run(here, "completions", "powershell"), 0o644)]
        files += [(document, packing.read(document), 0o644) for document in DOCUMENTS]
        make, end = packing.zipped, "zip"
    else:
        files = [("bin/raincheck", program.data, 0o755), *pages(here)]
        files += [(f"share/doc/raincheck/{document}", packing.read(document), 0o644) for document in DOCUMENTS]
        if program.system == "linux":
            files.append((UNIT, unit(), 0o644))
        make, end = packing.tar_gz, "tar.gz"
    packing.write(out, f"{name}.{end}", make((f"{name}/{path}", data, mode) for path, data, mode in sorted(files)))


def pages(here):
    """The completions, and the pages for `man`, below a prefix such as /usr/local."""
    files = [(name, run(here, "completions", shell), 0o644) for shell, name in COMPLETIONS.items()]
    with tempfile.TemporaryDirectory() as folder:
        run(here, "man", folder)
        files += [(f"share/man/man1/{name}", packing.read(folder, name), 0o644) for name in os.listdir(folder)]
    return files


def unit():
    return packing.read("deploy/systemd/raincheck.service")


def run(program, *arguments):
    try:
        return subprocess.run([program, *arguments], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        binary.fail(f"{program} does not run here, and has to make the pages and completions: name one that does as third argument: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
