//! The steps of a release that publish, with programs in place of npm and others that only write down their arguments; the workflow; and
//! the files of the crate.

use std::process::Command;

use super::*;
use crate::chart::cache;
use crate::packages::{VERSION, folder, printed, succeeds};
use crate::release::step;

const IMAGE: &str = "registry.example.com/owner/raincheck";

/// A folder for PATH, whose programs write their arguments to a log, and then run a script.
struct Stage {
    folder: PathBuf,
}

impl Stage {
    fn new(name: &str) -> Self {
        let folder = folder(&format!("publishing-{name}"));
        fs::create_dir(folder.join("programs")).unwrap();
        fs::create_dir(folder.join("out")).unwrap();
        Self { folder }
    }

    fn program(&self, name: &str, script: &str) -> &Self {
        let path = self.folder.join("programs").join(name);
        let log = self.folder.join("log");
        let script = format!(
            "#!/bin/bash\necho \"{name} $*\" >>'{}'\n{script}\n",
            log.display()
        );
        fs::write(&path, script).unwrap();
        succeeds(Command::new("chmod").arg("+x").arg(path));
        self
    }

    fn out(&self) -> String {
        self.folder.join("out").display().to_string()
    }

    /// The output of a step, and the calls that it makes, without the name of this folder.
    fn run(&self, arguments: &[&str]) -> (String, Vec<String>) {
        let path = std::env::var("PATH").unwrap_or_default();
        let programs = self.folder.join("programs");
        let mut step = step(arguments);
        step.env("PATH", format!("{}:{path}", programs.display()));
        let said = succeeds(&mut step);
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let _ = fs::remove_file(self.folder.join("log"));
        let log = log.replace(&self.out(), "OUT");
        (said, log.lines().map(ToOwned::to_owned).collect())
    }
}

#[test]
fn npm_gets_the_programs_first_and_nothing_twice() {
    let stage = Stage::new("npm");
    for name in ["raincheck", "raincheck-linux-x64", "raincheck-win32-x64"] {
        fs::write(stage.folder.join(format!("out/{name}-{VERSION}.tgz")), "").unwrap();
    }
    let there = format!("[ \"$1 $2\" != 'view raincheck-linux-x64@{VERSION}' ] || echo {VERSION}");
    stage.program("npm", &there);
    let (said, calls) = stage.run(&["npm", &stage.out()]);
    assert!(said.contains(&format!(
        "raincheck-linux-x64 {VERSION} is published already"
    )));
    let published: Vec<_> = calls
        .iter()
        .filter(|call| call.starts_with("npm publish"))
        .collect();
    let publish = |name: &str| format!("npm publish OUT/{name}-{VERSION}.tgz --access public");
    assert_eq!(
        published,
        [&publish("raincheck-win32-x64"), &publish("raincheck")]
    );
}

#[test]
fn pypi_gets_the_wheels_and_the_sums_are_signed() {
    let stage = Stage::new("pypi");
    fs::write(stage.folder.join("out/raincheck.whl"), "").unwrap();
    fs::write(stage.folder.join("out/raincheck.tgz"), "").unwrap();
    let (_, calls) = stage.program("uv", "").run(&["pypi", &stage.out()]);
    assert_eq!(
        calls,
        ["uv publish --trusted-publishing always OUT/raincheck.whl"]
    );
    let (_, calls) = stage.program("cosign", "").run(&["sign", &stage.out()]);
    let signed = "cosign sign-blob --yes --bundle OUT/SHA256SUMS.sigstore.json OUT/SHA256SUMS";
    assert_eq!(calls, [signed]);
}

#[test]
fn images_of_two_machines_become_one_that_is_signed() {
    let stage = Stage::new("images");
    stage.program("cosign", "").program(
        "docker",
        r#"while [ $# -gt 0 ]; do
             [ "$1" != --metadata-file ] || echo '{"containerimage.digest": "sha256:aa11"}' >"$2"
             [ "$1" != --format ] || echo '{"digest": "sha256:cc33"}'
             shift
           done"#,
    );
    let digests = stage.out();
    let (_, calls) = stage.run(&["image", IMAGE, &digests]);
    assert!(
        calls[0].contains(&format!("type=image,name={IMAGE},push-by-digest=true")),
        "{calls:?}"
    );
    fs::write(stage.folder.join("out/bb22"), "").unwrap();
    let (said, calls) = stage.run(&["images", IMAGE, &digests]);
    assert_eq!(said, "sha256:cc33\n");
    let joined = format!("--tag {IMAGE}:{VERSION} {IMAGE}@sha256:aa11 {IMAGE}@sha256:bb22");
    assert_eq!(
        calls[0],
        format!("docker buildx imagetools create {joined}")
    );
    assert_eq!(calls[2], format!("cosign sign --yes {IMAGE}@sha256:cc33"));
}

