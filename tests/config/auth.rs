//! Who may call.

use super::*;

#[test]
fn anybody_and_nobody_but_some_are_no_setting() {
    assert_eq!(
        refusal("[auth]\nallow_anonymous = true\ntokens_file = 'tokens'"),
        "config.toml: auth.allow_anonymous: is true, but auth.tokens_file, auth.client_roots or \
         [[auth.jwt]] is set, so that every client must say who it is; take one of the two out"
    );
    assert!(from_file("[auth]\ntokens_file = 'tokens'").auth.asks());
    assert!(!from_file("[auth]\nallow_anonymous = true").auth.asks());
    assert!(!from_file("").auth.asks());
}

#[test]
fn the_public_address_is_the_audience_and_an_allowed_host() {
    let text = format!(
        "[listen]\npublic_url = 'https://Tools.example:8443/a/mcp'\n{}",
        issuer("audience =")
    );
    let config = from_file(&text);
    assert_eq!(
        config.auth.jwt[0].audience,
        ["https://tools.example:8443/a/mcp"]
    );
    assert_eq!(config.listen.allowed_hosts, ["tools.example"]);
    let public = config.listen.public_url.unwrap();
    assert_eq!(
        &*public.metadata,
        "https://tools.example:8443/.well-known/oauth-protected-resource/a/mcp"
    );
    for local in [
        "http://localhost:8440/mcp",
        "http://127.0.0.1",
        "https://[::1]/",
    ] {
        from_file(&format!("[listen]\npublic_url = '{local}'"));
    }
    for (wrong, says) in [
        ("http://tools.example/mcp", "must begin with \"https\""),
        ("ftp://tools.example/mcp", "is not a plain address"),
        ("tools.example", "is not a plain address"),
        ("https://ada@tools.example/", "is not a plain address"),
        ("https://tools.example/mcp?x", "is not a plain address"),
        ("https://tools.example/mcp#x", "is not a plain address"),
        ("https://tools.example/\"", "is not a plain address"),
        ("https:///mcp", "is not a plain address"),
    ] {
        let said = refusal(&format!("[listen]\npublic_url = '{wrong}'"));
        assert!(
            said.contains("listen.public_url: ") && said.contains(says),
            "{wrong}: {said}"
        );
    }
}

#[test]
fn a_scope_is_a_word_that_some_client_can_have() {
    let auth = "[auth]\ntokens_file = 'tokens'\n";
    let config = from_file(&format!(
        "{auth}[tasks]\nscopes = 'read'\n[[tools]]\nname = 'a'\nscopes = ['run', 'x:y']\n\
         [[tools]]\nname = 'b'\nscopes = []\n[[tools]]\nname = 'c'"
    ));
    let of = |tool| config.rules.for_tool(tool).0.scopes.join(" ");
    assert_eq!([of("a"), of("b"), of("c")], ["run x:y", "", "read"]);
    assert!(config.rules.may_refuse());
    assert_eq!(
        config.rules.scopes().collect::<Vec<_>>(),
        ["read", "run", "x:y"]
    );
    let wrong = refusal(&format!("{auth}[[tools]]\nname = 'a'\nscopes = ['a b']"));
    assert!(
        wrong.contains("[[tools]] #1: scopes: \"a b\" is not a scope"),
        "{wrong}"
    );
    assert_eq!(
        refusal("[[tools]]\nname = 'a'\nscopes = 'run'"),
        "config.toml: [[tools]] #1: scopes: set, but nobody is asked who it is: set auth.tokens_file or \
         [[auth.jwt]], or take it out"
    );
}

/// An issuer of which one line is another one.
fn issuer(line: &str) -> String {
    let lines = [
        "issuer = 'https://login.example'",
        "jwks = 'https://login.example/jwks'",
        "audience = 'https://tools.example/mcp'",
    ];
    let name = line.split(' ').next().unwrap();
    let kept = lines
        .iter()
        .filter(|kept| !kept.starts_with(&format!("{name} ")));
    let kept: Vec<&str> = kept.copied().collect();
    let own = if line.ends_with(" =") { "" } else { line };
    format!("[[auth.jwt]]\n{}\n{own}\n", kept.join("\n"))
}

