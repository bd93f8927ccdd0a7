//! What the user writes, and what raincheck says to it: the exact sentences.

use std::path::PathBuf;

use directory::TempDir;
use raincheck::config::load::{Flags, load};
use raincheck::config::{Config, ConfigError, EraChoice, Location, LogFormat, SessionUse};
use raincheck::task::policy::{InputWhen, Mode};

#[path = "config/auth.rs"]
mod auth;
#[path = "config/concurrency.rs"]
mod concurrency;
#[path = "support/directory.rs"]
mod directory;
#[path = "config/documents.rs"]
mod documents;
#[path = "config/example.rs"]
mod example;
#[path = "config/generated.rs"]
mod generated;
#[path = "config/layers.rs"]
mod layers;
#[path = "config/mistakes.rs"]
mod mistakes;
#[path = "config/network.rs"]
mod network;
#[path = "config/notify.rs"]
mod notify;
#[path = "config/rules_file.rs"]
mod rules_file;
#[path = "config/secret_files.rs"]
mod secret_files;
#[path = "config/warned.rs"]
mod warned;
#[path = "config/wrapped.rs"]
mod wrapped;

/// A settings file in a directory of its own, gone at the end of the test; errors name it `config.toml`.
struct File(PathBuf, TempDir);

impl File {
    fn new(text: &str) -> Self {
        let directory = TempDir::new();
        Self(directory.file("config.toml", text), directory)
    }

    fn load(&self, flags: &Flags, environment: &[(&str, &str)]) -> Result<Config, String> {
        let flags = Flags {
            config: Some(self.0.clone()),
            ..flags.clone()
        };
        let directory = format!("{}/", self.1.path().display());
        load(&flags, &pairs(environment)).map_err(|e| e.to_string().replace(&directory, ""))
    }
}

fn pairs(environment: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut all = vec![("HOME".to_owned(), "/srv/ada".to_owned())];
    all.extend(
        environment
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
    );
    all
}

fn upstream() -> Flags {
    Flags {
        upstream: Some("http://127.0.0.1:8000/mcp".into()),
        ..Flags::default()
    }
}

fn from_file(text: &str) -> Config {
    File::new(text).load(&upstream(), &[]).unwrap()
}

fn refusal(text: &str) -> String {
    File::new(text).load(&upstream(), &[]).unwrap_err()
}

fn from_environment(environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    load(&upstream(), &pairs(environment))
}

#[test]
fn one_flag_is_enough() {
    let config = from_environment(&[]).unwrap();
    assert_eq!(config.listen.address.to_string(), "127.0.0.1:8440");
    assert_eq!(config.listen.path, "/mcp");
    assert_eq!(
        config.upstream.server.to_string(),
        "http://127.0.0.1:8000/mcp"
    );
    assert_eq!(config.upstream.era, EraChoice::Auto);
    assert_eq!(config.upstream.session, SessionUse::Pool);
    assert!(config.upstream.server.is_local());
    assert!(config.refuse_exposure().is_ok());
    let Location::Embedded(path) = config.store.location else {
        panic!("the default store is a file");
    };
    assert!(path.starts_with("/srv/ada/.local/state/raincheck"));
}

#[test]
fn two_rainchecks_on_one_laptop_do_not_meet() {
    let at = |upstream: &str, listen: &str| {
        let flags = Flags {
            upstream: Some(upstream.into()),
            listen: Some(listen.into()),
            ..Flags::default()
        };
        load(&flags, &pairs(&[])).unwrap().store.location
    };
    let one = at("http://127.0.0.1:8000/mcp", "127.0.0.1:8440");
    assert_eq!(one, at("http://127.0.0.1:8000/mcp", "127.0.0.1:8440"));
    assert_ne!(one, at("http://127.0.0.1:8001/mcp", "127.0.0.1:8440"));
    assert_ne!(one, at("http://127.0.0.1:8000/mcp", "127.0.0.1:8441"));
}

