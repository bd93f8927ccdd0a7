//! Who may call.

use super::*;

#[test]
fn anybody_and_nobody_but_some_are_no_setting() {
    assert_eq!(
        refusal("[auth]\nallow_anonymous = true\ntokens_file = 'tokens'"),
        "config.toml: auth.allow_anonymous: is true, but auth.tokens_file or [[auth.jwt]] is set, so \
         that every client must say who it is; take one of the two out"
    );
    assert!(from_file("[auth]\ntokens_file = 'tokens'").auth.asks());
    assert!(!from_file("[auth]\nallow_anonymous = true").auth.asks());
    assert!(!from_file("").auth.asks());
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
