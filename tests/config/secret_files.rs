//! Secrets in files of their own.

use raincheck::config::OperatorRole;

use super::*;

#[test]
fn each_secret_can_be_in_a_file_of_its_own() {
    let secrets = TempDir::new();
    let url = secrets.file("url", "redis://user:hunter2@localhost\n");
    let key = secrets.file("key", &format!("{}\n", "1f".repeat(32)));
    let previous = secrets.file("previous", &"2e".repeat(32));
    let token = secrets.file("token", "correct-horse-battery\r\n");
    let header = secrets.file("header", "Bearer hunter2\n");
    let webhook = secrets.file("webhook", "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4\n");
    let text = format!(
        "[store]\nurl_file = {url:?}\nnamespace = 'ns'\nseal = 'payloads'\nseal_key_file = {key:?}\n\
         seal_key_previous_file = {previous:?}\n[admin]\nprobes = '127.0.0.1:0'\ntoken_file = {token:?}\n\
         listen = '127.0.0.1:0'\n[drain]\ntoken_file = {token:?}\n[upstream]\n\
         header_files = {{ authorization = {header:?} }}\n[[notify]]\nurl = 'https://hooks.example.com/in'\n\
         secret_file = {webhook:?}\nsecret_previous_file = {webhook:?}"
    );
    let config = File::new(&text)
        .load(
            &upstream(),
            &[(
                "RAINCHECK_UPSTREAM__HEADER_FILES__X_API_KEY",
                header.to_str().unwrap(),
            )],
        )
        .unwrap();
    let Location::Redis { url: found, .. } = &config.store.location else {
        panic!("{:?}", config.store.location);
    };
    assert_eq!(found.expose(), "redis://user:hunter2@localhost");
    assert_eq!(config.store.seal_key.unwrap().expose(), &[0x1f; 32]);
    assert_eq!(
        config.store.seal_key_previous.unwrap().expose(),
        &[0x2e; 32]
    );
    assert_eq!(config.notify[0].secrets.len(), 2);
    assert_eq!(
        config.admin.token.unwrap().expose(),
        "correct-horse-battery"
    );
    assert_eq!(
        config.drain.token.unwrap().expose(),
        "correct-horse-battery"
    );
    let headers: Vec<_> = config.upstream.headers.iter().collect();
    assert_eq!(headers.len(), 2);
    assert!(
        headers
            .iter()
            .all(|header| header.value.expose() == "Bearer hunter2")
    );
    assert!(!config.shown.to_string().contains("hunter2"));
}

#[test]
fn the_variables_of_a_program_can_be_in_files() {
    let secrets = TempDir::new();
    let key = secrets.file("env", "hunter2\n");
    let name = "RAINCHECK_UPSTREAM__ENV_FILES__API_KEY";
    let text = "[upstream]\ncommand = ['server']\n[store]\nurl = 'memory:'";
    let config = File::new(text).load(&Flags::default(), &[(name, key.to_str().unwrap())]);
    let config = config.unwrap();
    let raincheck::config::Wrapped::Command(command) = &config.upstream.server else {
        panic!("{:?}", config.upstream.server);
    };
    let value = command
        .environment
        .iter()
        .find(|(name, _)| name == "API_KEY");
    assert_eq!(value.unwrap().1.expose(), "hunter2");
}

#[test]
fn a_file_that_cannot_be_the_secret_is_refused() {
    let secrets = TempDir::new();
    let (empty, good) = (
        secrets.file("empty", "\n"),
        secrets.file("good", "correct-horse-battery"),
    );
    for (lines, expected) in [
        (
            "[store]\nurl_file = '/nonexistent'".to_owned(),
            "config.toml: store.url_file: /nonexistent cannot be read: No such file or directory"
                .to_owned(),
        ),
        (
            "[store]\nseal_key_file = 'rediss://:hunter2@cache/0'".to_owned(),
            "config.toml: store.seal_key_file: the file that it names (not shown: it does not look like a path) \
             cannot be read: No such file or directory"
                .to_owned(),
        ),
        (
            format!("[admin]\ntoken_file = {empty:?}"),
            format!("config.toml: admin.token_file: {} is empty", empty.display()),
        ),
        (
            format!("[drain]\ntoken = 'correct-horse-battery'\ntoken_file = {good:?}"),
            "config.toml: drain.token_file: and drain.token are both set; take one of them out"
                .to_owned(),
        ),
        (
            format!("[upstream]\nheaders.x-a = '1'\nheader_files.x-a = {good:?}"),
            "config.toml: upstream.header_files.x-a: and upstream.headers.x-a are both set; take one \
             of them out"
                .to_owned(),
        ),
        (
            format!("[store]\nurl = 'memory:'\nseal_key_file = {good:?}"),
            "config.toml: store.seal_key: is not a key; write 64 hex digits, as `openssl rand -hex 32` \
             makes them"
                .to_owned(),
        ),
        (
            "[store]\nurl = 'redis://localhost'\nnamespace = 'ns'\nseal = 'payloads'".to_owned(),
            "config.toml: store.seal: is \"payloads\", and there is no key; set store.seal_key_file or \
             store.seal_key, the same on all replicas"
                .to_owned(),
        ),
    ] {
        let refused = File::new(&lines).load(&upstream(), &[]).unwrap_err();
        assert_eq!(refused, expected, "{lines}");
    }
}

