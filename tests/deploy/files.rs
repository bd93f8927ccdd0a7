//! The image and the compose file, as far as they can be checked without an engine.

use super::written_files::files_below;
use super::*;

/// Comments out, continued lines together.
pub(super) fn instructions() -> Vec<(String, String)> {
    let lines: Vec<String> = text("Dockerfile")
        .lines()
        .filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty())
        .map(ToOwned::to_owned)
        .collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    let split = |line: &str| {
        let (word, rest) = line.split_once(' ').unwrap();
        (word.to_owned(), rest.trim().to_owned())
    };
    joined.lines().map(split).collect()
}

pub(super) fn all<'a>(instructions: &'a [(String, String)], word: &str) -> Vec<&'a str> {
    let own = instructions.iter().filter(|(other, _)| other == word);
    own.map(|(_, rest)| &**rest).collect()
}

#[test]
fn the_image_is_built_in_stages_of_pinned_tags() {
    let instructions = instructions();
    let from = all(&instructions, "FROM");
    assert_eq!(from.len(), 2, "{from:?}");
    for image in from {
        let image = image.split(' ').next().unwrap();
        let (_, tag) = image.rsplit_once(':').expect("a tag");
        assert!(tag != "latest" && !tag.contains('/'), "{image}");
    }
}

#[test]
fn the_compiler_is_one_that_can_build_it() {
    let instructions = instructions();
    let wanted = format!("rust:{}-", env!("CARGO_PKG_RUST_VERSION"));
    let from = all(&instructions, "FROM");
    assert!(from[0].starts_with(&wanted), "{}", from[0]);
}

#[test]
fn the_image_runs_as_a_number_and_not_through_a_shell() {
    let instructions = instructions();
    let user = all(&instructions, "USER");
    assert_eq!(user.len(), 1);
    let numeric = |id: &str| id.parse::<u32>().is_ok_and(|id| id > 0);
    assert!(user[0].split(':').all(numeric), "{}", user[0]);
    for word in ["ENTRYPOINT", "CMD"] {
        for form in all(&instructions, word) {
            let parsed: Vec<String> = serde_json::from_str(form).expect("the exec form");
            assert!(!parsed.is_empty());
        }
    }
    assert_eq!(all(&instructions, "ENTRYPOINT").len(), 1);
    let uid = user[0].split(':').next().unwrap().parse::<i64>().unwrap();
    let sidecar = named(&pod_spec()["initContainers"], "raincheck").clone();
    assert_eq!(sidecar["securityContext"]["runAsUser"].as_i64(), Some(uid));
}

/// Cargo looks for the file of a target that names none, and would end the build of the image, which has no tests.
#[test]
fn every_target_names_its_file() {
    let manifest = text("../Cargo.toml");
    let targets: Vec<_> = manifest.split("\n[[").skip(1).collect();
    assert!(targets.len() > 2, "{targets:?}");
    for target in targets {
        let (target, _) = target.split_once("\n[").unwrap_or((target, ""));
        assert!(target.contains("\npath = "), "[[{target}");
    }
}

/// What the image's build copies of this folder.
fn copied(instructions: &[(String, String)]) -> Vec<&str> {
    let copies = all(instructions, "COPY").into_iter();
    let ours = copies.filter(|files| !files.starts_with("--from"));
    ours.flat_map(|files| files.rsplit_once(' ').unwrap().0.split(' '))
        .collect()
}

/// How code names a file that becomes a part of it.
const INCLUDES: [&str; 4] = [
    "include_str!(\"",
    "include_bytes!(\"",
    "include!(\"",
    "\n#[path = \"",
];

/// The files that the code of the program includes, each from the root of the repository.
fn included() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut included = Vec::new();
    for file in files_below(&root.join("src"), &["rs"]) {
        let code = fs::read_to_string(&file).unwrap();
        let folder = file.parent().unwrap();
        included.extend(included_by(&code).map(|name| folder.join(name)));
    }
    let root = root.canonicalize().unwrap();
    included
        .into_iter()
        .map(|file| file.canonicalize().unwrap())
        .map(|file| file.strip_prefix(&root).unwrap().to_owned())
        .collect()
}

/// What this code includes, without the modules of tests.
fn included_by(code: &str) -> impl Iterator<Item = &str> {
    let all = INCLUDES.into_iter().flat_map(move |include| {
        let found = code.match_indices(include);
        found.map(move |(at, _)| code.split_at(at + include.len()))
    });
    let ours = all.filter(|(before, _)| !before.ends_with("#[cfg(test)]\n#[path = \""));
    ours.map(|(_, after)| after.split('"').next().unwrap_or_default())
}

