//! The files of a release, made as the workflow makes them: of programs for all targets, all but one of which are only headers.

use std::process::{Command, Output};

use serde_json::Value;

use super::*;
use crate::crafted::{AARCH64, X86_64, elf, mach_o, older_mach_o, pe};
use crate::packages::{VERSION, file, folder, printed, python, succeeds, without_symbols};

pub(super) const REPOSITORY: &str = "https://code.example.com/owner/raincheck";

/// A step of deploy/release.sh.
pub(super) fn step(arguments: &[&str]) -> Command {
    let mut step = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/release.sh"));
    step.args(arguments);
    step
}

fn files(name: &str) -> PathBuf {
    let out = folder(name);
    let programs = out.join("programs");
    let put = |target: &str, file: &str, bytes: &[u8]| {
        fs::create_dir_all(programs.join(target)).unwrap();
        fs::write(programs.join(target).join(file), bytes).unwrap();
    };
    put("a", "raincheck", &elf(X86_64, None));
    put("b", "raincheck", &elf(AARCH64, None));
    put("c", "raincheck", &mach_o());
    put("d", "raincheck", &older_mach_o());
    put("e", "raincheck.exe", &pe(*b".dep-v0\0"));
    fs::create_dir(programs.join("here")).unwrap();
    fs::rename(without_symbols(&out), programs.join("here/raincheck")).unwrap();
    let files = out.join("files");
    let [from, to] = [&programs, &files].map(|path| path.to_str().unwrap());
    let output = step(&["files", from, to, REPOSITORY]).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    files
}

#[test]
fn a_release_has_what_each_channel_wants() {
    let files = files("release");
    let sums = sums(&files);
    for target in [
        "x86_64-unknown-linux-musl.tar.gz",
        "aarch64-unknown-linux-musl.tar.gz",
        "aarch64-apple-darwin.tar.gz",
        "x86_64-apple-darwin.tar.gz",
        "x86_64-pc-windows-gnu.zip",
        "x86_64-pc-windows-gnu.cdx.json",
        "linux-x64.mcpb",
        "darwin-arm64.mcpb",
        "win32-x64.mcpb",
        "py3-none-win_amd64.whl",
        "py3-none-macosx_11_0_arm64.whl",
    ] {
        let name = format!("raincheck-{VERSION}-{target}");
        assert!(sums.contains_key(&name), "{name} in {sums:?}");
    }
    formula_names_its_files(&files, &sums);
    winget_finds_the_program(&files, &sums);
    the_bundle_starts_what_it_has(&files);
    npm_takes_each_package_where_it_runs(&files);
    pip_takes_a_static_program_anywhere(&files);
    let script = fs::read_to_string(files.join("install.sh")).unwrap();
    assert!(script.contains(&format!("\nreleased_version={VERSION}\n")));
    let address = format!("\nreleased_address={REPOSITORY}/releases/download\n");
    assert!(script.contains(&address));
    equal_input_gives_equal_bytes(&files, &sums);
}

/// The sums in SHA256SUMS, which are there for all files and are right.
fn sums(files: &Path) -> BTreeMap<String, String> {
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--quiet", "--strict", "SHA256SUMS"]);
    succeeds(check.current_dir(files));
    let text = fs::read_to_string(files.join("SHA256SUMS")).unwrap();
    let pair = |line: &str| {
        let (sum, name) = line.split_once("  ").unwrap();
        (name.to_owned(), sum.to_owned())
    };
    let sums: BTreeMap<_, _> = text.lines().map(pair).collect();
    assert_eq!(sums.len() + 1, fs::read_dir(files).unwrap().count());
    sums
}

fn formula_names_its_files(files: &Path, sums: &BTreeMap<String, String>) {
    let path = files.join("raincheck.rb");
    if let Ok(output) = Command::new("ruby").arg("-c").arg(&path).output() {
        assert!(output.status.success(), "{}", printed(&output));
    }
    let text = fs::read_to_string(&path).unwrap();
    let quoted = |word: &str| -> Vec<String> {
        let lines = text.lines().map(str::trim);
        let values = lines.filter_map(|line| line.strip_prefix(word)?.strip_prefix(" \""));
        values
            .map(|value| value.trim_end_matches('"').to_owned())
            .collect()
    };
    let (addresses, named) = (quoted("url"), quoted("sha256"));
    assert_eq!((addresses.len(), named.len()), (4, 4), "{text}");
    for (address, sum) in addresses.iter().zip(named) {
        let base = format!("{REPOSITORY}/releases/download/v{VERSION}/");
        let name = address.strip_prefix(&base).unwrap();
        assert_eq!(sums[name], sum, "{name}");
    }
}

