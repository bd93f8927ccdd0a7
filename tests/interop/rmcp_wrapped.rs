//! rmcp servers wrapped unmodified, in each way in which rmcp serves.

use rmcp::model::{
    CallToolResponse, ClientCapabilities, CreateTaskResult, TaskPayload, TaskStatus,
    UpdateTaskParams,
};
use serde_json::json;

use super::rmcp_server::{Style, serve};
use super::{House, connect, text};

/// What raincheck makes of a server that speaks both eras: what it finds, or what it is told.
const FOUND: &[(&str, &str)] = &[];
const LEGACY: &[(&str, &str)] = &[("RAINCHECK_UPSTREAM__ERA", "legacy")];

#[tokio::test]
async fn a_modern_rmcp_server_with_sessions() {
    let house = bakery(Style::Sessions, FOUND).await;
    calls_and_tasks(&house).await;
    a_question(&house, "order", "5 loaves of rye ordered").await;
}

#[tokio::test]
async fn a_modern_rmcp_server_without_sessions() {
    let house = bakery(Style::StatelessJson, FOUND).await;
    calls_and_tasks(&house).await;
    a_question(&house, "order", "5 loaves of rye ordered").await;
}

#[tokio::test]
async fn a_legacy_rmcp_server_with_sessions() {
    let house = bakery(Style::Sessions, LEGACY).await;
    calls_and_tasks(&house).await;
    a_question(&house, "reserve", "5 loaves of rye reserved").await;
}

/// Without sessions no answer reaches it, and the task says so as soon as there is one.
#[tokio::test]
async fn a_legacy_rmcp_server_without_sessions() {
    let house = bakery(Style::StatelessJson, LEGACY).await;
    calls_and_tasks(&house).await;
    let task = asked_and_answered(&house, "reserve").await;
    let TaskPayload::Failed { error } = house.terminal(&task).await.payload else {
        panic!("a question whose answer is refused ends the task");
    };
    assert_eq!(error["data"]["io.raincheck/reason"], "upstream_http");
}

async fn bakery(style: Style, environment: &[(&str, &str)]) -> House {
    House::behind(
        serve(style).await,
        "tests/interop/servers.toml",
        environment,
    )
    .await
}

async fn calls_and_tasks(house: &House) {
    let tools = house.client.list_all_tools().await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "price"));

    let patient = ClientCapabilities::builder().enable_elicitation().build();
    let patient = connect(house.listen, patient).await;
    let answer = House::ask(&patient, "price", json!({"loaves": 4})).await;
    let CallToolResponse::Complete(result) = answer else {
        panic!("a client without Tasks gets no task, not {answer:?}");
    };
    let result = serde_json::to_value(result).unwrap();
    assert_eq!(result["content"][0]["text"], "4 loaves are 12 euros");

    let task = house.task("price", json!({"loaves": 4})).await;
    assert_eq!(text(&house.terminal(&task).await), "4 loaves are 12 euros");

    let task = house.task("bake", json!({"loaves": 3})).await;
    house
        .until(&task, |seen| {
            let message = seen.task.status_message.as_deref();
            message.is_some_and(|message| message.contains("is in the oven"))
        })
        .await;
    assert_eq!(text(&house.terminal(&task).await), "3 loaves baked");
}

async fn a_question(house: &House, tool: &'static str, says: &str) {
    let task = asked_and_answered(house, tool).await;
    assert_eq!(text(&house.terminal(&task).await), says);
}

async fn asked_and_answered(house: &House, tool: &'static str) -> CreateTaskResult {
    let task = house.task(tool, json!({"bread": "rye"})).await;
    let key = the_question(house, &task).await;
    let answer = json!({"action": "accept", "content": {"value": 5}});
    let answers = [(key, answer)].into();
    house
        .client
        .update_task(UpdateTaskParams::new(&task.task.task_id, answers))
        .await
        .unwrap();
    task
}

/// The key of the only question of the task.
async fn the_question(house: &House, task: &CreateTaskResult) -> String {
    let asked = house
        .until(task, |task| task.status() == TaskStatus::InputRequired)
        .await;
    let TaskPayload::InputRequired { input_requests } = asked.payload else {
        panic!("input_required comes with its questions");
    };
    assert_eq!(input_requests.len(), 1);
    let (key, question) = input_requests.into_iter().next().unwrap();
    let question = serde_json::to_value(question).unwrap();
    assert_eq!(question["params"]["message"], "How many loaves of rye?");
    key
}
