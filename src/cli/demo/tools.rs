//! The slow tools of the demo's server.

use std::future::pending;
use std::time::Duration;

use serde_json::{Value, json};

use super::call::DemoCall;
use super::wire::at;

/// The result of `tools/list`.
pub(super) fn list() -> Value {
    let number = |description: &str| json!({"type": "number", "description": description});
    json!({"tools": [
        {
            "name": "build_report",
            "description": "Builds a report, step by step",
            "inputSchema": {"type": "object", "properties": {
                "seconds": number("How long it takes"),
                "steps": number("In how many steps"),
            }},
        },
        {
            "name": "ask_name",
            "description": "Asks for a name in the middle of its work, then greets",
            "inputSchema": {"type": "object"},
        },
        {
            "name": "sleep_forever",
            "description": "Never ends by itself",
            "inputSchema": {"type": "object"},
        },
    ]})
}

/// The result of `tools/call`.
pub(super) async fn run(call: &DemoCall, params: &Value) -> Value {
    let arguments = at(params, "/arguments");
    match at(params, "/name").as_str() {
        Some("build_report") => build_report(call, arguments).await,
        Some("ask_name") => ask_name(call).await,
        Some("sleep_forever") => pending().await,
        _ => json!({"content": [{"type": "text", "text": "Unknown tool"}], "isError": true}),
    }
}

async fn build_report(call: &DemoCall, arguments: &Value) -> Value {
    // Zero steps would be a division by zero.
    let steps = at(arguments, "/steps")
        .as_u64()
        .unwrap_or(4)
        .clamp(1, 1_000);
    let seconds = at(arguments, "/seconds").as_f64().unwrap_or(4.0);
    // `from_secs_f64` panics for a negative number.
    let whole = Duration::from_secs_f64(seconds.clamp(0.0, 3_600.0));
    let step = whole / u32::try_from(steps).unwrap_or(1);
    for done in 1..=steps {
        tokio::time::sleep(step).await;
        call.progress(done, steps, &format!("chapter {done} of {steps}"))
            .await;
    }
    text(&format!("The report has {steps} chapters."))
}

async fn ask_name(call: &DemoCall) -> Value {
    tokio::time::sleep(Duration::from_millis(500)).await;
    let answer = call
        .ask(json!({
            "message": "What is your name?",
            "requestedSchema": {
                "type": "object",
                "properties": {"name": {"type": "string", "title": "Name"}},
                "required": ["name"],
            },
        }))
        .await
        .unwrap_or_default();
    tokio::time::sleep(Duration::from_millis(500)).await;
    match at(&answer, "/content/name").as_str() {
        Some(name) => text(&format!("Hello, {name}!")),
        None => text("Hello, whoever you are!"),
    }
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}
