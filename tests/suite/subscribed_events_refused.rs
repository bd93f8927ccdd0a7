//! Webhook subscriptions of the MCP Events extension: which are refused, and what is not told.

use serde_json::json;

use crate::auth_tokens::Tokens;
use crate::subscribed_events::{
    ALICE, Scene, alice, ended, on, params, refused, subscribe, subscribing, told_of, until_told,
};
use crate::support::issuer::Issuer;
use crate::support::receiver::{Receiver, Reply};
use crate::support::{Config, Era, Rig};

#[tokio::test]
async fn a_receiver_that_does_not_want_it_hears_nothing() {
    let wrong = r#"{"challenge":"x"}"#.to_owned();
    let receiver = Receiver::start([
        Reply::Body(wrong),
        Reply::Body(String::new()),
        Reply::Status(404),
        Reply::Status(500),
        Reply::Redirect("http://127.0.0.1:1/".into()),
    ])
    .await;
    let scene = Scene::start(Era::Modern, Config::always()).await;
    let alice = scene.alice();
    for reason in [
        "challenge_failed",
        "challenge_failed",
        "http_4xx",
        "http_5xx",
        "challenge_failed",
    ] {
        let answer = subscribing(&alice, params(&receiver, json!({}))).await;
        assert_eq!(refused(&answer), (-32015, json!({"reason": reason})));
    }
    let mut nowhere = params(&receiver, json!({}));
    nowhere["delivery"]["url"] = json!("http://127.0.0.1:1/");
    let answer = subscribing(&alice, nowhere).await;
    let reason = json!({"reason": "connection_refused"});
    assert_eq!(refused(&answer), (-32015, reason));
    ended(&alice, "echo").await;
    let subscription = subscribe(&alice, &receiver, json!({})).await;
    let task = ended(&alice, "echo").await;
    until_told(&receiver, &task, &subscription).await;
    assert_eq!(receiver.told().len(), 1);
}

#[tokio::test]
async fn only_so_many_subscriptions_are_kept() {
    let receiver = Receiver::start([]).await;
    let scene = Scene::start(Era::Modern, Config::always()).await;
    let alice = scene.alice();
    let of = |tool: usize| json!({"arguments": {"tool": format!("tool-{tool}")}});
    for tool in 0..32 {
        subscribe(&alice, &receiver, of(tool)).await;
    }
    let answer = subscribing(&alice, params(&receiver, of(32))).await;
    let data = json!({"limit": "subscriptions", "max": 32});
    assert_eq!(refused(&answer), (-32013, data));
    subscribe(&alice, &receiver, of(0)).await;
    subscribe(&scene.bob(), &receiver, of(32)).await;
    let end = alice.request("events/unsubscribe", params(&receiver, of(7)));
    end.send().await.into_result();
    subscribe(&alice, &receiver, of(32)).await;
}

#[tokio::test]
async fn addresses_of_this_machine_and_its_network_are_refused() {
    let receiver = Receiver::start([]).await;
    let tokens = Tokens::new(&[("alice", ALICE)]);
    let config = on(tokens.wanted_by(Config::always()), "public");
    let rig = Rig::start(Era::Modern, config).await;
    let alice = alice(rig.client());
    let port = receiver.url.rsplit(':').next().unwrap();
    for url in [
        format!("http://127.0.0.1:{port}/hook"),
        format!("https://127.0.0.1:{port}/hook"),
        format!("https://localhost:{port}/hook"),
        format!("https://[::1]:{port}/hook"),
        format!("https://[::ffff:127.0.0.1]:{port}/hook"),
        format!("https://2130706433:{port}/hook"),
        format!("https://0x7f.1:{port}/hook"),
        "https://10.0.0.1/".to_owned(),
        "https://169.254.169.254/latest".to_owned(),
        "http://hooks.example.com/".to_owned(),
        "https://user@hooks.example.com/".to_owned(),
        "ftp://hooks.example.com/".to_owned(),
        "hooks".to_owned(),
    ] {
        let mut to = params(&receiver, json!({}));
        to["delivery"]["url"] = json!(url);
        let answer = subscribing(&alice, to).await;
        assert_eq!(refused(&answer).0, -32602, "{url}");
    }
    assert!(receiver.got().is_empty());
}

#[tokio::test]
async fn only_who_has_proved_who_it_is_may_subscribe() {
    let receiver = Receiver::start([]).await;
    let scene = Scene::start(Era::Modern, Config::always()).await;
    let nobody = subscribing(&scene.rig.client(), params(&receiver, json!({}))).await;
    assert_eq!(nobody.status, 401);
    let invented = scene.rig.client().named("Bearer invented");
    let invented = subscribing(&invented, params(&receiver, json!({}))).await;
    assert_eq!(invented.status, 401);
    // Where raincheck does not check credentials, nobody may subscribe.
    let unchecked = Config::always().section("events", "enabled = true");
    let unchecked = Rig::start(Era::Modern, unchecked).await;
    let anonymous = subscribing(&unchecked.client(), params(&receiver, json!({}))).await;
    assert_eq!(refused(&anonymous).0, -32012);
    let named = unchecked.client().named("Bearer alice");
    let unchecked = subscribing(&named, params(&receiver, json!({}))).await;
    let data = json!({"feature": "deliveryMode", "value": "webhook"});
    assert_eq!(refused(&unchecked), (-32014, data));
    let listed = named.request("events/list", json!({})).send().await;
    let delivery = listed.into_result()["events"][0]["delivery"].take();
    assert_eq!(delivery, json!(["poll", "push"]));
    assert!(receiver.got().is_empty());
}

#[tokio::test]
async fn a_subscription_hears_only_of_tools_that_its_token_had_the_scopes_for() {
    let receiver = Receiver::start([]).await;
    let issuer = Issuer::start().await;
    let config = issuer.wanted_by(Config::always().tool("echo", "scopes = [\"run\"]"), "");
    let rig = Rig::start(Era::Modern, on(config, "anywhere")).await;
    rig.proxy
        .until_said("the keys of an issuer were fetched", 1)
        .await;
    let with = issuer.token_with("alice", json!({"scope": "run"}), json!({}));
    let (with, without) = (
        rig.client().named(with),
        rig.client().named(issuer.token("alice")),
    );
    let subscription = subscribe(&without, &receiver, json!({})).await;
    let hidden = ended(&with, "echo").await;
    let seen = ended(&with, "error").await;
    until_told(&receiver, &seen, &subscription).await;
    assert!(told_of(&receiver, &hidden).is_empty());
    subscribe(&with, &receiver, json!({})).await;
    let seen = ended(&with, "echo").await;
    until_told(&receiver, &seen, &subscription).await;
}
