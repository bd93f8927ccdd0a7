//! The arguments of the tools that are called about a job.

use serde_json::{Map, Value};

use crate::jobs::document::{Document, as_text};
use crate::jobs::reading::{JobHandle, arguments_of};
use crate::jobs::{Helper, JobCall, JobResult};
use crate::mcp::json::{Writer, set};
use crate::mcp::tools::{ArgumentKind, ToolArgument};

/// The request that a tool is called for about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelperUse {
    Status,
    Result,
    Cancel,
}

impl JobCall {
    /// Returns the `params` of the start, with the arguments that the rule sets and the client leaves out.
    pub fn start_params(&self, params: &str) -> Option<String> {
        if self.rule.set.is_empty() {
            return None;
        }
        let mut arguments = arguments_of(params);
        for (name, value) in &self.rule.set {
            arguments.entry(name).or_insert_with(|| value.clone());
        }
        set(params, "arguments", &Value::Object(arguments).to_string()).ok()
    }

    /// Returns the tool and the `params` of a call about a job. `status`: the answer that says that the job has ended. `None`:
    /// the rule names no such tool, or something that its arguments need is missing.
    pub fn helper_params(
        &self,
        of: HelperUse,
        handle: &JobHandle,
        status: Option<&Document>,
    ) -> Option<(&Helper, String)> {
        let (helper, listed) = match (of, &self.rule.result) {
            (HelperUse::Status, _) => (&self.rule.status, &self.status),
            (HelperUse::Cancel, _) => (self.rule.cancel.as_ref()?, &self.cancel),
            (HelperUse::Result, JobResult::Tool(helper)) => (helper, &self.result),
            (HelperUse::Result, JobResult::Status | JobResult::Pointer(_)) => return None,
        };
        let mut arguments = Map::new();
        let is_listed = |name: &str| listed.iter().find(|it| &*it.name == name);
        for (name, value) in &handle.copied {
            if is_listed(name).is_some() {
                arguments.insert(name.clone(), value.clone());
            }
        }
        if !names_id(helper) {
            let name = id_argument(helper, listed).unwrap_or("id");
            arguments.insert(name.to_owned(), handle.id.clone());
        }
        for (name, template) in &helper.arguments {
            arguments.insert(name.clone(), fill(template, handle, status)?);
        }
        for (name, value) in &mut arguments {
            if let Some(argument) = is_listed(name) {
                fit(value, argument.kind);
            }
        }
        let mut params = Writer::object();
        params
            .str("name", &helper.tool)
            .raw("arguments", &Value::Object(arguments).to_string());
        Some((helper, params.end()))
    }

    /// The name of the status tool's argument that takes the id.
    pub(super) fn id_argument(&self) -> Option<&str> {
        let helper = &self.rule.status;
        let mut templates = helper.arguments.iter();
        let named = templates.find(|(_, template)| template.as_str() == Some(ID));
        match named {
            Some((name, _)) => Some(name),
            None => id_argument(helper, &self.status),
        }
    }

    /// The arguments of the start that another tool of the job has, too.
    pub(super) fn copied(&self, given: Map<String, Value>) -> Map<String, Value> {
        let id = self.id_argument();
        let all = || self.status.iter().chain(&self.result).chain(&self.cancel);
        let is_shared = |name: &str| Some(name) != id && all().any(|it| &*it.name == name);
        let is_in_template = |name: &str| self.rule.uses_start_argument(name);
        let shared = given.into_iter();
        shared
            .filter(|(name, _)| is_shared(name) || is_in_template(name))
            .collect()
    }
}

impl super::JobRule {
    fn uses_start_argument(&self, name: &str) -> bool {
        let wanted = format!("{{start:{name}}}");
        let mut templates = self.helpers().flat_map(|it| it.arguments.values());
        templates.any(|template| template.to_string().contains(&wanted))
    }
}

const ID: &str = "{id}";