#[test]
fn an_issuer_is_named_exactly() {
    let auth = from_file(&issuer("algorithms = ['PS256', 'EdDSA']")).auth;
    assert!(auth.asks());
    let jwt = &auth.jwt[0];
    assert_eq!(
        (&*jwt.issuer, &*jwt.audience[0]),
        ("https://login.example", "https://tools.example/mcp")
    );
    let names: Vec<_> = jwt
        .algorithms
        .iter()
        .map(|algorithm| algorithm.name())
        .collect();
    assert_eq!(names, ["PS256", "EdDSA"]);
    for local in [
        "http://127.0.0.1:9/jwks",
        "http://[::1]/jwks",
        "http://localhost/jwks",
    ] {
        from_file(&issuer(&format!("jwks = '{local}'")));
    }
}

#[test]
fn what_is_wrong_with_an_issuer_is_said() {
    for (line, expected) in [
        (
            "issuer =",
            "[[auth.jwt]] #1: issuer: not set; write the claim \"iss\"",
        ),
        ("issuer = ''", "[[auth.jwt]] #1: issuer: not set"),
        (
            "jwks =",
            "[[auth.jwt]] #1: jwks: not set; write where its keys are",
        ),
        (
            "jwks = 'http://login.example/jwks'",
            "[[auth.jwt]] #1: jwks: must begin with \"https\"",
        ),
        (
            "jwks = 'http://127.0.0.1.nip.io/'",
            "[[auth.jwt]] #1: jwks: must begin with \"https\"",
        ),
        (
            "jwks = 'https://ada:hunter2@login.example'",
            "[[auth.jwt]] #1: jwks: is not an address",
        ),
        (
            "jwks = 'ftp://login.example'",
            "[[auth.jwt]] #1: jwks: is not an address",
        ),
        (
            "audience =",
            "[[auth.jwt]] #1: audience: not set; write the claim \"aud\"",
        ),
        ("audience = []", "[[auth.jwt]] #1: audience: not set"),
        ("audience = ['']", "[[auth.jwt]] #1: audience: not set"),
        ("algorithms = []", "[[auth.jwt]] #1: algorithms: is empty"),
        (
            "algorithms = 'none'",
            "[[auth.jwt]] #1: algorithms: \"none\" is not one of RS256, ",
        ),
        (
            "algorithms = 'HS256'",
            "[[auth.jwt]] #1: algorithms: \"HS256\" is not one of RS256, ",
        ),
        (
            "key = 'x'",
            "[[auth.jwt]] #1: key: unknown key; accepted in [[auth.jwt]]: ",
        ),
    ] {
        let said = refusal(&issuer(line));
        assert!(
            said.starts_with(&format!("config.toml: {expected}")),
            "{line}: {said}"
        );
        assert!(!said.contains("hunter2"));
    }
    let twice = issuer("") + &issuer("");
    assert!(
        refusal(&twice)
            .starts_with("config.toml: [[auth.jwt]] #2: issuer: is the issuer of another")
    );
    let plain = issuer("jwks = 'http://127.0.0.1/'") + "roots = 'ca.pem'";
    assert!(
        refusal(&plain).contains("roots: only counts"),
        "{}",
        refusal(&plain)
    );
}

#[test]
fn certificates_of_clients_need_tls() {
    let wrong = refusal("[auth]\nclient_roots = '/ca.pem'");
    assert!(
        wrong.contains("auth.client_roots: clients show certificates over TLS only"),
        "{wrong}"
    );
    let tls = "[listen.tls]\ncertificate = '/c.pem'\nkey = '/k.pem'\n";
    let auth = from_file(&format!("{tls}[auth]\nclient_roots = '/ca.pem'")).auth;
    assert!(auth.asks() && !auth.takes_tokens());
    let wrong = refusal(&format!(
        "{tls}[auth]\nclient_roots = '/ca.pem'\n[tasks]\nscopes = 'x'"
    ));
    assert!(wrong.contains("tasks.scopes: set, but"), "{wrong}");
}
