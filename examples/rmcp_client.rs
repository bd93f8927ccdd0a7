//! A client with Tasks, on rmcp: calls one tool, follows its task, answers its questions and prints its result.
//!
//!     cargo run --example rmcp_client -- URL TOOL [ARGUMENTS]
#![expect(clippy::print_stdout, reason = "the result is the output")]

use std::error::Error;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, ClientCapabilities, ClientConfig,
    GetTaskParams, Implementation, InputRequest, InputRequests, JsonObject, ProtocolVersion,
    TaskPayload, UpdateTaskParams,
};
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientLifecycleMode, ClientServiceExt as _, RoleClient};
use serde_json::{Value, json};

type Client = RunningService<RoleClient, ClientConfig>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(url), Some(tool)) = (words.next(), words.next()) else {
        return Err("rmcp_client URL TOOL [ARGUMENTS]".into());
    };
    let arguments: JsonObject = serde_json::from_str(&words.next().unwrap_or_else(|| "{}".into()))?;

    let client = connect(url).await?;
    let params = CallToolRequestParams::new(tool).with_arguments(arguments);
    let result = match client.call_tool_once(params).await? {
        CallToolResponse::Complete(result) => serde_json::to_value(result)?,
        CallToolResponse::Task(task) => follow(&client, task.task.task_id).await?,
        CallToolResponse::InputRequired(_) => {
            return Err(
                "the tool asks before there is a task: set tasks.input = \"in_task\"".into(),
            );
        }
        _ => return Err("an answer that this client does not know".into()),
    };
    println!(
        "{}",
        result["content"][0]["text"].as_str().unwrap_or_default()
    );
    client.cancel().await?;
    Ok(())
}

/// `enable_tasks` declares the extension on every request. Without it, calls stay plain calls.
async fn connect(url: String) -> Result<Client, Box<dyn Error>> {
    let capabilities = ClientCapabilities::builder()
        .enable_elicitation()
        .enable_tasks()
        .build();
    let config = ClientConfig::new(capabilities, Implementation::from_build_env());
    let mode = ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    };
    let transport = StreamableHttpClientTransport::from_uri(url);
    Ok(config.serve_with_lifecycle(transport, mode).await?)
}

/// Polls until the task has ended, at the pace that the server suggests. Ctrl-C cancels the task.
async fn follow(client: &Client, id: String) -> Result<Value, Box<dyn Error>> {
    println!("task {id}");
    loop {
        let polled = client.get_task(GetTaskParams::new(&id)).await?.task;
        let (task, payload) = (polled.task, polled.payload);
        match payload {
            TaskPayload::Working => {
                println!("{}", task.status_message.as_deref().unwrap_or("working"));
            }
            TaskPayload::InputRequired { input_requests } => {
                let answers = answers(&input_requests)?;
                client
                    .update_task(UpdateTaskParams::new(&id, answers))
                    .await?;
                continue;
            }
            TaskPayload::Completed { result } => return Ok(result.into()),
            TaskPayload::Failed { error } => return Err(format!("failed: {error:?}").into()),
            TaskPayload::Cancelled => return Err("cancelled".into()),
            _ => return Err("a status that this client does not know".into()),
        }
        let pause = Duration::from_millis(task.poll_interval_ms.unwrap_or(2_000));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = tokio::signal::ctrl_c() => client.cancel_task(CancelTaskParams::new(&id)).await?,
        }
    }
}

/// A real client asks its user. This one says "Ada" to each question for a name.
fn answers(
    requests: &InputRequests,
) -> Result<std::collections::BTreeMap<String, Value>, Box<dyn Error>> {
    let mut answers = std::collections::BTreeMap::new();
    for (key, request) in requests {
        let InputRequest::Elicitation(_) = request else {
            return Err("this client can only be asked for a form".into());
        };
        println!("asked: {key}");
        let answer = json!({"action": "accept", "content": {"name": "Ada"}});
        answers.insert(key.clone(), answer);
    }
    Ok(answers)
}
