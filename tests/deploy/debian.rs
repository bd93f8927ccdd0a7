//! The package for Debian: installed from its file by dpkg, into a folder that it takes for the whole system.

use std::process::Command;

use super::*;
use crate::crafted::{AARCH64, elf};
use crate::packages::{VERSION, file, folder, python, succeeds, without_symbols};

fn package(program: &Path, out: &Path, here: &Path) -> PathBuf {
    let mut make = python();
    make.args(["-m", "deb"]).args([program, out]).arg(VERSION);
    succeeds(make.arg(here));
    file(out, ".deb")
}

#[test]
fn the_package_of_debian_is_installed_and_removed() {
    let out = folder("debian");
    let program = without_symbols(&out);
    let package = package(&program, &out, &program);
    let root = out.join("root");
    for name in ["info", "updates"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(name)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = |arguments: &[&str]| {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", root.display()));
        // Scripts of packages run outside of the root, with DPKG_ROOT set. The libraries of the program are not in there.
        dpkg.args(["--force-script-chrootless", "--force-depends"]);
        dpkg.args(["--force-not-root", "--log=/dev/null"]);
        succeeds(dpkg.args(arguments))
    };
    dpkg(&["--install", package.to_str().unwrap()]);
    assert_eq!(dpkg(&["--verify", "raincheck"]), "");
    let version = succeeds(Command::new(root.join("usr/bin/raincheck")).arg("--version"));
    assert_eq!(version.trim(), format!("raincheck {VERSION}"));

    let unit = root.join("usr/lib/systemd/system/raincheck.service");
    let unit = fs::read_to_string(unit).unwrap();
    let started = "ExecStart=/usr/bin/raincheck run ";
    assert!(unit.contains(started) && !unit.contains("/usr/local/"));
    let page = root.join("usr/share/man/man1/raincheck.1.gz");
    let page = succeeds(
        Command::new("gzip")
            .args(["--decompress", "--stdout"])
            .arg(page),
    );
    assert!(page.contains(".TH raincheck"), "{page}");
    let licences = root.join("usr/share/doc/raincheck/copyright");
    let licences = fs::read_to_string(licences).unwrap();
    assert!(licences.contains("common-licenses/Apache-2.0"));
    assert!(licences.contains("Permission is hereby granted"));

    dpkg(&["--remove", "raincheck"]);
    assert!(!root.join("usr/bin/raincheck").exists());
}

/// One that uses glibc names the version that it needs, and a static one nothing.
#[test]
fn the_package_of_debian_depends_on_what_the_program_needs() {
    let out = folder("debian-control");
    let here = Path::new(env!("CARGO_BIN_EXE_raincheck"));
    let control = |package: &Path| succeeds(Command::new("dpkg-deb").arg("--info").arg(package));
    let small = out.join("small");
    fs::write(&small, elf(AARCH64, None)).unwrap();
    let own = control(&package(&small, &out, here));
    assert!(own.contains(" Architecture: arm64\n"), "{own}");
    assert!(own.contains(&format!(" Version: {VERSION}\n")), "{own}");
    assert!(!own.contains(" Depends:"), "{own}");
    let listed = succeeds(
        Command::new("dpkg-deb")
            .arg("--contents")
            .arg(file(&out, ".deb")),
    );
    assert!(
        listed.lines().all(|line| line.contains(" 0/0 ")),
        "{listed}"
    );
    assert!(
        !listed.contains("./etc/"),
        "no settings of its own: {listed}"
    );

    let glibc = folder("debian-glibc");
    let own = control(&package(&without_symbols(&glibc), &glibc, here));
    assert!(own.contains(" Depends: libc6 (>= 2."), "{own}");
}
