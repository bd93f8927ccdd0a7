//! The arguments of the tools that are called about a job.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::jobs::document::{Document, as_text};
use crate::jobs::id_argument::ID;
use crate::jobs::job_call::JobCall;
use crate::jobs::reading::JobHandle;
use crate::jobs::{Helper, JobResult, Lives};
use crate::mcp::json::{Object, Writer, prepend, set};
use crate::mcp::tools::ArgumentKind;

/// The request that a tool is called for about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelperUse {
    Status,
    Result,
    Cancel,
}

impl JobCall {
    /// Returns the `params` of the start, with the arguments that the rule sets and the client leaves out, and the key of the call.
    /// Those of the client keep their bytes. `None`: nothing changes.
    pub fn start_params(&self, params: &str) -> Option<String> {
        let given = Object::parse(params).ok()?;
        let arguments = arguments_of(&given);
        let members = Object::parse(arguments).ok()?;
        let missing = self.rule.set.iter();
        let missing = missing.filter(|(name, _)| !members.contains(name));
        let mut changed = missing.fold(None, |text: Option<String>, (name, value)| {
            let text = text.as_deref().unwrap_or(arguments);
            Some(prepend(text, name, &value.to_string()))
        });
        if let Some((name, key)) = self.rule.key.as_deref().zip(self.key.as_deref())
            && !gives_key(&members, name)
        {
            let text = changed.as_deref().unwrap_or(arguments);
            changed = Some(set(text, name, &Value::from(key).to_string()).ok()?);
        }
        set(params, "arguments", &changed?).ok()
    }

    /// Returns `true` if the server recognizes the start of this call when another process sends it again: it has a key, and its job
    /// lives in the backend.
    pub fn has_key(&self, params: &str) -> bool {
        let Some(name) = &self.rule.key else {
            return false;
        };
        let params = Object::parse(params).unwrap_or_default();
        let members = Object::parse(arguments_of(&params));
        let is_sent = members.is_ok_and(|members| self.key.is_some() || gives_key(&members, name));
        is_sent && self.rule.lives == Lives::Backend
    }

    /// Returns the tool and the `params` of a call about a job. `status`: the answer that says that the job has ended. `None`:
    /// the rule names no such tool, or something that its arguments need is missing.
    pub fn helper_params(
        &self,
        of: HelperUse,
        handle: &JobHandle,
        status: Option<&Document>,
    ) -> Option<(&Helper, String)> {
        let (helper, facts) = match (of, &self.rule.result) {
            (HelperUse::Status, _) => (&self.rule.status, &self.status),
            (HelperUse::Cancel, _) => (self.rule.cancel.as_ref()?, &self.cancel),
            (HelperUse::Result, JobResult::Tool(helper)) => (helper, &self.result),
            (HelperUse::Result, JobResult::Status | JobResult::Pointer(_)) => return None,
        };
        let listed = |name: &str| facts.arguments.iter().find(|it| &*it.name == name);
        let fitted = |name: &str, value: Value| {
            let kind = listed(name).map_or(ArgumentKind::Other, |it| it.kind);
            fit(value, kind).to_string()
        };
        let copied = handle.copied.iter();
        let mut arguments: BTreeMap<&str, String> = copied
            .filter(|(name, _)| listed(name).is_some())
            .map(|(name, json)| (name.as_str(), json.to_string()))
            .collect();
        if let Some(name) = &facts.id {
            arguments.insert(name, fitted(name, handle.id.clone()));
        }
        for (name, template) in &helper.arguments {
            if let Some(filled) = fill(template, handle, status) {
                arguments.insert(name, fitted(name, filled));
            } else if template.to_string().contains(STATUS) {
                return None;
            } else {
                // What the client left out of the start is left out here, too.
                arguments.remove(name.as_str());
            }
        }
        let mut written = Writer::object();
        for (name, json) in &arguments {
            written.raw(name, json);
        }
        let mut params = Writer::object();
        params
            .str("name", &helper.tool)
            .raw("arguments", &written.end());
        Some((helper, params.end()))
    }

    /// The name of the status tool's argument that takes the id.
    pub(super) fn id_argument(&self) -> Option<&str> {
        let mut templates = self.rule.status.arguments.iter();
        let named = templates.find(|(_, template)| template.as_str() == Some(ID));
        named
            .map(|(name, _)| name.as_str())
            .or(self.status.id.as_deref())
    }

    /// The arguments of the start that another tool of the job has, too.
    pub(super) fn copied(&self, given: &Object<'_>) -> BTreeMap<String, Box<str>> {
        let id = self.id_argument();
        let all = || {
            let facts = [&self.status, &self.result, &self.cancel];
            facts.into_iter().flat_map(|facts| facts.arguments.iter())
        };
        let is_shared = |name: &str| Some(name) != id && all().any(|it| &*it.name == name);
        let is_in_template = |name: &str| self.rule.uses_start_argument(name);
        let shared = given.iter();
        shared
            .filter(|(name, _)| is_shared(name) || is_in_template(name))
            .map(|(name, json)| (name.to_owned(), json.get().into()))
            .collect()
    }
}

