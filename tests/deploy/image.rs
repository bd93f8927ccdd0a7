//! The image without an engine: its files in a folder that a process takes for its root, and the program run there as the image's
//! user, in a network of its own. The libraries are those of this machine.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use super::*;
use crate::eventually::eventually_blocking;
use crate::files::{all, instructions};
use crate::netns::Pod;
use crate::pod::{PATIENCE, Running, server_environment};

/// The libraries of `gcr.io/distroless/cc-debian12` (packages libc6, libgcc-s1, libgomp1, libstdc++6), and what loads them.
const BASE_HAS: [&str; 10] = [
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libgomp.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
];

/// What an operator has to set. The ports are those that the image exposes.
const SETTINGS: [(&str, &str); 5] = [
    ("RAINCHECK_UPSTREAM__URL", "http://127.0.0.1:8000/mcp"),
    ("RAINCHECK_LISTEN__ADDRESS", "0.0.0.0:8440"),
    ("RAINCHECK_AUTH__ALLOW_ANONYMOUS", "true"),
    ("RAINCHECK_ADMIN__PROBES", "0.0.0.0:8441"),
    ("RAINCHECK_STORE__URL", "memory:"),
];

#[test]
fn the_image_serves_as_its_user_and_says_whether_it_is_healthy() {
    let image = Image::unpacked();
    let pod = Pod::start();
    let mut raincheck = Running::of(image.command(&pod, &image.usual), settings());
    let live = || pod.get(8441, "/livez");
    assert_eq!(eventually_blocking(PATIENCE, "it lives", live).0, 200);
    let status = fs::read_to_string(format!("/proc/{}/status", raincheck.pid())).unwrap();
    let ids = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let ids = line.unwrap().split_whitespace().map(str::to_owned);
        ids.collect::<Vec<_>>()
    };
    let (user, group) = image.user.split_once(':').unwrap();
    assert_eq!(ids("Uid:"), [user; 4]);
    assert_eq!(ids("Gid:"), [group; 4]);
    assert!(ids("Groups:").iter().all(|id| id == group), "{status}");

    let unhealthy = image.health(&pod);
    assert_eq!(unhealthy.status.code(), Some(1), "{unhealthy:?}");
    let _server = Running::start(&pod, server_environment());
    let answer = eventually_blocking(PATIENCE, "it is healthy", || {
        let health = image.health(&pod);
        let is_healthy = health.status.success();
        is_healthy.then_some(health).ok_or("not yet")
    });
    let answer = String::from_utf8(answer.stdout).unwrap();
    assert!(answer.contains(r#""ready":true"#), "{answer}");
    let refused = pod.get(8440, "/mcp").unwrap();
    assert_eq!(refused.0, 403, "a name that it does not know: {refused:?}");
    assert!(raincheck.stop().success());
}

fn settings() -> Vec<(String, String)> {
    SETTINGS
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// What the last stage of the Dockerfile makes.
struct Image {
    root: PathBuf,
    user: String,
    program: String,
    /// The command of the image.
    usual: Vec<String>,
}

impl Image {
    fn unpacked() -> Self {
        let instructions = instructions();
        let last = *all(&instructions, "FROM").last().unwrap();
        assert!(last.starts_with("gcr.io/distroless/cc-debian12:"), "{last}");
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("image-{}", uuid::Uuid::new_v4().simple()));
        let copied = all(&instructions, "COPY");
        let copied: Vec<&str> = copied
            .iter()
            .filter_map(|files| files.strip_prefix("--from=build "))
            .collect();
        let [copied] = copied.as_slice() else {
            panic!("{copied:?}");
        };
        let (built, target) = copied.split_once(' ').unwrap();
        assert!(built.ends_with("/target/shipped/raincheck"), "{built}");
        let program = Path::new(env!("CARGO_BIN_EXE_raincheck"));
        let image = Self {
            user: all(&instructions, "USER")[0].to_owned(),
            program: words(all(&instructions, "ENTRYPOINT")[0]).remove(0),
            usual: words(all(&instructions, "CMD")[0]),
            root,
        };
        image.put(program, Path::new(target));
        for library in libraries(program) {
            let name = library.file_name().unwrap().to_str().unwrap();
            assert!(BASE_HAS.contains(&name), "the base image has no {name}");
            image.put(&library, &library);
        }
        image
    }

    /// A hard link where that is possible: the program of a development build is large.
    fn put(&self, file: &Path, target: &Path) {
        let target = self.root.join(target.strip_prefix("/").unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let file = file.canonicalize().unwrap();
        if fs::hard_link(&file, &target).is_err() {
            fs::copy(&file, &target).unwrap();
        }
        for folder in target.ancestors().skip(1) {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
            if folder == self.root {
                break;
            }
        }
    }

    /// A process in the image, with the image's program and user.
    fn command(&self, pod: &Pod, arguments: &[String]) -> Command {
        let mut command = pod.command("chroot");
        command.arg(format!("--userspec={}", self.user));
        command.args(["--groups="]).arg(&self.root);
        command.arg(&self.program).args(arguments);
        command
    }

    fn health(&self, pod: &Pod) -> Output {
        let mut command = self.command(pod, &["health".to_owned()]);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).envs(SETTINGS);
        command.stdin(Stdio::null()).output().unwrap()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn words(form: &str) -> Vec<String> {
    serde_json::from_str(form).unwrap()
}

/// The libraries that are loaded with a program.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let paths = listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    let paths: Vec<PathBuf> = paths.map(PathBuf::from).collect();
    assert!(paths.len() > 1, "{listed}");
    paths
}