/// Returns `true` if the rule itself says where the id goes.
fn names_id(helper: &Helper) -> bool {
    let mut templates = helper.arguments.values();
    templates.any(|template| template.to_string().contains(ID))
}

/// The argument of a tool that takes the id of a job: the only one that it requires, or else the first whose name ends with
/// `id`, one that is required before one that is not. Those that the rule gives are no such arguments.
fn id_argument<'l>(helper: &Helper, listed: &'l [ToolArgument]) -> Option<&'l str> {
    let free = || {
        let all = listed.iter();
        all.filter(|it| !helper.arguments.contains_key(&*it.name))
    };
    let ends_with_id = |it: &&ToolArgument| {
        let folded = it.name.to_lowercase();
        folded.ends_with("id") || folded.ends_with("ids")
    };
    let mut required = free().filter(|it| it.required);
    let only = required.next().filter(|_| required.next().is_none());
    only.or_else(|| free().filter(|it| it.required).find(ends_with_id))
        .or_else(|| free().find(ends_with_id))
        .map(|it| &*it.name)
}

/// Fills the places of a template. `None`: what stands in such a place is missing.
fn fill(template: &Value, handle: &JobHandle, status: Option<&Document>) -> Option<Value> {
    match template {
        Value::String(text) => fill_text(text, handle, status),
        Value::Array(all) => {
            let filled = all.iter().map(|one| fill(one, handle, status));
            filled.collect::<Option<Vec<_>>>().map(Value::Array)
        }
        Value::Object(members) => {
            let filled = members
                .iter()
                .map(|(name, value)| Some((name.clone(), fill(value, handle, status)?)));
            filled.collect::<Option<Map<_, _>>>().map(Value::Object)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(template.clone()),
    }
}

fn fill_text(text: &str, handle: &JobHandle, status: Option<&Document>) -> Option<Value> {
    let place = |name: &str| -> Option<Option<Value>> {
        if name == "id" {
            return Some(Some(handle.id.clone()));
        }
        let (of, rest) = name.split_once(':')?;
        match of {
            "status" => Some(status.and_then(|status| status.value.pointer(rest).cloned())),
            "start" => Some(handle.copied.get(rest).cloned()),
            _ => None,
        }
    };
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once('{') {
        let Some((name, after)) = behind.split_once('}') else {
            break;
        };
        let Some(value) = place(name) else {
            // Braces that name no place stay as they are.
            filled.push_str(before);
            filled.push('{');
            rest = behind;
            continue;
        };
        let value = value?;
        // A place that is all of the text keeps its type.
        if filled.is_empty() && before.is_empty() && after.is_empty() {
            return Some(value);
        }
        filled.push_str(before);
        filled.push_str(&as_text(&value));
        rest = after;
    }
    filled.push_str(rest);
    Some(Value::String(filled))
}

/// Changes an id to the type that the tool's schema wants.
fn fit(value: &mut Value, kind: ArgumentKind) {
    let fitted = match (kind, &*value) {
        (ArgumentKind::Number, Value::String(text)) => text.parse::<i64>().ok().map(Value::from),
        (ArgumentKind::Text, Value::Number(number)) => Some(number.to_string().into()),
        (ArgumentKind::List, Value::String(_) | Value::Number(_)) => {
            Some(Value::Array(vec![value.clone()]))
        }
        _ => None,
    };
    if let Some(fitted) = fitted {
        *value = fitted;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::jobs::JobRule;

    fn argument(name: &str, kind: ArgumentKind, required: bool) -> ToolArgument {
        let name = name.into();
        ToolArgument {
            name,
            kind,
            required,
        }
    }

    fn helper(tool: &str, arguments: &Value) -> Helper {
        Helper {
            tool: tool.into(),
            arguments: arguments.as_object().unwrap().clone(),
        }
    }

    fn call(rule: JobRule, status: &[ToolArgument]) -> JobCall {
        JobCall {
            rule: Arc::new(rule),
            status: status.into(),
            result: Box::default(),
            cancel: Box::default(),
        }
    }

    fn params(
        call: &JobCall,
        of: HelperUse,
        handle: &JobHandle,
        status: Option<&Document>,
    ) -> Value {
        let (_, params) = call.helper_params(of, handle, status).unwrap();
        serde_json::from_str(&params).unwrap()
    }

    #[test]
    fn the_id_goes_into_the_argument_that_takes_it() {
        let text = |name, required| argument(name, ArgumentKind::Text, required);
        for (listed, name) in [
            (vec![text("run", true), text("verbose", false)], "run"),
            (vec![text("project", true), text("jobId", true)], "jobId"),
            (
                vec![text("verbose", false), text("task_id", false)],
                "task_id",
            ),
            (vec![text("verbose", false)], "id"),
            (vec![], "id"),
        ] {
            let rule = JobRule {
                status: helper("s", &json!({})),
                ..JobRule::default()
            };
            let handle = JobHandle {
                id: json!("7"),
                copied: Map::new(),
            };
            let params = params(&call(rule, &listed), HelperUse::Status, &handle, None);
            assert_eq!(params, json!({"name": "s", "arguments": {(name): "7"}}));
        }
    }

    #[test]
    fn ids_have_the_type_of_the_schema() {
        for (kind, id, sent) in [
            (ArgumentKind::Number, json!("7"), json!(7)),
            (ArgumentKind::Number, json!("x"), json!("x")),
            (ArgumentKind::Text, json!(7), json!("7")),
            (ArgumentKind::List, json!("7"), json!(["7"])),
            (ArgumentKind::Other, json!(7), json!(7)),
        ] {
            let listed = [argument("id", kind, true)];
            let call = call(JobRule::default(), &listed);
            let handle = JobHandle {
                id,
                copied: Map::new(),
            };
            let params = params(&call, HelperUse::Status, &handle, None);
            assert_eq!(params["arguments"]["id"], sent);
        }
    }

    #[test]
    fn templates_take_the_id_the_last_status_and_arguments_of_the_start() {
        let rule = JobRule {
            result: JobResult::Tool(helper(
                "r",
                &json!({"job": "jobs/{id}", "set": "{status:/set}", "n": 5, "who": "{start:who}", "all": ["{id}", "{x}"]}),
            )),
            ..JobRule::default()
        };
        let call = call(rule, &[]);
        let given = json!({"who": "ann", "other": 1});
        let copied = call.copied(given.as_object().unwrap().clone());
        assert_eq!(Value::from(copied.clone()), json!({"who": "ann"}));
        let handle = JobHandle {
            id: json!("a{b"),
            copied,
        };
        let status = |value| Document {
            value,
            ..Document::default()
        };
        let there = status(json!({"set": {"x": 1}}));
        let params = params(&call, HelperUse::Result, &handle, Some(&there));
        assert_eq!(
            params["arguments"],
            json!({"job": "jobs/a{b", "set": {"x": 1}, "n": 5, "who": "ann", "all": ["a{b", "{x}"]})
        );
        let missing = status(json!({}));
        assert!(
            call.helper_params(HelperUse::Result, &handle, Some(&missing))
                .is_none()
        );
        assert!(
            call.helper_params(HelperUse::Cancel, &handle, None)
                .is_none()
        );
    }

    #[test]
    fn a_start_gets_what_its_client_left_out() {
        let rule = JobRule {
            set: json!({"wait": false, "n": 1}).as_object().unwrap().clone(),
            ..JobRule::default()
        };
        let start = call(rule, &[]).start_params(r#"{"name":"a","arguments":{"n":2},"_meta":{}}"#);
        assert_eq!(
            start.as_deref(),
            Some(r#"{"name":"a","arguments":{"n":2,"wait":false},"_meta":{}}"#)
        );
        assert!(call(JobRule::default(), &[]).start_params("{}").is_none());
    }
}
