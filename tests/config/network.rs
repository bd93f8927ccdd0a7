//! Who may be asked, and which headers go there.

use super::*;

#[test]
fn our_own_listener_is_no_server() {
    let circle = |listen: &str, url: &str| {
        let text = format!("[listen]\naddress = '{listen}'\n[upstream]\nurl = '{url}'");
        File::new(&text)
            .load(&Flags::default(), &[])
            .unwrap()
            .refuse_circle()
    };
    for (listen, url) in [
        ("127.0.0.1:8440", "http://127.0.0.1:8440/mcp"),
        ("127.0.0.1:8440", "http://localhost:8440/other"),
        ("0.0.0.0:8440", "http://127.0.0.1:8440/mcp"),
        ("[::]:8440", "http://[::1]:8440/mcp"),
        ("[::1]:8440", "http://[::1]:8440/mcp"),
        ("10.0.0.7:80", "http://10.0.0.7/mcp"),
        ("127.0.0.1:443", "https://localhost/mcp"),
        ("127.0.0.1:8440", "http://0.0.0.0:8440/mcp"),
    ] {
        let refused = circle(listen, url).unwrap_err().to_string();
        assert!(
            refused.starts_with("upstream.url: ") && refused.contains("raincheck itself listens"),
            "{listen} {url}: {refused}"
        );
    }
    for (listen, url) in [
        ("127.0.0.1:8440", "http://127.0.0.1:8000/mcp"),
        ("127.0.0.1:8440", "http://10.0.0.7:8440/mcp"),
        ("0.0.0.0:8440", "http://10.0.0.7:8440/mcp"),
        ("127.0.0.1:8440", "http://tools.example:8440/mcp"),
        ("127.0.0.1:0", "http://127.0.0.1/mcp"),
        ("127.0.0.1:8440", "unix:/run/mcp.sock"),
    ] {
        assert!(circle(listen, url).is_ok(), "{listen} {url}");
    }
}

#[test]
fn proxies_and_headers_are_named_exactly() {
    let config = from_file(
        "[listen]\ntrusted_proxies = ['10.0.0.7', '192.0.2.0/24', '::1']\n\
         [upstream]\nforward_headers = ['x-api-key', 'cookie', 'x-forwarded-for']",
    );
    let trusted: Vec<String> = config
        .listen
        .trusted_proxies
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(trusted, ["10.0.0.7/32", "192.0.2.0/24", "::1/128"]);
    let names: Vec<&str> = config
        .upstream
        .forward_headers
        .iter()
        .map(hyper::header::HeaderName::as_str)
        .collect();
    assert_eq!(names, ["x-api-key", "cookie", "x-forwarded-for"]);
    for wrong in ["proxy.example", "10.0.0.0/33", "10.0.0.7:80", ""] {
        let text = format!(
            "[upstream]\nurl = 'http://127.0.0.1:1/'\n[listen]\ntrusted_proxies = ['{wrong}']"
        );
        let refused = File::new(&text).load(&Flags::default(), &[]).unwrap_err();
        assert!(refused.contains("listen.trusted_proxies"), "{refused}");
    }
    for wrong in [
        "X-Api-Key",
        "a b",
        "authorization",
        "host",
        "mcp-session-id",
        "proxy-x",
        "via",
        "expect",
    ] {
        let text =
            format!("[upstream]\nurl = 'http://127.0.0.1:1/'\nforward_headers = ['{wrong}']");
        let refused = File::new(&text).load(&Flags::default(), &[]).unwrap_err();
        assert!(refused.contains("upstream.forward_headers"), "{refused}");
    }
    let text = "[upstream]\ncommand = ['cat']\nforward_headers = ['cookie']";
    let refused = File::new(text).load(&Flags::default(), &[]).unwrap_err();
    assert!(refused.contains("upstream.forward_headers"), "{refused}");
}

#[test]
fn parameters_of_clients_are_named_and_are_none_of_the_operators() {
    let config = from_file("[upstream]\nforward_query = ['tenant', 'filter[a']");
    assert_eq!(config.upstream.forward_query, ["tenant", "filter[a"]);
    let url = "url = 'http://127.0.0.1:1/mcp?profile=readonly;Team=a'";
    for wrong in ["", "a b=", "a&b", "a%20", "profile", "Profile", "team"] {
        let text = format!("[upstream]\n{url}\nforward_query = ['{wrong}']");
        let refused = File::new(&text).load(&Flags::default(), &[]).unwrap_err();
        assert!(refused.contains("upstream.forward_query"), "{refused}");
    }
    let text = "[upstream]\ncommand = ['cat']\nforward_query = ['tenant']";
    let refused = File::new(text).load(&Flags::default(), &[]).unwrap_err();
    assert!(refused.contains("upstream.forward_query"), "{refused}");
}