#[test]
fn the_chart_that_is_published_runs_the_image_that_is() {
    let stage = Stage::new("chart");
    let helm = cache().join("python-kubernetes/bin/helm");
    let real = format!("exec '{}' \"$@\"", helm.display());
    stage
        .program("cosign", "")
        .program("helm", &real)
        .run(&["chart", IMAGE, &stage.out()]);
    let package = stage.folder.join(format!("out/raincheck-{VERSION}.tgz"));
    let mut template = Command::new(&helm);
    template.args(["template", "tools"]).arg(package);
    template.args(["--set", "server.image=registry.example.com/tools:1.0.0"]);
    template.args(["--set", "drain.token=0123456789abcdef0123456789abcdef"]);
    let allowed = "raincheck.settings.RAINCHECK_AUTH__ALLOW_ANONYMOUS=true";
    let rendered = succeeds(template.args(["--set-string", allowed]));
    assert!(
        rendered.contains(&format!("image: {IMAGE}:{VERSION}\n")),
        "{rendered}"
    );

    stage.program(
        "helm",
        "echo 'Pushed: it' >&2; echo 'Digest: sha256:dd44' >&2",
    );
    let (_, calls) = stage.run(&["charts", IMAGE, &stage.out()]);
    let charts = "registry.example.com/owner/charts";
    assert_eq!(
        calls[0],
        format!("helm push OUT/raincheck-{VERSION}.tgz oci://{charts}")
    );
    assert_eq!(
        calls[1],
        format!("cosign sign --yes {charts}/raincheck@sha256:dd44")
    );
}

#[test]
fn a_draft_that_is_there_gets_the_files_and_is_opened_last() {
    let stage = Stage::new("draft");
    fs::write(stage.folder.join("out/file"), "").unwrap();
    stage.program("gh", "");
    let (_, calls) = stage.run(&["draft", "v0.1.0", &stage.out()]);
    assert_eq!(
        calls,
        [
            "gh release view v0.1.0",
            "gh release upload v0.1.0 --clobber OUT/file"
        ]
    );
    let (_, calls) = stage.run(&["open", "v0.1.0"]);
    assert_eq!(calls, ["gh release edit v0.1.0 --draft=false"]);
}

fn workflow(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(".github/workflows");
    fs::read_to_string(path.join(name)).unwrap()
}

#[test]
fn the_workflows_are_good() {
    let actionlint = cache().join("python-kubernetes/bin/actionlint");
    let mut lint = Command::new(&actionlint);
    lint.current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = lint
        .args([".github/workflows/ci.yml", ".github/workflows/release.yml"])
        .output();
    let output = output.unwrap_or_else(|error| {
        panic!(
            "{}: {error} (tests/setup.sh installs it)",
            actionlint.display()
        )
    });
    assert!(output.status.success(), "{}", printed(&output));
}

/// A tag of an action can be moved, a hash cannot; and what one job may do, no other needs.
#[test]
fn the_release_trusts_nothing_that_can_change() {
    let text = workflow("release.yml");
    let used: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once("uses: "))
        .collect();
    assert!(used.len() > 10);
    for (_, action) in used {
        let (_, hash) = action.split_once('@').unwrap();
        let (hash, tag) = hash.split_once(" # v").expect("the tag, for a reader");
        assert!(
            hash.len() == 40 && hash.chars().all(|c| c.is_ascii_hexdigit()),
            "{action}"
        );
        assert!(!tag.is_empty());
    }
    let workflow = YamlLoader::load_from_str(&text).unwrap().remove(0);
    assert!(workflow["permissions"].as_hash().unwrap().is_empty());
    let jobs = workflow["jobs"].as_hash().unwrap();
    assert!(jobs.len() > 8);
    for (name, job) in jobs {
        assert!(
            !job["permissions"].as_hash().unwrap().is_empty(),
            "{name:?}"
        );
        assert!(job["timeout-minutes"].as_i64().is_some(), "{name:?}");
    }
}

#[test]
fn the_crate_has_what_a_build_reads_and_no_more() {
    let cargo = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["package", "--allow-dirty", "--offline", "--quiet"]);
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        cargo.env("CARGO_TARGET_DIR", folder("crate"));
        cargo
    };
    let list = succeeds(cargo().arg("--list"));
    let above: Vec<_> = list
        .lines()
        .filter(|name| !name.starts_with("src/"))
        .collect();
    let expected = [
        ".cargo_vcs_info.json",
        "CHANGELOG.md",
        "Cargo.lock",
        "Cargo.toml",
        "Cargo.toml.orig",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "config.example.toml",
    ];
    // The first is there only where git is.
    let expected: Vec<_> = expected
        .into_iter()
        .filter(|name| above.contains(name) || !name.starts_with('.'))
        .collect();
    assert_eq!(above, expected);
    succeeds(cargo().arg("--no-verify"));
}