/// The conformance suite's configuration, as it stands.
#[test]
fn the_rules_that_the_conformance_suite_needs() {
    let text = r#"
[listen]
address = "127.0.0.1:8440"

[store]
namespace = "suite"        # required with Redis

[tasks]
mode = "auto"
grace_window = "150ms"
poll_interval = "200ms"
retention = "10m"
max_duration = "10m"

[[tools]]
name = "greet"
mode = "never"

[[tools]]
name = "failing_job"
mode = "always"
require_tasks = true

[[tools]]
name = "test_tool_with_task"
mode = "always"
input = "before_task"

[[tools]]
name = ["slow_compute", "protocol_error_job", "confirm_delete", "multi_input"]
mode = "always"
input = "in_task"
"#;
    let flags = Flags {
        store: Some("memory:".into()),
        ..upstream()
    };
    let config = File::new(text).load(&flags, &[]).unwrap();
    assert_eq!(config.store.location, Location::Memory);
    let seen = |name: &str| {
        let (rule, place) = config.rules.for_tool(name);
        (rule.mode, rule.require_tasks, rule.input, place)
    };
    let in_task = InputWhen::InTask;
    assert_eq!(seen("greet"), (Mode::Never, false, in_task, Some(0)));
    assert_eq!(seen("failing_job"), (Mode::Always, true, in_task, Some(1)));
    let before = InputWhen::BeforeTask;
    assert_eq!(
        seen("test_tool_with_task"),
        (Mode::Always, false, before, Some(2))
    );
    for name in [
        "slow_compute",
        "protocol_error_job",
        "confirm_delete",
        "multi_input",
    ] {
        assert_eq!(seen(name), (Mode::Always, false, in_task, Some(3)));
    }
    assert_eq!(seen("anything_else"), (Mode::Auto, false, in_task, None));
    let (rule, _) = config.rules.for_tool("greet");
    assert_eq!((rule.grace_window_ms, rule.poll_interval_ms), (150, 200));
    assert_eq!(rule.ttl_ms(), 1_200_000);

    let redis = Flags {
        store: Some("redis://127.0.0.1:6379".into()),
        ..upstream()
    };
    let config = File::new(text).load(&redis, &[]).unwrap();
    assert!(
        matches!(config.store.location, Location::Redis { namespace, .. } if namespace == "suite")
    );
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let file = File::new(
        "[upstream]\nurl = 'http://127.0.0.1:1/file'\n[telemetry]\nlog = 'error'\nformat = 'json'\n\
         [drain]\ngrace = '7s'\n",
    );
    let environment = [
        ("RAINCHECK_UPSTREAM__URL", "http://127.0.0.1:2/environment"),
        ("RAINCHECK_TELEMETRY__LOG", "warn"),
    ];
    let flags = Flags {
        upstream: Some("http://127.0.0.1:3/flag".into()),
        ..Flags::default()
    };
    let config = file.load(&flags, &environment).unwrap();
    assert_eq!(
        config.upstream.server.to_string(),
        "http://127.0.0.1:3/flag"
    );
    assert_eq!(config.telemetry.log, "warn");
    assert_eq!(config.telemetry.format, LogFormat::Json);
    assert_eq!(config.drain.grace.as_secs(), 7);
}

#[test]
fn the_environment_says_every_kind_of_value() {
    let config = from_environment(&[
        ("RAINCHECK_LISTEN__H2C", "true"),
        (
            "RAINCHECK_LISTEN__ALLOWED_HOSTS",
            "a.example, B.example,10.0.0.7",
        ),
        ("RAINCHECK_LISTEN__TLS__CERTIFICATE", "/c.pem"),
        ("RAINCHECK_LISTEN__TLS__KEY", "/k.pem"),
        ("RAINCHECK_LIMITS__CALLS", "12"),
        ("RAINCHECK_LIMITS__BODY_BYTES_MAX", "1MiB"),
        ("RAINCHECK_TASKS__MODE", "never"),
        ("RAINCHECK_TASKS__GRACE_WINDOW", "150ms"),
        ("RAINCHECK_REPLICA__ID", "007"),
        ("RAINCHECK_STORE__URL", "redis://:12345@127.0.0.1"),
        ("RAINCHECK_STORE__NAMESPACE", "1.10"),
    ])
    .unwrap();
    assert!(config.listen.h2c);
    assert_eq!(
        config.listen.allowed_hosts,
        ["a.example", "b.example", "10.0.0.7"]
    );
    assert_eq!(config.listen.tls.unwrap().key, PathBuf::from("/k.pem"));
    assert_eq!(config.limits.calls, 12);
    assert_eq!(config.limits.body_bytes_max, 1 << 20);
    assert_eq!(config.rules.defaults().mode, Mode::Never);
    assert_eq!(config.rules.defaults().grace_window_ms, 150);
    assert_eq!(config.replica.id, "007");
    assert!(matches!(
        config.store.location,
        Location::Redis { url, namespace }
            if url.expose() == "redis://:12345@127.0.0.1" && namespace == "1.10"
    ));
}

