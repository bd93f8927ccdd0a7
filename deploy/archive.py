"""Makes the archive for installation by hand: python3 -m archive BINARY OUT VERSION, in deploy/.

raincheck-VERSION-TARGET.tar.gz unpacks into /usr/local: the program, its pages for `man`, what shells complete, an example of the
settings, and the unit of systemd. The program makes the pages and completions itself, so it must run here. Equal input gives equal bytes.
"""

import gzip
import io
import os
import subprocess
import sys
import tarfile
import tempfile

import binary

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
# Where each shell looks for what packages bring.
COMPLETIONS = {
    "bash": "share/bash-completion/completions/raincheck",
    "zsh": "share/zsh/site-functions/_raincheck",
    "fish": "share/fish/vendor_completions.d/raincheck.fish",
}
DOCUMENTS = ("config.example.toml", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT")


def main(path, out, version):
    program = binary.read(path)
    files = [("bin/raincheck", program.data, 0o755)]
    files += [(name, run(path, "completions", shell), 0o644) for shell, name in COMPLETIONS.items()]
    with tempfile.TemporaryDirectory() as folder:
        run(path, "man", folder)
        files += [(f"share/man/man1/{name}", read(os.path.join(folder, name)), 0o644) for name in os.listdir(folder)]
    files += [(f"share/doc/raincheck/{name}", read(os.path.join(ROOT, name)), 0o644) for name in DOCUMENTS]
    if program.system == "linux":
        files.append(("lib/systemd/system/raincheck.service", read(os.path.join(HERE, "systemd/raincheck.service")), 0o644))
    name = f"raincheck-{version}-{program.target}"
    target = os.path.join(out, f"{name}.tar.gz")
    with open(target, "wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as zipped:
        with tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for path, data, mode in sorted(files):
                member = tarfile.TarInfo(f"{name}/{path}")
                member.size, member.mode = len(data), mode
                archive.addfile(member, io.BytesIO(data))
    print(target)


def run(program, *arguments):
    try:
        return subprocess.run([program, *arguments], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        binary.fail(f"{program} does not run here, and has to make its own pages and completions: {error}")


def read(path):
    with open(path, "rb") as file:
        return file.read()


main(*sys.argv[1:])
