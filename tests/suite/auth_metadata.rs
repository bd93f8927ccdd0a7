//! Where clients find out who issues tokens (RFC 9728): raincheck's own word, or the server's with raincheck's address.

use hyper::Method;
use serde_json::json;

use crate::support::issuer::Issuer;
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    a_client_finds_out_where_to_sign_in,
    the_servers_own_sign_in_has_our_address,
);

const PUBLIC: &str = "https://tools.example/out/mcp";
const METADATA: &str = "https://tools.example/.well-known/oauth-protected-resource/out/mcp";

/// Where the metadata of the resource may be asked for.
const PLACES: [&str; 3] = [
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
    "/.well-known/oauth-protected-resource/out/mcp",
];

fn public(config: Config) -> Config {
    config.section("listen", &format!("public_url = {PUBLIC:?}"))
}

async fn a_client_finds_out_where_to_sign_in(era: Era) {
    let issuer = Issuer::start().await;
    let config = public(Config::always().tool("held", "scopes = \"run\""));
    let rig = Rig::start(era, issuer.wanted_by(config, "")).await;
    let client = rig.client();
    let refused = client.call("echo", json!({"text": "x"})).await;
    assert_eq!(refused.status, 401);
    let challenge = format!("Bearer resource_metadata=\"{METADATA}\"");
    assert_eq!(refused.headers["www-authenticate"], challenge);

    let document = json!({
        "resource": PUBLIC,
        "authorization_servers": [issuer.name()],
        "scopes_supported": ["run"],
        "bearer_methods_supported": ["header"],
    });
    for place in PLACES {
        let page = client.http(Method::GET, place);
        // Of a page that may not call.
        let foreign = page.clone().header("origin", "https://inspector.example");
        for asked in [page.clone(), foreign.clone()] {
            let answer = asked.send().await;
            assert_eq!(answer.status, 200, "{place}");
            assert_eq!(answer.json(), document);
            assert_eq!(answer.headers["content-type"], "application/json");
            assert_eq!(answer.headers["access-control-allow-origin"], "*");
        }
        let preflight = client.http(Method::OPTIONS, place);
        let preflight = preflight.header("origin", "https://inspector.example");
        let allowed = preflight.send().await;
        assert_eq!(allowed.status, 204, "{place}");
        assert_eq!(allowed.headers["access-control-allow-methods"], "GET");
        assert_eq!(client.http(Method::POST, place).send().await.status, 405);
        // Nobody rebinds a name to read even that.
        assert_eq!(page.header("host", "evil.example").send().await.status, 403);
    }
    let elsewhere = "/.well-known/oauth-protected-resource/other";
    assert_eq!(client.page(elsewhere).await.status, 404);
    let foreign = client.calling("echo", json!({"text": "x"}));
    let foreign = foreign.header("origin", "https://inspector.example");
    assert_eq!(
        foreign.send().await.status,
        403,
        "the tools are for none of its pages"
    );
    assert!(rig.upstream.received_of_clients().is_empty());
}

async fn the_servers_own_sign_in_has_our_address(era: Era) {
    for config in [Config::never(), Config::auto("10s")] {
        let rig = Rig::start(era, public(config)).await;
        rig.upstream.challenge();
        let client = rig.client();
        for request in [
            client.request("tools/list", json!({})),
            client.request("server/discover", json!({})),
            client.calling("echo", json!({"text": ""})),
        ] {
            let answer = request.send().await;
            assert_eq!(answer.status, 401, "{}", answer.body);
            let challenge = answer.headers["www-authenticate"].to_str().unwrap();
            assert_eq!(
                challenge,
                format!("Bearer resource_metadata=\"{METADATA}\"")
            );
        }
        for place in PLACES {
            let answer = client.page(place).await;
            assert_eq!(answer.json(), json!({"resource": PUBLIC}), "{place}");
        }
    }
}