/// Who asks as an operator need not be able to read the other secrets.
#[test]
fn an_operator_reads_the_operators_token_only() {
    let secrets = TempDir::new();
    let token = secrets.file("operator", "correct-horse-battery\n");
    let file = File::new(&format!(
        "[store]\nurl_file = '/nonexistent'\n[admin]\ntoken_file = {token:?}"
    ));
    let access = raincheck::config::load::admin_access(Some(&file.0), &[]).unwrap();
    assert_eq!(access.token.unwrap().expose(), "correct-horse-battery");
}

/// Somebody who asks has a token in the environment, whatever the settings name.
#[test]
fn an_operators_own_token_counts_before_that_of_the_settings() {
    let secrets = TempDir::new();
    let file = File::new("[admin]\nlisten = '127.0.0.1:8442'\ntoken_file = '/nonexistent'");
    let own = secrets.file("own", "battery-horse-correct");
    let token = |name: &str, value: &str| {
        let variable = (name.to_owned(), value.to_owned());
        let access = raincheck::config::load::admin_access(Some(&file.0), &[variable]);
        access.unwrap().token.unwrap().expose().to_owned()
    };
    assert_eq!(
        token("RAINCHECK_ADMIN__TOKEN", "battery-horse-correct"),
        "battery-horse-correct"
    );
    let path = own.to_str().unwrap();
    assert_eq!(
        token("RAINCHECK_ADMIN__TOKEN_FILE", path),
        "battery-horse-correct"
    );
}

#[test]
fn each_operator_has_a_token_of_its_own_and_no_answer_shows_one() {
    let secrets = TempDir::new();
    let token = secrets.file("ada", "correct-horse-battery\n");
    let text = format!(
        "[admin]\nlisten = '0.0.0.0:8442'\n[[admin.operators]]\nname = 'cleo'\ntoken_file = '/nonexistent'\n\
         [[admin.operators]]\nname = 'ada'\ntoken_file = {token:?}\nrole = 'read'\n\
         [[admin.operators]]\nname = 'bob'\ntoken = 'battery-horse-correct'\n"
    );
    let refused = File::new(&text).load(&upstream(), &[]).unwrap_err();
    assert!(
        refused.starts_with(
            "config.toml: [[admin.operators]] #1: token_file: /nonexistent cannot be read"
        ),
        "{refused}"
    );
    let named = raincheck::config::load::named_token(Some(&File::new(&text).0), &[]);
    assert_eq!(named.unwrap().unwrap().expose(), "correct-horse-battery");
    let cleo = "[[admin.operators]]\nname = 'cleo'\ntoken_file = '/nonexistent'\n";
    let text = text.replace(cleo, "");
    let config = File::new(&text).load(&upstream(), &[]).unwrap();
    assert_eq!(config.admin.token, None);
    let [ada, bob] = config.admin.operators.as_slice() else {
        panic!("{:?}", config.admin);
    };
    assert_eq!((&*ada.name, &*bob.name), ("ada", "bob"));
    assert_eq!(ada.token.expose(), "correct-horse-battery");
    assert_eq!(
        (ada.role, bob.role),
        (OperatorRole::Read, OperatorRole::Act)
    );
    let shown = config.shown.to_string();
    assert!(shown.contains("\"ada\""), "{shown}");
    for secret in ["battery", "horse"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}