fn winget_finds_the_program(files: &Path, sums: &BTreeMap<String, String>) {
    let read = |end: &str| {
        let text = fs::read_to_string(files.join(format!("Raincheck.Raincheck{end}.yaml")));
        YamlLoader::load_from_str(&text.unwrap()).unwrap().remove(0)
    };
    for (end, kind) in [
        ("", "version"),
        (".installer", "installer"),
        (".locale.en-US", "defaultLocale"),
    ] {
        let manifest = read(end);
        let text = |name: &str| manifest[name].as_str().unwrap().to_owned();
        assert_eq!(text("PackageIdentifier"), "Raincheck.Raincheck");
        assert_eq!(text("PackageVersion"), VERSION);
        assert_eq!(
            (text("ManifestType"), text("ManifestVersion")),
            (kind.into(), "1.10.0".into())
        );
    }
    assert_eq!(
        read("")["DefaultLocale"],
        read(".locale.en-US")["PackageLocale"]
    );
    let manifest = read(".installer");
    let installer = &manifest["Installers"][0];
    let name = format!("raincheck-{VERSION}-x86_64-pc-windows-gnu.zip");
    let address = installer["InstallerUrl"].as_str().unwrap();
    assert_eq!(
        address,
        format!("{REPOSITORY}/releases/download/v{VERSION}/{name}")
    );
    let sum = installer["InstallerSha256"].as_str().unwrap();
    assert_eq!(sum, sums[&name].to_uppercase());
    let nested = &manifest["NestedInstallerFiles"][0]["RelativeFilePath"];
    let nested = nested.as_str().unwrap().replace('\\', "/");
    assert_eq!(unpacked(&files.join(name), &nested), pe(*b".dep-v0\0"));
}

/// The bytes of a file in a ZIP file.
fn unpacked(archive: &Path, name: &str) -> Vec<u8> {
    let ask = "import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))";
    let mut python = Command::new("python3");
    let output = python.args(["-c", ask]).arg(archive).arg(name).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    output.stdout
}

fn the_bundle_starts_what_it_has(files: &Path) {
    let bundle = file(files, "win32-x64.mcpb");
    let manifest: Value = serde_json::from_slice(&unpacked(&bundle, "manifest.json")).unwrap();
    let server = &manifest["server"];
    let entry = server["entry_point"].as_str().unwrap();
    assert_eq!(unpacked(&bundle, entry), pe(*b".dep-v0\0"));
    assert_eq!(
        server["mcp_config"]["command"],
        format!("${{__dirname}}/{entry}")
    );
    assert_eq!(server["mcp_config"]["args"][2], "${user_config.upstream}");
    assert_eq!(manifest["user_config"]["upstream"]["required"], true);
    assert_eq!(manifest["compatibility"]["platforms"][0], "win32");
    assert_eq!(manifest["version"], VERSION);
}

fn npm_takes_each_package_where_it_runs(files: &Path) {
    let read = |name: &str| -> Value {
        let mut unpack = Command::new("tar");
        unpack.args(["--extract", "--gzip", "--to-stdout", "--file"]);
        unpack.arg(files.join(format!("{name}-{VERSION}.tgz")));
        serde_json::from_str(&succeeds(unpack.arg("package/package.json"))).unwrap()
    };
    let launcher = read("raincheck");
    let programs = launcher["optionalDependencies"].as_object().unwrap();
    assert_eq!(programs.len(), 5);
    for (name, version) in programs {
        let package = read(name);
        assert_eq!(version, VERSION);
        let [os, cpu] = ["os", "cpu"].map(|key| package[key][0].as_str().unwrap());
        assert_eq!(*name, format!("raincheck-{os}-{cpu}"));
        // The last one that was packed for this machine is the one that runs here.
        let is_own = *name == format!("raincheck-linux-{}", packages::machine());
        assert_eq!(package["libc"][0] == "glibc", is_own, "{name}");
    }
}

fn pip_takes_a_static_program_anywhere(files: &Path) {
    let wheel = file(files, "musllinux_1_1_aarch64.whl");
    for platform in ["manylinux_2_17", "manylinux2014", "musllinux_1_1"] {
        let mut install = Command::new("python3");
        install.args([
            "-m",
            "pip",
            "install",
            "--no-index",
            "--no-deps",
            "--dry-run",
        ]);
        install.args(["--only-binary=:all:", "--disable-pip-version-check"]);
        install.arg(format!("--platform={platform}_aarch64"));
        install.arg("--target").arg(files.join("nowhere"));
        let said = succeeds(install.arg(&wheel));
        assert!(said.contains("Would install raincheck"), "{said}");
    }
}

/// On another day, too.
fn equal_input_gives_equal_bytes(files: &Path, sums: &BTreeMap<String, String>) {
    let out = folder("release-again");
    let programs = files.with_file_name("programs");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/package.sh");
    let mut again = Command::new(script);
    again.arg(programs.join("b/raincheck")).arg(&out);
    succeeds(again.arg(programs.join("here/raincheck")));
    let text = fs::read_to_string(out.join("SHA256SUMS")).unwrap();
    assert!(text.lines().count() > 6, "{text}");
    for line in text.lines() {
        let (sum, name) = line.split_once("  ").unwrap();
        assert_eq!(sums[name], sum, "{name}");
    }
}