#[test]
fn a_kubernetes_service_of_our_name_is_no_configuration() {
    assert!(
        from_environment(&[
            ("RAINCHECK_PORT", "tcp://10.0.0.1:8440"),
            ("RAINCHECK_SERVICE_HOST", "10.0.0.1"),
            ("RAINCHECK_PORT_8440_TCP_ADDR", "10.0.0.1"),
        ])
        .is_ok()
    );
}

#[test]
fn numbers_and_booleans_are_texts_where_texts_are_wanted() {
    let config = from_file("[replica]\nid = 7\n[store]\nurl = 'redis://h'\nnamespace = true\n");
    assert_eq!(config.replica.id, "7");
    assert!(
        matches!(config.store.location, Location::Redis { namespace, .. } if namespace == "true")
    );
}

#[test]
fn rules_inherit_from_the_defaults() {
    let config = from_file(
        "[tasks]\nretention = '2h'\ninput_timeout = '5m'\n[[tools]]\nname = 'x{a,b}'\nmode = 'always'\n",
    );
    for name in ["xa", "xb"] {
        let (rule, place) = config.rules.for_tool(name);
        assert_eq!(place, Some(0));
        assert_eq!((rule.mode, rule.retention_ms), (Mode::Always, 7_200_000));
        assert_eq!(rule.input_timeout_ms, Some(300_000));
    }
}

#[test]
fn a_window_holds_where_calls_attach() {
    let config = from_file(
        "[tasks]\nattach_window = '5s'\n[[tools]]\nname = 'a'\nattach = true\n\
         [[tools]]\nname = 'b'\nattach = true\nattach_window = '0s'\n",
    );
    let of = |tool| config.rules.for_tool(tool).0.attach_window_ms;
    assert_eq!((of("a"), of("b"), of("c")), (Some(5_000), Some(0), None));
    let config = from_file("[tasks]\nattach = true\n[[tools]]\nname = 'a'\nattach = false\n");
    let of = |tool| config.rules.for_tool(tool).0.attach_window_ms;
    assert_eq!((of("a"), of("c")), (None, Some(60_000)));
}

#[test]
fn typical_mistakes() {
    for (text, expected) in mistakes::MISTAKES {
        assert_eq!(refusal(text), *expected, "{text}");
    }
}

#[test]
fn errors_name_the_source_that_was_wrong() {
    let wrong =
        |environment: &[(&str, &str)]| from_environment(environment).unwrap_err().to_string();
    assert_eq!(
        wrong(&[("RAINCHECK_TASKS__GRACE_WINDOW", "soon")]),
        r#"RAINCHECK_TASKS__GRACE_WINDOW: "soon" is not a duration; write "2s", "150ms" or "1h""#
    );
    assert_eq!(
        wrong(&[("RAINCHECK_LISTEN__ADDRESS", "here")]),
        r#"RAINCHECK_LISTEN__ADDRESS: "here" is not an address with a port; write "127.0.0.1:8440""#
    );
    assert_eq!(
        wrong(&[("RAINCHECK_DRAIN__GRACES", "1s")]),
        "RAINCHECK_DRAIN__GRACES: unknown key; did you mean grace? accepted in [drain]: delay, grace, token, token_file"
    );
    let flags = Flags {
        listen: Some("8440".into()),
        ..upstream()
    };
    assert_eq!(
        load(&flags, &pairs(&[])).unwrap_err().to_string(),
        r#"--listen: "8440" is not an address with a port; write "127.0.0.1:8440""#
    );
    let nothing = load(&Flags::default(), &pairs(&[]))
        .unwrap_err()
        .to_string();
    assert_eq!(
        nothing,
        "upstream.url: not set; say which server to wrap: --upstream http://127.0.0.1:8000/mcp, or \
         its command after --"
    );
}

