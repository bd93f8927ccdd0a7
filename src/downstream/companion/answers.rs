//! Turns the arguments of `task_answer` into the answer that the server asked for. Pure.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::downstream::tasks::service::ANSWER_BYTES_MAX;
use crate::mcp::input::{self, InputKind};
use crate::mcp::json::{Object, Writer, is_object, raw};
use crate::task::state::Task;

/// The key of the question and its answer. `Err`: what is wrong, for the model to read.
pub(super) fn of(
    task: &Task,
    arguments: &Object<'_>,
) -> Result<(Box<str>, Box<RawValue>), Cow<'static, str>> {
    let key = arguments.get_str("key").unwrap_or_default();
    let mut open = task.open_questions();
    let Some((question, request)) = open.find(|(question, _)| *question.key == *key) else {
        return Err(no_such_key(task).into());
    };
    let action = arguments.get_str("action");
    let action = action
        .as_deref()
        .filter(|action| matches!(*action, "accept" | "decline" | "cancel"))
        .ok_or("The argument action must be accept, decline or cancel.")?;
    let content = arguments.get("content");
    if content.is_some_and(|content| !is_object(content) || content.get().len() > ANSWER_BYTES_MAX)
    {
        return Err("The argument content must be an object, of 1 MiB at most.".into());
    }
    let method = Object::parse(request.get()).ok();
    let method = method.and_then(|request| request.get_str("method"));
    let answer = match (method.as_deref().and_then(InputKind::of), action, content) {
        (Some(InputKind::Sampling | InputKind::Roots), "accept", Some(content)) => {
            content.to_owned()
        }
        (Some(InputKind::Sampling | InputKind::Roots), ..) => {
            return Err(
                "This question has to be accepted, with its whole result as content, or \
                        the call cancelled."
                    .into(),
            );
        }
        (Some(InputKind::Elicitation) | None, action, content) => {
            let mut out = Writer::object();
            out.str("action", action);
            // In MCP an answer has content only where it is accepted.
            if let Some(content) = content.filter(|_| action == "accept") {
                out.raw("content", content.get());
            }
            raw(out.end()).map_err(|_| "The argument content is not JSON.")?
        }
    };
    if !input::answers(request, &answer) {
        return Err("The answer does not have the shape that was asked for.".into());
    }
    Ok((question.key.clone(), answer))
}

fn no_such_key(task: &Task) -> String {
    let keys: Vec<_> = task.open_questions().map(|(q, _)| &*q.key).collect();
    if keys.is_empty() {
        return "Nothing is asked now.".to_owned();
    }
    format!(
        "There is no open question of that key. Open: {}.",
        keys.join(", ")
    )
}
