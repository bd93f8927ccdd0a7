//! rmcp as a client without Tasks, in each way in which it finds out what a server speaks.

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ElicitRequestParams,
    ElicitResult, ElicitationAction, Implementation, ProtocolVersion,
};
use rmcp::service::{RequestContext, RunningService};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt as _, ErrorData, RoleClient,
    ServiceExt as _,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{END, House, START, Upstream};

pub(super) type Client = RunningService<RoleClient, Person>;

/// Says yes to whatever is asked.
#[derive(Debug, Clone)]
pub(super) struct Person;

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::from_build_env())
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let yes = ElicitResult::new(ElicitationAction::Accept);
        Ok(yes.with_content(json!({"confirm": true})))
    }
}

#[tokio::test]
async fn the_usual_handshake_in_front_of_both() {
    for upstream in [Upstream::Legacy, Upstream::Modern] {
        let house = House::open(upstream).await;
        let client = timeout(START, Person.serve(transport(&house)));
        let client = client.await.expect("an answer in time").unwrap();
        exercise(&house, client, "2025-11-25").await;
    }
}

#[tokio::test]
async fn initialize_in_front_of_both() {
    for upstream in [Upstream::Legacy, Upstream::Modern] {
        let house = House::open(upstream).await;
        let client = connect(&house, ClientLifecycleMode::Initialize).await;
        exercise(&house, client, "2025-11-25").await;
    }
}

#[tokio::test]
async fn auto_in_front_of_both() {
    for upstream in [Upstream::Legacy, Upstream::Modern] {
        let house = House::open(upstream).await;
        let mode = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: None,
        };
        let client = connect(&house, mode).await;
        exercise(&house, client, "2026-07-28").await;
    }
}

#[tokio::test]
async fn discover_in_front_of_both() {
    for upstream in [Upstream::Legacy, Upstream::Modern] {
        let house = House::open(upstream).await;
        let mode = ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        };
        let client = connect(&house, mode).await;
        exercise(&house, client, "2026-07-28").await;
    }
}

pub(super) fn transport(house: &House) -> impl Transport<RoleClient> + use<> {
    let uri = format!("http://{}/mcp", house.listen);
    StreamableHttpClientTransport::from_config(StreamableHttpClientTransportConfig::with_uri(uri))
}

pub(super) async fn connect(house: &House, mode: ClientLifecycleMode) -> Client {
    let connected = Person.serve_with_lifecycle(transport(house), mode);
    let connected = timeout(START, connected).await;
    connected.expect("an answer in time").unwrap()
}

async fn exercise(house: &House, client: Client, version: &str) {
    let info = client.peer_info().expect("the server is known");
    assert_eq!(info.protocol_version.to_string(), version);
    let tools = client.list_all_tools().await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "greet"));
    assert_eq!(
        call(&client, "greet", json!({"name": "Ada"})).await,
        "Hello, Ada!"
    );
    let slow = json!({"seconds": 1.0, "label": "rmcp"});
    assert_eq!(
        call(&client, "slow_compute", slow).await,
        "slow_compute(rmcp) done after 1s"
    );
    let asked = call(&client, "confirm_delete", json!({"filename": "a.txt"})).await;
    let yes = "confirm_delete(a.txt): action=accept confirmed=True";
    assert!(asked.starts_with(yes), "{asked}");
    cancel(house, &client).await;
}

/// A call that is dropped is cancelled, and the server hears of it.
async fn cancel(house: &House, client: &Client) {
    let endless = json!({"seconds": 60, "label": "cancel me"});
    tokio::select! {
        said = call(client, "slow_compute", endless) => panic!("not so fast: {said}"),
        () = counted(house, "started", 2) => {}
    }
    counted(house, "cancelled", 1).await;
}

/// Until the upstream counts so many calls of the slow tool.
async fn counted(house: &House, what: &str, wanted: u64) {
    let counts = format!("the upstream counts {wanted} {what}");
    house.until_counted(END, &counts, what, wanted).await;
}

async fn call(client: &Client, tool: &'static str, arguments: Value) -> String {
    let arguments = serde_json::from_value(arguments).unwrap();
    let params = CallToolRequestParams::new(tool).with_arguments(arguments);
    let answer = timeout(END, client.call_tool(params)).await;
    let result: CallToolResult = answer.expect("an answer in time").unwrap();
    let result = serde_json::to_value(result).unwrap();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}