/// Returns the arguments of a call, as JSON. A client may write null in place of none.
fn arguments_of<'p>(params: &Object<'p>) -> &'p str {
    let arguments = params.get("arguments").map_or("{}", RawValue::get);
    if arguments == "null" { "{}" } else { arguments }
}

/// Returns `true` if the client gives a key of its own. Models write null, or an empty text, in place of none.
fn gives_key(arguments: &Object<'_>, name: &str) -> bool {
    let given = arguments.get(name).map_or("null", RawValue::get);
    !matches!(given, "null" | r#""""#)
}

impl super::JobRule {
    fn uses_start_argument(&self, name: &str) -> bool {
        let wanted = format!("{{start:{name}}}");
        let mut templates = self.helpers().flat_map(|it| it.arguments.values());
        templates.any(|template| template.to_string().contains(&wanted))
    }
}

/// The beginning of a place for a part of the last status.
const STATUS: &str = "{status:";

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
            "start" => {
                let copied = handle.copied.get(rest);
                Some(copied.and_then(|json| serde_json::from_str(json).ok()))
            }
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

/// Returns an id in the type that the tool's schema wants.
fn fit(value: Value, kind: ArgumentKind) -> Value {
    match (kind, &value) {
        (ArgumentKind::Number, Value::String(text)) => {
            text.parse::<i64>().map_or(value, Value::from)
        }
        (ArgumentKind::Text, Value::Number(number)) => number.to_string().into(),
        (ArgumentKind::List, Value::String(_) | Value::Number(_)) => Value::Array(vec![value]),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::jobs::JobRule;
    use crate::jobs::id_argument::id_argument;
    use crate::jobs::job_call::HelperFacts;
    use crate::mcp::tools::ToolArgument;

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

    /// A call by a rule whose status tool has these arguments, and whose start has none.
    fn call(rule: JobRule, status: &[ToolArgument]) -> JobCall {
        let facts = |helper: &Helper, arguments: &[ToolArgument]| HelperFacts {
            id: id_argument(helper, arguments, &[]),
            arguments: arguments.into(),
        };
        let result = match &rule.result {
            JobResult::Tool(helper) => facts(helper, &[]),
            JobResult::Status | JobResult::Pointer(_) => HelperFacts::default(),
        };
        JobCall {
            key: None,
            status: facts(&rule.status, status),
            result,
            cancel: HelperFacts::default(),
            rule: Arc::new(rule),
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
            (vec![], "id"),
        ] {
            let rule = JobRule {
                status: helper("s", &json!({})),
                ..JobRule::default()
            };
            let handle = JobHandle {
                id: json!("7"),
                copied: BTreeMap::new(),
                is_pinned: false,
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
                copied: BTreeMap::new(),
                is_pinned: false,
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
        let given = given.to_string();
        let copied = call.copied(&Object::parse(&given).unwrap());
        assert_eq!(json!(copied), json!({"who": "\"ann\""}));
        let handle = JobHandle {
            id: json!("a{b"),
            copied,
            is_pinned: false,
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
        // Without an argument of the start, the rest is sent.
        let handle = JobHandle {
            copied: BTreeMap::new(),
            ..handle
        };
        let sent = self::params(&call, HelperUse::Result, &handle, Some(&there));
        assert_eq!(sent["arguments"].get("who"), None);
        assert_eq!(sent["arguments"]["n"], 5);
    }

    #[test]
    fn a_start_gets_what_its_client_left_out() {
        let rule = JobRule {
            set: json!({"wait": false, "n": 1}).as_object().unwrap().clone(),
            ..JobRule::default()
        };
        let call_by_rule = call(rule, &[]);
        let start = |arguments: &str| {
            let params = format!(r#"{{"name":"a","arguments":{arguments},"_meta":{{}}}}"#);
            call_by_rule.start_params(&params)
        };
        // Numbers and what no parser takes stay as the client wrote them.
        assert_eq!(
            start(r#"{"n":1.10,"huge":1e400}"#).as_deref(),
            Some(r#"{"name":"a","arguments":{"wait":false,"n":1.10,"huge":1e400},"_meta":{}}"#)
        );
        assert_eq!(start(r#"{"n":1,"wait":null}"#), None);
        assert_eq!(start("[]"), None);
        let keyed = JobRule {
            key: Some("token".into()),
            ..JobRule::default()
        };
        let keyed = call(keyed, &[]).with_key(|| "k".to_owned());
        let start =
            |arguments: &str| keyed.start_params(&format!(r#"{{"arguments":{arguments}}}"#));
        assert_eq!(
            start("{}").as_deref(),
            Some(r#"{"arguments":{"token":"k"}}"#)
        );
        for none in ["null", "\"\""] {
            let started = start(&format!(r#"{{"token":{none},"n":1.0}}"#)).unwrap();
            assert!(
                started.contains(r#""token":"k""#) && started.contains("1.0"),
                "{started}"
            );
        }
        assert!(start("null").unwrap().contains(r#""token":"k""#));
        assert_eq!(start(r#"{"token":"mine"}"#), None);
        assert!(keyed.has_key("{}") && keyed.has_key(r#"{"arguments":{"token":"mine"}}"#));
        assert!(!keyed.has_key(r#"{"arguments":[]}"#));
        assert!(call(JobRule::default(), &[]).start_params("{}").is_none());
    }
}
