//! `[[notify]]`: receivers of webhooks.

use std::time::Duration;

use raincheck::notify::callbacks::CallbackReach;

use super::*;

const SECRET: &str = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4";

/// A receiver with these lines in place of, or beside, the usual ones.
fn receiver(own: &str) -> String {
    let key = |line: &str| line.split_once(" = ").unwrap().0.to_owned();
    let usual = [
        "url = 'https://hooks.example.com/in'".to_owned(),
        format!("secret = '{SECRET}'"),
    ];
    let replaced: Vec<String> = own.lines().map(key).collect();
    let kept = usual.iter().filter(|line| !replaced.contains(&key(line)));
    let kept: Vec<_> = kept.map(String::as_str).collect();
    format!("[[notify]]\n{}\n{own}\n", kept.join("\n"))
}

#[test]
fn a_receiver_needs_an_address_and_a_secret() {
    let config = from_file(&receiver(""));
    let found = &config.notify[0];
    assert_eq!(found.url.to_string(), "https://hooks.example.com/in");
    assert_eq!((found.states.len(), found.secrets.len()), (4, 1));
    assert_eq!(found.retry_for, Duration::from_mins(15));
    assert!(!format!("{config:?}").contains("YWJj"));
    assert!(
        !config.shown.to_string().contains("YWJj"),
        "{}",
        config.shown
    );
    // Who knows the path may send there, so only the host is shown.
    let shown = &config.shown["notify"][0]["url"];
    assert_eq!(shown, "https://hooks.example.com/[secret]");
    let both = format!("secret_previous = '{SECRET}'\nstates = 'failed'\nretry_for = '1h'");
    let found = &from_file(&receiver(&both)).notify[0];
    assert_eq!((found.states.len(), found.secrets.len()), (1, 2));
}

/// Lines in place of the usual ones, and what is said of them.
const WRONG: &[(&str, &str)] = &[
    ("url = ''", "url: not set"),
    ("url = 'hooks.example.com'", "url: is not an address"),
    (
        "url = 'https://u:p@hooks.example.com'",
        "url: is not an address",
    ),
    (
        "url = 'http://hooks.example.com/in'",
        "url: must begin with \"https\"",
    ),
    (
        "url = 'https://127.0.0.1/in'",
        "url: is an address of this machine",
    ),
    (
        "url = 'https://localhost/in'",
        "url: is an address of this machine",
    ),
    (
        "url = 'https://a.localhost./in'",
        "url: is an address of this machine",
    ),
    (
        "url = 'https://10.1.2.3/in'",
        "url: is an address of this machine",
    ),
    (
        "url = 'https://169.254.169.254/'",
        "url: is an address of this machine",
    ),
    (
        "url = 'https://[::1]/in'",
        "url: is an address of this machine",
    ),
    (
        "url = 'https://[::ffff:127.0.0.1]/'",
        "url: is an address of this machine",
    ),
    (
        "url = 'https://2130706433/in'",
        "url: is an address in an unusual form",
    ),
    (
        "url = 'https://0177.0.0.1/in'",
        "url: is an address in an unusual form",
    ),
    (
        "url = 'https://0x7f.1/in'",
        "url: is an address in an unusual form",
    ),
    (
        "url = 'https://127.0x1/in'",
        "url: is an address in an unusual form",
    ),
    ("secret = 'hunter2'", "secret: is not \"whsec_\""),
    ("secret = 'whsec_YWJj'", "secret: is not \"whsec_\""),
    (
        "secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'",
        "secret: is an example",
    ),
    ("secret_previous = 'x'", "secret_previous: is not"),
    (
        "states = ['done']",
        "states: \"done\" is not one of \"completed\", ",
    ),
    ("states = []", "states: is empty"),
    ("tools = ['[']", "tools: \"[\" is not a glob"),
    ("tools = []", "tools: is empty"),
    ("retry_for = '1s'", "retry_for: must be from"),
    ("retry_for = '2d'", "retry_for: must be from"),
    (
        "urls = 'x'",
        "urls: unknown key; did you mean url? accepted in [[notify]]: ",
    ),
];

#[test]
fn a_wrong_receiver_is_refused() {
    for (wrong, said) in WRONG {
        let refusal = refusal(&receiver(wrong));
        let said = format!("[[notify]] #1: {said}");
        assert!(refusal.contains(&said), "{wrong}: {refusal}");
        assert!(
            !refusal.contains("hunter2") && !refusal.contains("p@"),
            "{refusal}"
        );
    }
    let twice = refusal(&(receiver("") + &receiver("")));
    assert!(
        twice.contains("[[notify]] #2: url: is the address of another"),
        "{twice}"
    );
    let missing = refusal("[[notify]]\nurl = 'https://hooks.example.com/in'\n");
    assert!(
        missing.contains("[[notify]] #1: secret: not set"),
        "{missing}"
    );
}

#[test]
fn a_receiver_in_the_own_network_may_be_allowed() {
    for url in [
        "http://127.0.0.1:9/in",
        "http://hooks/in",
        "https://10.0.0.1/in",
    ] {
        let lines = format!("url = '{url}'\nallow_private = true");
        assert_eq!(from_file(&receiver(&lines)).notify[0].url.to_string(), url);
    }
    let public = refusal(&receiver("url = 'http://8.8.8.8/'\nallow_private = true"));
    assert!(
        public.contains("url: must begin with \"https\""),
        "{public}"
    );
}

#[test]
fn only_clients_that_prove_who_they_are_may_subscribe_webhooks() {
    let events = "[events]\nenabled = true\nwebhooks = 'public'\n";
    let nobody = refusal(events);
    assert!(nobody.contains("events.webhooks"), "{nobody}");
    let known = from_file(&format!("{events}[auth]\ntokens_file = '/tokens'\n"));
    let webhooks = known.events.unwrap().webhooks;
    assert_eq!(webhooks, Some(CallbackReach::Public));
    let anywhere =
        "[events]\nenabled = true\nwebhooks = 'anywhere'\n[auth]\ntokens_file = '/tokens'\n";
    let listens = format!("{anywhere}[admin]\nlisten = '127.0.0.1:8442'\n");
    let open = refusal(&listens);
    assert!(
        open.contains("events.webhooks") && open.contains("admin.token"),
        "{open}"
    );
    from_file(&format!("{listens}token = '0f2c9a4e7b6d1835'\n"));
    from_file(&format!(
        "{listens}[[admin.operators]]\nname = 'ada'\ntoken = '0f2c9a4e7b6d1835'\n"
    ));
    from_file(&format!("{anywhere}[admin]\nprobes = '127.0.0.1:8441'\n"));
    let word = refusal("[events]\nenabled = true\nwebhooks = 'all'\n");
    assert!(word.contains("\"anywhere\""), "{word}");
}
