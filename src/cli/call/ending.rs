//! The end of a call, and the output of the command for it: the text for standard output, the complaint and the exit
//! code. Pure.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::person::UnansweredQuestion;
use crate::cli::table::cleaned;
use crate::mcp::{base64, result};

/// `--answer` does not fit the question: a mistake in the command.
const WRONG_ANSWER: u8 = 2;
/// The tool's result is an error of the tool.
pub(super) const TOOL_FAILED: u8 = 3;
/// The task was cancelled, and not by this command.
pub(super) const CANCELLED: u8 = 4;
/// The task waits for an answer, and there is no way to give it here.
pub(super) const UNANSWERED: u8 = 5;
/// Ctrl-C, with the exit code of shells.
pub(super) const INTERRUPTED: u8 = 130;

/// Advice where the server does not know the task.
const WHOLE_ID: &str = "; --attach needs the whole id, as --detach or the call itself printed it: the log, the board \
                        and raincheck tasks show only its beginning";

/// The ways in which a call ends.
#[derive(Debug)]
pub(super) enum Ending {
    /// Any result, `isError` too.
    Result(Box<RawValue>),
    /// A JSON-RPC error.
    Error(Box<RawValue>),
    /// The error for a task that `--attach` names.
    NoTask(Box<RawValue>),
    /// There is no answer.
    Failed(String),
    /// The task runs on without this command: the server's `CreateTaskResult`.
    Detached(Box<RawValue>),
    /// The task was cancelled, and not by this command.
    Cancelled(String),
    /// Ctrl-C, with what became of the call.
    Interrupted(Cow<'static, str>),
    /// The question that cannot be answered here, and the task that waits.
    Unanswered {
        why: UnansweredQuestion,
        task: Option<String>,
    },
}

/// The output of the command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// For standard output, or for the file of `--output`.
    pub(super) out: Vec<u8>,
    pub(super) complaint: Option<String>,
    pub(super) code: u8,
}

impl Ending {
    pub(super) fn told(&self, as_json: bool) -> Told {
        match self {
            Self::Result(result) => {
                let out = if as_json {
                    line(result.get())
                } else {
                    shown(&value(result))
                };
                let is_error = result::is_tool_error(result.get());
                Told {
                    out,
                    complaint: is_error.then(|| "the tool says that it failed".to_owned()),
                    code: if is_error { TOOL_FAILED } else { 0 },
                }
            }
            Self::NoTask(error) => {
                let mut told = Self::Error(error.clone()).told(as_json);
                if let Some(complaint) = &mut told.complaint {
                    complaint.push_str(WHOLE_ID);
                }
                told
            }
            Self::Error(error) => {
                let code = result::error_code(error).unwrap_or_default();
                let message = result::error_message(error).unwrap_or_default();
                let out = json!({"error": value(error)});
                Told::complains(
                    1,
                    &format!("the server answered with the error {code}: {message}"),
                )
                .with(as_json, &out)
            }
            Self::Failed(why) => {
                Told::complains(1, why).with(as_json, &json!({"error": {"message": why}}))
            }
            Self::Detached(created) => {
                let id = id_of(created);
                let out = if as_json {
                    line(created.get())
                } else {
                    line(&id)
                };
                Told {
                    out,
                    ..Told::default()
                }
            }
            Self::Cancelled(id) => {
                let out = json!({"taskId": id, "status": "cancelled"});
                Told::complains(CANCELLED, "the task was cancelled").with(as_json, &out)
            }
            Self::Interrupted(became) => Told::complains(INTERRUPTED, became),
            Self::Unanswered { why, task } => {
                let question = &why.question;
                let out = json!({"taskId": task, "status": "input_required", "question": question});
                unanswered(why.wrong.as_deref(), task.as_deref()).with(as_json, &out)
            }
        }
    }
}

impl Told {
    /// The complaint may have words of the server.
    fn complains(code: u8, complaint: &str) -> Self {
        Self {
            out: Vec::new(),
            complaint: Some(cleaned(complaint)),
            code,
        }
    }

    fn with(mut self, as_json: bool, out: &Value) -> Self {
        if as_json {
            self.out = line(&out.to_string());
        }
        self
    }
}

/// Returns the output for a question without an answer.
fn unanswered(wrong: Option<&str>, task: Option<&str>) -> Told {
    let (code, trouble) = match wrong {
        Some(wrong) => (WRONG_ANSWER, format!("--answer {wrong}; it was not sent")),
        None => (
            UNANSWERED,
            "nobody here can answer the server's question".to_owned(),
        ),
    };
    let advice = match task {
        Some(id) => format!(
            "the task waits: answer with raincheck call --attach {id}, in a terminal or with --answer"
        ),
        None => "answer with --answer, or in a terminal".to_owned(),
    };
    Told::complains(code, &format!("{trouble}; {advice}"))
}

/// The id in a `CreateTaskResult`.
pub(super) fn id_of(created: &RawValue) -> String {
    let created = value(created);
    let id = created.get("taskId").and_then(Value::as_str);
    id.unwrap_or_default().to_owned()
}

