//! The page for operators, and who may ask what it asks. `tests/board` uses it in a browser.

use hyper::Method;

use crate::support::{Client, Config, Era, Rig};

const TOKEN: &str = "correct-horse-battery-staple";

const FILES: [&str; 4] = ["/", "/board", "/board/board.js", "/board/board.css"];

async fn operators(token: Option<&str>) -> (Rig, Client) {
    let token = token.map_or(String::new(), |token| format!("token = {token:?}"));
    let lines = format!("listen = \"127.0.0.1:0\"\n{token}");
    let rig = Rig::start(Era::Modern, Config::always().section("admin", &lines)).await;
    let operators = Client::of(rig.proxy.operators().await);
    (rig, operators)
}

#[tokio::test]
async fn the_page_is_there_without_a_token_and_its_data_is_not() {
    let (_rig, operators) = operators(Some(TOKEN)).await;
    for file in FILES {
        let page = operators.page(file).await.of_status(200).unwrap();
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"));
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"));
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
        assert!(!page.body.contains(TOKEN));
    }
    for path in [
        "/tasks",
        "/events",
        "/config",
        "/board/x.js",
        "/board/..%2fconfig",
    ] {
        let refused = operators.page(path).await;
        assert_eq!(refused.status, 401, "{path}: {}", refused.body);
    }
    let wrong = operators.http(Method::POST, "/").send().await;
    assert_eq!(wrong.status, 401, "{}", wrong.body);
}

/// What browsers say of a page elsewhere, under the right name and under a name that leads here.
#[tokio::test]
async fn a_page_of_another_origin_neither_reads_nor_acts() {
    let (_rig, operators) = operators(None).await;
    for (method, path) in [
        (Method::GET, "/tasks"),
        (Method::GET, "/events"),
        (Method::POST, "/drain"),
        (Method::POST, "/tasks/0a1b2c3d/cancel"),
    ] {
        for (name, value) in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("host", "evil.example"),
            ("x-mcp-subscription-id", "sub_0a1b"),
        ] {
            let request = operators.http(method.clone(), path).header(name, value);
            let refused = request.send().await;
            assert_eq!(refused.status, 403, "{method} {path} {name}: {value}");
        }
    }
    for file in FILES {
        let rebound = operators.http(Method::GET, file);
        let rebound = rebound.header("host", "evil.example").send().await;
        assert_eq!(rebound.status, 403, "{file}");
        let link = operators.http(Method::GET, file);
        let link = link.header("sec-fetch-site", "cross-site").send().await;
        assert_eq!(link.status, 200, "a link from elsewhere leads to the page");
    }
    operators.page("/readyz").await.of_status(200).unwrap();
}