#[test]
fn a_release_without_a_target_or_a_program_that_runs_is_refused() {
    let out = folder("release-parts");
    fs::create_dir_all(out.join("programs/a")).unwrap();
    let program = out.join("programs/a/raincheck");
    fs::write(&program, elf(X86_64, None)).unwrap();
    let [programs, files] = ["programs", "files"].map(|name| out.join(name));
    let [from, to] = [&programs, &files].map(|path| path.to_str().unwrap());
    let refused = step(&["files", from, to, REPOSITORY]).output().unwrap();
    assert!(!refused.status.success());
    assert!(
        printed(&refused).contains("none of the programs in"),
        "{}",
        printed(&refused)
    );

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/package.sh");
    let refused = Command::new(script)
        .arg(&program)
        .arg(&files)
        .output()
        .unwrap();
    assert!(!refused.status.success());
    assert!(
        printed(&refused).contains("does not run here as raincheck"),
        "{}",
        printed(&refused)
    );

    let mut channels = python();
    channels
        .args(["-m", "channels"])
        .arg(&files)
        .arg(REPOSITORY);
    let refused = channels.output().unwrap();
    assert!(!refused.status.success());
    assert!(
        printed(&refused).contains("is missing: the release has archives for all targets"),
        "{}",
        printed(&refused)
    );
}

/// The files that name the version, and what reads them, in a folder where they can be changed.
fn copied(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let copy = folder(name);
    for name in [
        "Cargo.toml",
        "Cargo.lock",
        "CHANGELOG.md",
        "deploy/binary.py",
        "deploy/compose.yaml",
        "deploy/helm/raincheck/Chart.yaml",
        "deploy/kubernetes/component/sidecar.yaml",
        "deploy/packing.py",
        "deploy/release.sh",
        "deploy/versions.py",
    ] {
        fs::create_dir_all(copy.join(name).parent().unwrap()).unwrap();
        fs::copy(root.join(name), copy.join(name)).unwrap();
    }
    copy
}

#[test]
fn a_release_starts_only_where_all_names_agree() {
    let copy = copied("versions");
    let run = |arguments: &[&str]| -> Output {
        let mut step = Command::new(copy.join("deploy/release.sh"));
        step.args(arguments).output().unwrap()
    };
    let change = |name: &str, from: &str, to: &str| {
        let text = fs::read_to_string(copy.join(name)).unwrap();
        assert!(text.contains(from), "{name}: {from}");
        fs::write(copy.join(name), text.replacen(from, to, 1)).unwrap();
    };
    let tag = format!("v{VERSION}");
    change(
        "CHANGELOG.md",
        "\n## Unreleased\n",
        &format!("\n## {VERSION} (2027-01-31)\n"),
    );
    let own = fs::read_to_string(copy.join("Cargo.toml")).unwrap();
    let own = own
        .lines()
        .find(|line| line.starts_with("repository = "))
        .unwrap();
    change("Cargo.toml", own, &format!("repository = \"{REPOSITORY}\""));
    let agreed = run(&["check", &tag, REPOSITORY]);
    assert!(agreed.status.success(), "{}", printed(&agreed));
    assert!(printed(&run(&["notes"])).contains("The first release."));

    change("CHANGELOG.md", "\n## ", "\n## Unreleased\n\nMore.\n\n## ");
    change(
        "deploy/compose.yaml",
        &format!("image: raincheck:{VERSION}"),
        "image: raincheck:9.9.9",
    );
    let refused = run(&["check", "v9.9.8", "https://code.example.com/fork"]);
    assert_eq!(refused.status.code(), Some(1));
    for expected in [
        "the tag is v9.9.8",
        "this one is https://code.example.com/fork",
        "deploy/compose.yaml names 9.9.9",
        "CHANGELOG.md has a part Unreleased",
    ] {
        assert!(
            printed(&refused).contains(expected),
            "{}",
            printed(&refused)
        );
    }
}

/// Until the owner has set it, nothing can be released.
#[test]
fn the_address_of_the_repository_is_set_in_one_place() {
    let unset = step(&["check", "v0.0.0", REPOSITORY]).output().unwrap();
    assert!(!unset.status.success());
    let all = [
        "Cargo.toml",
        "README.md",
        "deploy/npm/package.json",
        "deploy/helm/raincheck/Chart.yaml",
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = all.iter().filter(|name| {
        let text = fs::read_to_string(root.join(name)).unwrap();
        text.contains("repository.invalid")
    });
    assert!(named.count() <= 1);
}
