//! The packages for npm and `PyPI`, and the list of crates: made from this build, installed from their files, run.

use std::fs::File;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::eventually::eventually_blocking;

const PATIENCE: Duration = Duration::from_secs(30);
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An empty folder of this name.
pub(super) fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("packages-{name}"));
    if path.exists() {
        fs::remove_dir_all(&path).unwrap();
    }
    fs::create_dir_all(&path).unwrap();
    path
}

/// What `deploy/package.sh` makes of a program.
fn package(binary: &Path, out: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/package.sh");
    Command::new(script).arg(binary).arg(out).output().unwrap()
}

/// Python that finds what is in `deploy/`.
pub(super) fn python() -> Command {
    let mut python = Command::new("python3");
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    python.arg("-B").env("PYTHONPATH", deploy);
    python
}

pub(super) fn printed(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

pub(super) fn succeeds(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", printed(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The file in a folder with this end: there is one.
pub(super) fn file(folder: &Path, end: &str) -> PathBuf {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().ends_with(end))
        .collect();
    assert_eq!(found.len(), 1, "{end} in {found:?}");
    found.remove(0)
}

pub(super) fn machine() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "x64"
    }
}

#[test]
fn the_packages_of_npm_run_from_their_files_and_the_list_of_crates_is_whole() {
    let out = folder("all");
    let made = package(&without_symbols(&out), &out);
    assert!(made.status.success(), "{}", printed(&made));
    let warning = "!!! THE PROGRAM DOES NOT CARRY THE LIST OF ITS CRATES";
    assert!(printed(&made).contains(warning), "{}", printed(&made));
    is_whole(&file(&out, ".cdx.json"));
    for end in [".tar.gz", ".deb", ".mcpb", "SHA256SUMS"] {
        assert!(printed(&made).contains(file(&out, end).to_str().unwrap()));
    }

    let program = out.join(format!("raincheck-linux-{}-{VERSION}.tgz", machine()));
    let launcher = out.join(format!("raincheck-{VERSION}.tgz"));
    let here = out.join("project");
    fs::create_dir(&here).unwrap();
    let mut install = Command::new("npm");
    install.args(["install", "--offline", "--no-audit", "--no-fund"]);
    succeeds(install.arg(&launcher).arg(&program).current_dir(&here));
    let mut npx = Command::new("npx");
    npx.args(["--offline", "raincheck", "--version"]);
    let version = succeeds(npx.current_dir(&here));
    assert_eq!(version.trim(), format!("raincheck {VERSION}"));

    signals_and_exit_codes_pass(&here);
    is_refused_with_words(&here);
}

/// The build of this test, small: what is not run need not be packed.
pub(super) fn without_symbols(folder: &Path) -> PathBuf {
    let binary = folder.join("raincheck");
    let built = env!("CARGO_BIN_EXE_raincheck");
    succeeds(Command::new("strip").arg("-o").arg(&binary).arg(built));
    binary
}

fn signals_and_exit_codes_pass(project: &Path) {
    let launcher = || Command::new(project.join("node_modules/.bin/raincheck"));
    let wrong = launcher().arg("--no-such-flag").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{}", printed(&wrong));

    // Drained: the program ends with code 0, and node does with it, in place of dying of the signal.
    let mut running = start(project, "drained.log");
    signal(&running, "TERM");
    let status = eventually_blocking(PATIENCE, "it ends", || running.try_wait().unwrap());
    let log = fs::read_to_string(project.join("drained.log")).unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("draining"), "{log}");
}

