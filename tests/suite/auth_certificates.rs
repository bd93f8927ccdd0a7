//! Clients with certificates: whom a certificate names owns the tasks, and a wrong certificate gets nowhere.

use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, DistinguishedName, SanType};
use serde_json::{Value, json};

use crate::authority::Authority;
use crate::support::client::{Client, Request, Task};
use crate::support::issuer::Issuer;
use crate::support::{Config, Era, Proxy, TempDir, Upstream};
use crate::tls_client::{self, Identity};

/// A certificate with these DNS names and URIs, and its key.
pub(crate) fn issue_to(authority: &Authority, names: &[&str], uris: &[&str]) -> Identity {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    let uris = uris
        .iter()
        .map(|uri| SanType::URI((*uri).try_into().unwrap()));
    params.subject_alt_names.extend(uris);
    params.distinguished_name = DistinguishedName::new();
    authority.sign(&params)
}

/// A listener with TLS that takes certificates, and what signs them.
pub(crate) struct Scene {
    pub(crate) proxy: Proxy,
    pub(crate) upstream: Upstream,
    pub(crate) server: Authority,
    pub(crate) clients: Authority,
    _files: TempDir,
}

impl Scene {
    pub(crate) async fn start(config: Config) -> Self {
        let (server, clients) = (Authority::new(), Authority::new());
        let files = TempDir::new();
        let (certificate, key) = server.issue();
        let file = |name: &str, text: &str| files.file(name, text).display().to_string();
        let certificate = file("certificate", &certificate);
        let key = file("key", &key);
        let roots = file("roots", &clients.roots());
        let config = config
            .section(
                "listen.tls",
                &format!("certificate = {certificate:?}\nkey = {key:?}"),
            )
            .section("auth", &format!("client_roots = {roots:?}"));
        let upstream = Upstream::start(Era::Modern).await;
        Self {
            proxy: config.start(&upstream.url()).await,
            upstream,
            server,
            clients,
            _files: files,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::of(self.proxy.address())
    }

    /// The status and the JSON of the answer. `None`: the connection ended without an answer.
    async fn ask(&self, certificate: Option<&Identity>, request: Request) -> Option<(u16, Value)> {
        let trusted = [&self.server];
        let stream = tls_client::connect(self.proxy.address(), &trusted, certificate);
        let stream = stream.await.ok()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        let response = sender.send_request(request.into_http()).await.ok()?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.ok()?.to_bytes();
        Some((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    async fn make_task(&self, certificate: &Identity) -> Task {
        let call = self.client().calling("echo", json!({"text": "x"}));
        let (status, answer) = self.ask(Some(certificate), call).await.unwrap();
        let id = answer["result"]["taskId"].as_str();
        Task::by_id(id.unwrap_or_else(|| panic!("{status} {answer}")).to_owned())
    }

    async fn get(&self, certificate: &Identity, task: &Task) -> (u16, Value) {
        let request = self.client().asking("tasks/get", task);
        self.ask(Some(certificate), request).await.unwrap()
    }
}

const ID: &str = "spiffe://example.org/agents/a";

#[tokio::test]
async fn a_certificate_names_its_client() {
    let scene = Scene::start(Config::always()).await;
    let issue = |names: &[&str], uris: &[&str]| issue_to(&scene.clients, names, uris);
    let first = issue(&[], &[ID]);
    let task = scene.make_task(&first).await;
    // A renewed certificate of the same client, and those of others.
    let renewed = issue(&["any.example"], &[ID]);
    assert_eq!(scene.get(&renewed, &task).await.0, 200);
    for other in [
        issue(&[], &["spiffe://example.org/agents/b"]),
        issue(&["agents.example"], &[]),
    ] {
        let (status, answer) = scene.get(&other, &task).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32602)));
    }
    scene.make_task(&issue(&["agents.example"], &[])).await;
}

#[tokio::test]
async fn nobody_gets_in_without_a_good_certificate() {
    let scene = Scene::start(Config::always()).await;
    let call = || scene.client().calling("echo", json!({"text": "x"}));
    let nameless = issue_to(&scene.clients, &["a.example", "b.example"], &[]);
    for certificate in [None, Some(&nameless)] {
        let (status, answer) = scene.ask(certificate, call()).await.unwrap();
        assert_eq!(status, 401, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("client certificate"), "{message}");
    }
    let stranger = issue_to(&Authority::new(), &[], &[ID]);
    assert_eq!(scene.ask(Some(&stranger), call()).await, None);
    // A header is no certificate.
    let forged = call().header("x-forwarded-client-cert", &format!("URI={ID}"));
    assert_eq!(scene.ask(None, forged).await.unwrap().0, 401);
    assert!(scene.upstream.received_of_clients().is_empty());
}

/// A gateway with a certificate passes on the tokens of its clients.
#[tokio::test]
async fn a_token_counts_before_a_certificate() {
    let issuer = Issuer::start().await;
    let scene = Scene::start(issuer.wanted_by(Config::always(), "")).await;
    scene
        .proxy
        .until_said("the keys of an issuer were fetched", 1)
        .await;
    let gateway = issue_to(&scene.clients, &["gateway.example"], &[]);
    let of_gateway = scene.make_task(&gateway).await;
    let alice = scene.client().named(issuer.token("alice"));
    let asked = alice.asking("tasks/get", &of_gateway);
    let (status, _) = scene.ask(Some(&gateway), asked).await.unwrap();
    assert_eq!(status, 400, "it is Alice who asks");
    let call = alice.calling("echo", json!({"text": "x"}));
    let (_, hers) = scene.ask(Some(&gateway), call).await.unwrap();
    let hers = Task::by_id(hers["result"]["taskId"].as_str().unwrap().to_owned());
    assert_eq!(scene.get(&gateway, &hers).await.0, 400);
    let asked = alice.asking("tasks/get", &hers);
    assert_eq!(scene.ask(None, asked).await.unwrap().0, 200);
    let bad = scene.client().named("Bearer x");
    let bad = bad.calling("echo", json!({"text": "x"}));
    assert_eq!(scene.ask(Some(&gateway), bad).await.unwrap().0, 401);
}
