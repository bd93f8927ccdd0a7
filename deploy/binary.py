"""What a built program runs on, read from its own headers: nobody has to say it, and nobody can say it wrongly."""

import re
import struct
import sys
from dataclasses import dataclass

INTERPRETER = 3
ELF_MACHINES = {62: ("x64", "x86_64"), 183: ("arm64", "aarch64")}
MACHO_MACHINES = {0x01000007: ("x64", "x86_64"), 0x0100000C: ("arm64", "arm64")}
PE_MACHINES = {0x8664: ("x64", "x86_64")}
VERNEED = 0x6FFFFFFE
BUILD_VERSION, VERSION_MIN_MACOSX = 0x32, 0x24


@dataclass(frozen=True)
class Program:
    data: bytes
    # As Node names them: `process.platform` and `process.arch`.
    system: str
    machine: str
    # As wheels name them: manylinux_2_36_x86_64, macosx_11_0_arm64. Several for one program have dots between them.
    wheel_tag: str
    # As Rust names them: x86_64-unknown-linux-gnu.
    target: str
    # Carries the list of its crates, as `cargo auditable build` makes it.
    is_auditable: bool
    # The oldest glibc that it runs on, where it needs one: "2.36".
    glibc: str | None = None

    @property
    def file(self):
        """The name of the program's file."""
        return "raincheck.exe" if self.system == "win32" else "raincheck"


def fail(text):
    sys.exit(f"error: {text}")


def read(path):
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror}")
    try:
        if data[:5] == b"\x7fELF\x02":
            return elf(path, data)
        if data[:4] == b"\xcf\xfa\xed\xfe":
            return macho(path, data)
        if data[:2] == b"MZ":
            return pe(path, data)
    except (struct.error, IndexError, ValueError) as error:
        fail(f"{path} is cut short or broken: {error}")
    fail(f"{path} is no 64-bit program of Linux, macOS or Windows: raincheck runs on these")


def elf(path, data):
    (machine,) = struct.unpack_from("<H", data, 18)
    if machine not in ELF_MACHINES:
        fail(f"{path} is for machine {machine} of ELF: packages are made for x86_64 and aarch64")
    sections = list(elf_sections(data))
    needed = [version for section in sections if section["type"] == VERNEED for version in needs(data, section, sections)]
    glibc = [tuple(map(int, found.groups())) for name in needed if (found := re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", name))]
    node, wheel = ELF_MACHINES[machine]
    is_auditable = any(section["name"] == ".dep-v0" for section in sections)
    if glibc:
        # manylinux_2_17 is the oldest that installers still accept.
        version = "{}.{}".format(*max(max(glibc), (2, 17)))
        tag = f"manylinux_{version.replace('.', '_')}_{wheel}"
        return Program(data, "linux", node, tag, f"{wheel}-unknown-linux-gnu", is_auditable, version)
    if loader := interpreter(data):
        fail(f"{path} is loaded by {loader}, and does not use glibc: packages are made of programs that do, and of static ones")
    # A static program runs with either library, and names the oldest system of each kind that installers ask about.
    tags = ("manylinux_2_17", "manylinux2014", "musllinux_1_1")
    tag = ".".join(f"{tag}_{wheel}" for tag in tags)
    return Program(data, "linux", node, tag, f"{wheel}-unknown-linux-musl", is_auditable)


def interpreter(data):
    """The loader that a program names, or None where it is static."""
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for index in range(count):
        kind, _flags, offset = struct.unpack_from("<IIQ", data, table + index * size)
        if kind == INTERPRETER:
            return text(data, offset)
    return None


def elf_sections(data):
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names_at = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQII", data, table + index * size) for index in range(count)]
    names = headers[names_at][4]
    for name, kind, _flags, _address, offset, size, link, info in headers:
        yield {"name": text(data, names + name), "type": kind, "offset": offset, "size": size, "link": link, "info": info}


# The versions of other libraries' symbols that the program needs: a list of libraries, each with a list of versions.
def needs(data, section, sections):
    strings = sections[section["link"]]["offset"]
    library = section["offset"]
    for _ in range(section["info"]):
        _, count, _, first, step = struct.unpack_from("<HHIII", data, library)
        version = library + first
        for _ in range(count):
            _, _, _, name, next_version = struct.unpack_from("<IHHII", data, version)
            yield text(data, strings + name)
            version += next_version
        library += step


def text(data, start):
    return data[start : data.index(b"\0", start)].decode()


def macho(path, data):
    _, machine, _, _, count = struct.unpack_from("<IIIII", data, 0)
    if machine not in MACHO_MACHINES:
        fail(f"{path} is for machine {machine:#x} of macOS: packages are made for x86_64 and arm64")
    node, wheel = MACHO_MACHINES[machine]
    command = 32
    for _ in range(count):
        kind, size = struct.unpack_from("<II", data, command)
        if kind in (BUILD_VERSION, VERSION_MIN_MACOSX):
            at = command + (12 if kind == BUILD_VERSION else 8)
            (oldest,) = struct.unpack_from("<I", data, at)
            major, minor = oldest >> 16, (oldest >> 8) & 0xFF
            # From macOS 11 on, tags name the first number only.
            minor = 0 if major >= 11 else minor
            target = f"{'aarch64' if wheel == 'arm64' else wheel}-apple-darwin"
            return Program(data, "darwin", node, f"macosx_{major}_{minor}_{wheel}", target, b".dep-v0" in data)
        command += size
    fail(f"{path} does not say which macOS it needs")


def pe(path, data):
    (header,) = struct.unpack_from("<I", data, 0x3C)
    mark, machine, count = struct.unpack_from("<4sHH", data, header)
    (optional,) = struct.unpack_from("<H", data, header + 20)
    if mark != b"PE\0\0" or machine not in PE_MACHINES:
        fail(f"{path} is for machine {machine:#x} of Windows: packages are made for x86_64")
    node, wheel = PE_MACHINES[machine]
    table = header + 24 + optional
    names = [struct.unpack_from("<8s", data, table + index * 40)[0].rstrip(b"\0") for index in range(count)]
    # Only Microsoft's linker leaves a header of this name.
    abi = "msvc" if b"Rich" in data[:header] else "gnu"
    return Program(data, "win32", node, "win_amd64", f"{wheel}-pc-windows-{abi}", b".dep-v0" in names)