/// A result for people: its texts, or what is structured. A single image, sound or file is its bytes.
fn shown(result: &Value) -> Vec<u8> {
    let content = result.get("content").and_then(Value::as_array);
    let content = content.map_or(&[][..], Vec::as_slice);
    // Only a single block is written as bytes, because the bytes of several would run into each other.
    if let [block] = content
        && let Some(bytes) = binary(block)
    {
        return bytes;
    }
    // Servers should repeat structured content as text (MCP), so it is printed only where there is none.
    if content.is_empty()
        && let Some(structured) = result.get("structuredContent")
    {
        return line(&format!("{structured:#}"));
    }
    let blocks = content.iter().flat_map(|block| line(&described(block)));
    blocks.collect()
}

fn binary(block: &Value) -> Option<Vec<u8>> {
    let data = block
        .get("data")
        .or_else(|| block.pointer("/resource/blob"));
    base64::decode(data?.as_str()?)
}

fn described(block: &Value) -> String {
    let text = |pointer: &str| block.pointer(pointer).and_then(Value::as_str);
    if let Some(text) = text("/text").or_else(|| text("/resource/text")) {
        return text.to_owned();
    }
    let kind = text("/type").unwrap_or("content");
    let media_type = text("/mimeType").or_else(|| text("/resource/mimeType"));
    let place = text("/uri").or_else(|| text("/resource/uri"));
    let bytes = binary(block).map(|bytes| format!("{} bytes", bytes.len()));
    let parts = [media_type, place, bytes.as_deref()];
    let parts: Vec<&str> = [Some(kind)].into_iter().chain(parts).flatten().collect();
    format!("[{}]", parts.join(" "))
}

fn value(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

fn line(text: &str) -> Vec<u8> {
    let mut out = text.as_bytes().to_vec();
    if !out.ends_with(b"\n") {
        out.push(b'\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::printable::is_printable;

    fn raw(json: &Value) -> Box<RawValue> {
        RawValue::from_string(json.to_string()).unwrap()
    }

    fn told(result: &Value) -> (String, u8) {
        let told = Ending::Result(raw(result)).told(false);
        (String::from_utf8(told.out).unwrap(), told.code)
    }

    fn unanswered(task: &str, wrong: Option<&str>) -> Ending {
        let why = UnansweredQuestion {
            question: "?".into(),
            wrong: wrong.map(str::to_owned),
        };
        let task = Some(task.to_owned());
        Ending::Unanswered { why, task }
    }

    #[test]
    fn a_result_is_its_content() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let image = json!({"type": "image", "mimeType": "image/png", "data": "Zm9v"});
        for (result, out) in [
            (json!({"content": [text("a"), text("b\n")]}), "a\nb\n"),
            (
                json!({"content": [], "structuredContent": {"n": 1}}),
                "{\n  \"n\": 1\n}\n",
            ),
            (json!({"content": [image]}), "foo"),
            (
                json!({"content": [text("a"), image]}),
                "a\n[image image/png 3 bytes]\n",
            ),
            (
                json!({"content": [{"type": "resource_link", "uri": "file:///a"}]}),
                "[resource_link file:///a]\n",
            ),
            (
                json!({"content": [{"type": "resource", "resource": {"text": "t"}}]}),
                "t\n",
            ),
        ] {
            assert_eq!(told(&result), (out.to_owned(), 0), "{result}");
        }
        let failed = json!({"content": [text("no")], "isError": true});
        assert_eq!(told(&failed), ("no\n".to_owned(), TOOL_FAILED));
    }

    #[test]
    fn every_ending_has_a_code_and_one_line_of_json() {
        let created = raw(&json!({"resultType": "task", "taskId": "t"}));
        let endings = [
            (
                Ending::Error(raw(&json!({"code": -32602, "message": "no"}))),
                1,
            ),
            (Ending::Failed("gone".into()), 1),
            (Ending::Detached(created), 0),
            (Ending::Cancelled("t".into()), CANCELLED),
            (unanswered("t", None), UNANSWERED),
            (unanswered("t", Some("lacks \"name\"")), WRONG_ANSWER),
        ];
        for (ending, code) in endings {
            let told = ending.told(true);
            assert_eq!(told.code, code, "{ending:?}");
            assert!(
                serde_json::from_slice::<Value>(&told.out).is_ok(),
                "{ending:?}"
            );
            assert_eq!(told.complaint.is_none(), code == 0);
        }
    }

    #[test]
    fn a_server_cannot_write_to_the_terminal_with_an_error() {
        let error = || raw(&json!({"code": -32602, "message": "a\u{1b}[2Jb\nc"}));
        for ending in [
            Ending::Error(error()),
            Ending::NoTask(error()),
            Ending::Failed("\u{1b}[2J".into()),
            Ending::Interrupted("\u{9b}2J".into()),
            unanswered("t\u{1b}[2J", None),
            unanswered("t", Some("\u{1b}[2J")),
        ] {
            let complaint = ending.told(false).complaint.unwrap();
            assert!(complaint.chars().all(is_printable), "{complaint:?}");
        }
    }

    #[test]
    fn a_detached_call_prints_its_id_alone() {
        let created = raw(&json!({"resultType": "task", "taskId": "0a1b"}));
        assert_eq!(Ending::Detached(created).told(false).out, b"0a1b\n");
    }
}