#[test]
fn the_store_and_its_namespace() {
    let wrong = |text: &str| refusal(&format!("[store]\n{text}"));
    assert_eq!(
        wrong("url = 'redis://127.0.0.1'"),
        "config.toml: store.namespace: not set, but Redis needs it: services that share a Redis \
         must not claim each other's tasks; write the name of this service, the same on all its \
         replicas (or --namespace NAME)"
    );
    assert_eq!(
        wrong("url = 'redis://127.0.0.1'\nnamespace = 'a b'"),
        "config.toml: store.namespace: \"a b\" cannot be part of a key; write up to 64 letters, \
         digits, \"-\", \"_\" and \".\""
    );
    assert_eq!(
        wrong("url = 'redb:'"),
        "config.toml: store.url: names no file; write redb:/path/to/file"
    );
    let redis = "url = 'redis://h'\nnamespace = 'n'";
    assert_eq!(
        wrong(&format!("{redis}\n[store.tls]\nroots = 'ca.pem'")),
        "config.toml: store.tls: has an effect only if store.url begins with \"rediss\""
    );
    assert_eq!(
        wrong(&format!("{redis}\n[store.tls]\nkey = 'k.pem'")),
        "config.toml: store.tls.certificate: not set, but store.tls.key is; TLS needs both, PEM files"
    );
    assert_eq!(
        wrong("url = 'memory:'\nwait_replicas = 1"),
        "config.toml: store.wait_replicas: replicas and their files are a thing of Redis; take \
         wait_* out"
    );
    let homeless = load(&upstream(), &[]).unwrap_err().to_string();
    assert_eq!(
        homeless,
        "store.url: not set, and there is no usual place either (neither XDG_STATE_HOME nor HOME \
         is set); write --store redb:/path/to/file"
    );
}

#[test]
fn secrets_are_never_printed() {
    let secrets = [
        "[store]\nurl = 'postgres://ada:hunter2@db/x'",
        "[store]\nurl = ['redis://ada:hunter2@db']",
        "[store]\nurl = 'redis://ada:hunter2@db'\nnamespace = ''",
        "[store]\nurl = 'redis://ada:hunter2@db\n",
        "[store]\nurl = 'redis://ada:hunter2@db' x\n",
        "[upstream]\nurl = 'http://ada:hunter2@host/mcp'",
        "[upstream]\nurl = 'hunter2'",
    ];
    for text in secrets {
        let flags = if text.contains("[upstream]") {
            Flags::default()
        } else {
            upstream()
        };
        let refusal = File::new(text).load(&flags, &[]).unwrap_err();
        assert!(!refusal.contains("hunter2"), "{refusal}");
        assert!(refusal.starts_with("config.toml: "), "{refusal}");
        assert!(!refusal.contains('\n'), "{refusal}");
    }
    let config = from_file("[store]\nurl = 'redis://ada:hunter2@db'\nnamespace = 'n'\n");
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn files_that_cannot_be_read() {
    assert_eq!(
        refusal("[tasks]\nmode = auto\n"),
        "config.toml: line 2 is not TOML: invalid string, expected `\"`, `'`"
    );
    let flags = Flags {
        config: Some("no/such/file.toml".into()),
        ..upstream()
    };
    let folder = std::env::current_dir().unwrap();
    assert_eq!(
        load(&flags, &pairs(&[])).unwrap_err().to_string(),
        format!(
            "--config no/such/file.toml: cannot be read: No such file or directory; looked for in {}",
            folder.display()
        )
    );
    let flags = Flags {
        config: Some("/no/such/file.toml".into()),
        ..upstream()
    };
    assert_eq!(
        load(&flags, &pairs(&[])).unwrap_err().to_string(),
        "--config /no/such/file.toml: cannot be read: No such file or directory"
    );
}

#[test]
fn off_loopback_must_be_meant() {
    let config = from_file("[listen]\naddress = '0.0.0.0:8440'");
    assert_eq!(
        config.refuse_exposure().unwrap_err().to_string(),
        "listen.address: 0.0.0.0:8440 can be reached from other machines, and raincheck does not \
         check who calls: set auth.tokens_file or [[auth.jwt]], or listen on 127.0.0.1, or set \
         auth.allow_anonymous = true if something in front of it does"
    );
    let meant = "[listen]\naddress = '0.0.0.0:8440'\n[auth]\nallow_anonymous = true";
    assert!(from_file(meant).refuse_exposure().is_ok());
    let asked = "[listen]\naddress = '0.0.0.0:8440'\n[auth]\ntokens_file = 'tokens'";
    assert!(from_file(asked).refuse_exposure().is_ok());
    assert!(
        from_file("[listen]\naddress = '[::1]:8440'")
            .refuse_exposure()
            .is_ok()
    );
    assert!(
        from_file("[listen]\naddress = 'localhost:8440'")
            .refuse_exposure()
            .is_ok()
    );
}
