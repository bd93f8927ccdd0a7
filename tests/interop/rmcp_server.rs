//! The bakery of `servers/*.py` made with rmcp, as its users make a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rmcp::handler::server::tool::{InputResponses, RequestState};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResponse, CallToolResult, ClientResult, ContentBlock, ElicitRequest,
    ElicitRequestParams, ElicitationAction, InputRequest, InputRequests, InputRequiredResult,
    ProgressNotificationParam, RequestMetaObject, ServerCapabilities, ServerConfig, ServerRequest,
};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler, tool, tool_handler, tool_router};
use serde_json::json;
use tokio::net::TcpListener;

/// How it serves clients of the old era.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// A session each, and event streams that can be resumed.
    Sessions,
    /// No sessions, and JSON where one answer is all there is to say.
    StatelessJson,
}

/// Serves until the test ends.
pub(crate) async fn serve(style: Style) -> SocketAddr {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(style == Style::Sessions)
        .with_json_response(style == Style::StatelessJson);
    let service = StreamableHttpService::new(
        || Ok(Bakery),
        std::sync::Arc::new(LocalSessionManager::default()),
        config,
    );
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

struct Bakery;

#[derive(serde::Deserialize, rmcp::schemars::JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct Loaves {
    loaves: u32,
}

#[derive(serde::Deserialize, rmcp::schemars::JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct Order {
    bread: String,
}

#[tool_router]
impl Bakery {
    #[tool(description = "What so many loaves cost")]
    fn price(Parameters(Loaves { loaves }): Parameters<Loaves>) -> String {
        format!("{loaves} loaves are {} euros", loaves * 3)
    }

    #[tool(description = "Bakes one loaf after the other")]
    async fn bake(
        Parameters(Loaves { loaves }): Parameters<Loaves>,
        peer: Peer<RoleServer>,
        meta: RequestMetaObject,
    ) -> Result<String, ErrorData> {
        for loaf in 1..=loaves {
            if let Some(token) = meta.get_progress_token() {
                let progress = ProgressNotificationParam::new(token, f64::from(loaf))
                    .with_message(format!("loaf {loaf} is in the oven"));
                peer.notify_progress(progress)
                    .await
                    .map_err(|e| internal(&e))?;
            }
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        Ok(format!("{loaves} loaves baked"))
    }

    #[tool(description = "Takes an order, and asks how many: by its answer")]
    fn order(
        Parameters(Order { bread }): Parameters<Order>,
        RequestState(state): RequestState,
        InputResponses(answers): InputResponses,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(answer) = answers.as_ref().and_then(|answers| answers.get("loaves")) else {
            let question = InputRequest::Elicitation(ElicitRequest::new(how_many(&bread)));
            let questions = InputRequests::from([("loaves".to_owned(), question)]);
            return Ok(InputRequiredResult::new(Some(questions), Some(bread)).into());
        };
        let state = state.ok_or_else(|| ErrorData::invalid_params("no state", None))?;
        let loaves = &answer["content"]["value"];
        let done = ContentBlock::text(format!("{loaves} loaves of {state} ordered"));
        Ok(CallToolResult::success(vec![done]).into())
    }

    #[tool(description = "Reserves bread, and asks how many: in the middle of the tool")]
    async fn reserve(
        Parameters(Order { bread }): Parameters<Order>,
        peer: Peer<RoleServer>,
    ) -> Result<String, ErrorData> {
        let question = ServerRequest::ElicitRequest(ElicitRequest::new(how_many(&bread)));
        let answer = peer
            .send_request(question)
            .await
            .map_err(|e| internal(&e))?;
        let ClientResult::ElicitResult(answer) = answer else {
            return Err(internal(&"no answer to an elicitation"));
        };
        if answer.action != ElicitationAction::Accept {
            return Ok(format!("no {bread}"));
        }
        let loaves = &answer.content.unwrap_or_default()["value"];
        Ok(format!("{loaves} loaves of {bread} reserved"))
    }
}

#[tool_handler]
impl ServerHandler for Bakery {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

fn how_many(bread: &str) -> ElicitRequestParams {
    serde_json::from_value(json!({
        "mode": "form",
        "message": format!("How many loaves of {bread}?"),
        "requestedSchema": {
            "type": "object",
            "properties": {"value": {"type": "integer"}},
            "required": ["value"],
        },
    }))
    .unwrap()
}

fn internal(error: &impl ToString) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