#[test]
fn all_that_the_program_is_made_of_is_copied() {
    let instructions = instructions();
    let copied = copied(&instructions);
    let mut files = included();
    let example = Path::new("config.example.toml");
    assert!(files.iter().any(|file| file == example), "{files:?}");
    files.extend(["src/main.rs", "Cargo.toml", "Cargo.lock", "README.md"].map(Into::into));
    for file in files {
        let is_copied = copied.iter().any(|it| file.starts_with(it));
        assert!(is_copied, "{}", file.display());
    }
}

#[test]
fn what_is_copied_is_sent_and_nothing_else() {
    let instructions = instructions();
    let mut copied = copied(&instructions);
    copied.sort_unstable();
    let ignored = text("Dockerfile.dockerignore");
    let lines = ignored.lines().filter(|line| !line.starts_with('#'));
    let (mut sent, all_else): (Vec<&str>, Vec<&str>) = lines.partition(|l| l.starts_with('!'));
    // What measurements leave in their folder is not sent.
    assert_eq!(all_else, ["*", "benches/results", "benches/target"]);
    sent.sort_unstable();
    let sent: Vec<&str> = sent
        .iter()
        .map(|line| line.trim_start_matches('!'))
        .collect();
    assert_eq!(copied, sent);
}

#[test]
fn the_compose_file_keeps_tasks() {
    let compose = &documents("compose.yaml")[0];
    let services = &compose["services"];
    let names: Vec<_> = services.as_hash().unwrap().keys().cloned().collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let command: Vec<&str> = services["redis"]["command"]
        .as_vec()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    for pair in [
        ["--appendonly", "yes"],
        ["--maxmemory-policy", "noeviction"],
    ] {
        assert!(command.windows(2).any(|two| two == pair), "{pair:?}");
    }
    assert!(!compose["volumes"]["redis"].is_badvalue());
    let ours = &services["raincheck"];
    let published = ours["ports"][0].as_str().unwrap();
    assert!(published.starts_with("127.0.0.1:"), "{published}");
    let period = seconds(ours["stop_grace_period"].as_str().unwrap());
    let grace = seconds(
        ours["environment"]["RAINCHECK_DRAIN__GRACE"]
            .as_str()
            .unwrap(),
    );
    assert!(period > grace);
}

/// The check is the image's own program, which asks the listener that the same environment opens.
#[test]
fn the_compose_file_checks_the_health() {
    let ours = documents("compose.yaml")[0]["services"]["raincheck"].clone();
    let check: Vec<&str> = ours["healthcheck"]["test"]
        .as_vec()
        .unwrap()
        .iter()
        .filter_map(Yaml::as_str)
        .collect();
    let instructions = instructions();
    let entry: Vec<String> = serde_json::from_str(all(&instructions, "ENTRYPOINT")[0]).unwrap();
    assert_eq!(check, ["CMD", &entry[0], "health"]);
    let health = |environment: &[(&str, &str)]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_raincheck"));
        command.arg("health").env_clear();
        command.envs(environment.iter().copied()).output().unwrap()
    };
    let probes = ours["environment"]["RAINCHECK_ADMIN__PROBES"].as_str();
    let (_, port) = probes.unwrap().rsplit_once(':').unwrap();
    // A listener that says yes at once, in place of raincheck.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 512];
        let read = std::io::Read::read(&mut stream, &mut head).unwrap();
        let answer =
            "HTTP/1.1 200 OK\r\ncontent-length: 14\r\nconnection: close\r\n\r\n{\"ready\":true}";
        std::io::Write::write_all(&mut stream, answer.as_bytes()).unwrap();
        String::from_utf8_lossy(&head[..read]).into_owned()
    });
    let well = health(&[("RAINCHECK_ADMIN__PROBES", &address)]);
    assert!(well.status.success(), "{well:?}");
    assert!(answering.join().unwrap().starts_with("GET /readyz "));
    let down = health(&[("RAINCHECK_ADMIN__PROBES", &address)]);
    assert_eq!(down.status.code(), Some(1), "{down:?}");
    assert!(port.parse::<u16>().is_ok());
}

/// The settings are ones that the program knows, with values that it takes.
#[test]
fn the_compose_file_configures_what_there_is() {
    let compose = &documents("compose.yaml")[0];
    let environment = compose["services"]["raincheck"]["environment"]
        .as_hash()
        .unwrap();
    let pairs: Vec<(String, String)> = environment
        .iter()
        .map(|(key, value)| (key.as_str().unwrap().into(), value.as_str().unwrap().into()))
        .collect();
    let flags = raincheck::config::load::Flags::default();
    let config = raincheck::config::load::load(&flags, &pairs).unwrap();
    assert!(config.refuse_exposure().is_ok());
    assert_eq!(config.listen.address.port(), 8440);
    let doubts: Vec<_> = raincheck::config::warnings::warnings(&config).collect();
    assert_eq!(doubts, [], "the first lines of the log would be a warning");
}
