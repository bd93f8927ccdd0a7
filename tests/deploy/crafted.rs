//! Programs that are only headers: what they run on is read from these, and the code of one would change nothing.

use super::*;

/// For macOS 11 on its newer machines.
pub(super) fn mach_o() -> Vec<u8> {
    let header = [0xfeed_facf_u32, 0x0100_000c, 0, 2, 1, 24, 0, 0];
    let build_version = [0x32, 24, 1, 11 << 16, 14 << 16, 0];
    let words = header.iter().chain(&build_version);
    words.flat_map(|word| word.to_le_bytes()).collect()
}

/// For macOS 10.12 on its older machines.
pub(super) fn older_mach_o() -> Vec<u8> {
    let mut bytes = mach_o();
    bytes[4..8].copy_from_slice(&0x0100_0007_u32.to_le_bytes());
    bytes[44..48].copy_from_slice(&0x000a_0c00_u32.to_le_bytes());
    bytes
}

/// For Linux: `machine` is the number that ELF has for it, and `loader` is named where the program is not static.
pub(super) fn elf(machine: u16, loader: Option<&str>) -> Vec<u8> {
    let mut bytes = vec![0; 64 + 56 + 64];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"\x7fELF\x02\x01\x01");
    put(18, &machine.to_le_bytes());
    // Programs' headers come after the file's, and those of sections after them: one that is empty.
    put(32, &64_u64.to_le_bytes());
    put(40, &120_u64.to_le_bytes());
    let sizes = [56_u16, u16::from(loader.is_some()), 64, 1, 0];
    for (index, size) in sizes.iter().enumerate() {
        put(54 + 2 * index, &size.to_le_bytes());
    }
    put(64, &3_u32.to_le_bytes());
    put(72, &184_u64.to_le_bytes());
    bytes.extend(loader.unwrap_or_default().bytes());
    bytes.push(0);
    bytes
}

pub(super) const X86_64: u16 = 62;
pub(super) const AARCH64: u16 = 183;

/// For Windows on `x86_64`, with one section.
pub(super) fn pe(section: [u8; 8]) -> Vec<u8> {
    let mut bytes = vec![0; 64 + 24 + 40];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"MZ");
    put(0x3c, &64_u32.to_le_bytes());
    put(64, b"PE\0\0");
    put(68, &0x8664_u16.to_le_bytes());
    put(70, &1_u16.to_le_bytes());
    put(88, &section);
    bytes
}

/// The answer of `deploy/binary.py` about a program, or its refusal.
fn read(folder: &Path, bytes: &[u8]) -> String {
    let program = folder.join("program");
    fs::write(&program, bytes).unwrap();
    let ask = "import binary, sys; program = binary.read(sys.argv[1]); \
        print(program.system, program.machine, program.wheel_tag, program.target, program.file, program.is_auditable)";
    let mut python = packages::python();
    python.args(["-c", ask]).arg(program);
    let text = packages::printed(&python.output().unwrap());
    text.trim().to_owned()
}

#[test]
fn what_a_program_runs_on_is_read_from_it() {
    let out = packages::folder("headers");
    let read = |bytes: &[u8]| read(&out, bytes);
    let mac = "darwin arm64 macosx_11_0_arm64 aarch64-apple-darwin raincheck False";
    assert_eq!(read(&mach_o()), mac);
    let older = "darwin x64 macosx_10_12_x86_64 x86_64-apple-darwin raincheck False";
    assert_eq!(read(&older_mach_o()), older);
    let windows = "win32 x64 win_amd64 x86_64-pc-windows-gnu raincheck.exe";
    assert_eq!(read(&pe(*b".text\0\0\0")), format!("{windows} False"));
    assert_eq!(read(&pe(*b".dep-v0\0")), format!("{windows} True"));
    let fixed = "linux arm64 manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64 aarch64-unknown-linux-musl raincheck False";
    assert_eq!(read(&elf(AARCH64, None)), fixed);
    let own = read(&fs::read(env!("CARGO_BIN_EXE_raincheck")).unwrap());
    let expected = format!("linux {} manylinux_2_", packages::machine());
    assert!(own.starts_with(&expected), "{own}");
}

#[test]
fn a_program_that_cannot_be_packed_is_refused_with_its_reason() {
    let out = packages::folder("refused");
    let refuses = |bytes: &[u8], expected: &str| {
        let text = read(&out, bytes);
        assert!(
            text.starts_with("error: ") && text.contains(expected),
            "{text}"
        );
    };
    refuses(&mach_o()[..40], "is cut short or broken");
    refuses(&pe(*b".text\0\0\0")[..66], "is cut short or broken");
    refuses(
        b"#!/bin/sh\n",
        "is no 64-bit program of Linux, macOS or Windows",
    );
    let loader = "/lib/ld-musl-x86_64.so.1";
    refuses(
        &elf(X86_64, Some(loader)),
        &format!("is loaded by {loader}, and does not use glibc"),
    );
    let mut arm = pe(*b".text\0\0\0");
    arm[68..70].copy_from_slice(&0xaa64_u16.to_le_bytes());
    refuses(&arm, "is for machine 0xaa64 of Windows");
    refuses(&elf(243, None), "is for machine 243 of ELF");
}