/// `raincheck run` through the launcher, once it serves. Its log is in the file.
fn start(project: &Path, log: &str) -> Child {
    let log = project.join(log);
    let running = Command::new(project.join("node_modules/.bin/raincheck"))
        .args(["run", "--upstream", "http://127.0.0.1:9/mcp"])
        .args(["--store", "memory:", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    eventually_blocking(PATIENCE, "it serves", || {
        let text = fs::read_to_string(&log).unwrap();
        if text.contains("serving") {
            Ok(())
        } else {
            Err(text)
        }
    });
    running
}

fn signal(process: &Child, name: &str) {
    let pid = process.id().to_string();
    succeeds(Command::new("kill").args(["-s", name, &pid]));
}

fn is_refused_with_words(project: &Path) {
    let launcher = project.join("node_modules/raincheck/launcher.js");
    // Node reads these when the launcher asks.
    let pretend = project.join("pretend.js");
    let run_as = |platform: &str| {
        let text =
            format!("Object.defineProperty(process, 'platform', {{ value: '{platform}' }});");
        fs::write(&pretend, text).unwrap();
        let mut node = Command::new("node");
        let output = node.arg("--require").arg(&pretend).arg(&launcher).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
        printed(&output)
    };
    let elsewhere = run_as("freebsd");
    let expected = format!(
        "error: raincheck has no program for freebsd-{}: ",
        machine()
    );
    assert!(elsewhere.starts_with(&expected), "{elsewhere}");
    let left_out = run_as("darwin");
    let expected = format!("error: the package raincheck-darwin-{}, ", machine());
    assert!(left_out.starts_with(&expected), "{left_out}");
    runs_on_windows_what_is_there(project, &pretend);
}

/// With the name that the file has there.
fn runs_on_windows_what_is_there(project: &Path, pretend: &Path) {
    let text = "for (const [name, value] of [['platform', 'win32'], ['arch', 'x64']])
        Object.defineProperty(process, name, { value });";
    fs::write(pretend, text).unwrap();
    let modules = project.join("node_modules");
    let package = modules.join("raincheck-win32-x64");
    fs::create_dir_all(package.join("bin")).unwrap();
    fs::write(package.join("package.json"), "{}").unwrap();
    let here = modules.join(format!("raincheck-linux-{}/bin/raincheck", machine()));
    fs::copy(here, package.join("bin/raincheck.exe")).unwrap();
    let mut node = Command::new("node");
    node.arg("--require").arg(pretend);
    let version = succeeds(
        node.arg(modules.join("raincheck/launcher.js"))
            .arg("--version"),
    );
    assert_eq!(version.trim(), format!("raincheck {VERSION}"));
}

#[test]
fn the_wheel_runs_from_its_file() {
    let out = folder("pypi");
    let binary = without_symbols(&out);
    let list = out.join("list.json");
    fs::write(&list, "{}").unwrap();
    succeeds(
        python()
            .args(["-m", "pypi.wheel"])
            .args([&binary, &out])
            .arg(VERSION)
            .arg(list),
    );
    let environment = out.join("environment");
    let mut create = Command::new("python3");
    succeeds(create.args(["-m", "venv"]).arg(&environment));
    let mut install = Command::new(environment.join("bin/pip"));
    install.args(["install", "--no-index", "--disable-pip-version-check"]);
    succeeds(install.arg(file(&out, ".whl")));
    let installed = environment.join("bin/raincheck");
    let version = succeeds(Command::new(&installed).arg("--version"));
    assert_eq!(version.trim(), format!("raincheck {VERSION}"));
    // Pip does not look at the hashes, other installers do.
    succeeds(
        Command::new("python3")
            .args(["-c", CHECK_RECORD])
            .arg(file(&out, ".whl")),
    );
}

/// Each file of a wheel is in its RECORD, with its hash and size.
const CHECK_RECORD: &str = "
import base64, csv, hashlib, io, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
record = next(name for name in wheel.namelist() if name.endswith('.dist-info/RECORD'))
rows = {row[0]: row[1:] for row in csv.reader(io.TextIOWrapper(wheel.open(record)))}
assert set(rows) == set(wheel.namelist()), rows
assert rows.pop(record) == ['', '']
for name, (digest, size) in rows.items():
    data = wheel.read(name)
    wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()
    assert (digest, size) == ('sha256=' + wanted, str(len(data))), name
";

/// What `CycloneDX` requires, and that the list is this program's: no crate of the tests, each crate reached from raincheck.
fn is_whole(list: &Path) {
    let list: Value = serde_json::from_str(&fs::read_to_string(list).unwrap()).unwrap();
    assert_eq!(
        (&list["bomFormat"], &list["specVersion"]),
        (&"CycloneDX".into(), &"1.5".into())
    );
    assert_eq!(list["version"].as_u64(), Some(1));
    let serial = list["serialNumber"].as_str().unwrap();
    let serial = serial.strip_prefix("urn:uuid:").unwrap();
    uuid::Uuid::parse_str(serial).unwrap();

    let own = &list["metadata"]["component"];
    assert_eq!(own["type"], "application");
    let mut refs = BTreeMap::from([(text_of(own, "bom-ref"), false)]);
    for component in list["components"].as_array().unwrap() {
        assert_eq!(component["type"], "library");
        let purl = format!(
            "pkg:cargo/{}@{}",
            text_of(component, "name"),
            text_of(component, "version")
        );
        assert_eq!(text_of(component, "purl"), purl);
        assert!(!text_of(&component["licenses"][0], "expression").is_empty());
        assert_eq!(
            text_of(&component["hashes"][0], "content").len(),
            64,
            "{purl}"
        );
        assert_eq!(
            refs.insert(text_of(component, "bom-ref"), false),
            None,
            "{purl} twice"
        );
    }
    let has = |name: &str| {
        refs.keys()
            .any(|purl| purl.starts_with(&format!("pkg:cargo/{name}@")))
    };
    assert!(has("tokio") && has("redb") && has("tikv-jemalloc-sys"));
    assert!(
        !has("proptest") && !has("cc") && !has("windows-sys"),
        "{refs:?}"
    );
    for dependency in list["dependencies"].as_array().unwrap() {
        assert!(refs.contains_key(&text_of(dependency, "ref")));
        for other in dependency["dependsOn"].as_array().unwrap() {
            *refs.get_mut(other.as_str().unwrap()).unwrap() = true;
        }
    }
    refs.remove(&text_of(own, "bom-ref"));
    let unreached: Vec<_> = refs.iter().filter(|(_, reached)| !**reached).collect();
    assert!(unreached.is_empty(), "{unreached:?}");
}

fn text_of(value: &Value, name: &str) -> String {
    let text = value[name].as_str();
    text.unwrap_or_else(|| panic!("no {name} in {value}"))
        .to_owned()
}
