//! The tools of the scripted server.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::super::http::Said;
use super::legacy::Session;
use super::{Era, Shared, jobs, own};

/// The answer of `echo` as the server writes it: key order, numbers and space as no serializer
/// would write them.
pub(crate) const FAITHFUL: &str =
    r#""structuredContent": {"z":1.10,"a":12345678901234567890123 ,"m":1E+2,"é":"\u00e9"}"#;

/// What `long` answers: lines of letters of all lengths, of so many bytes.
pub(crate) fn long_text(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 64);
    for number in 0_u32.. {
        if text.len() >= bytes {
            break;
        }
        let _ = writeln!(text, "line {number} \"äöü\" € 😀 {:-<160}", "");
    }
    text.truncate(text.floor_char_boundary(bytes));
    // Within a character, the last bytes are other letters.
    let missing = bytes - text.len();
    text + &"x".repeat(missing)
}

/// One `tools/call`.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: Value,
    pub(super) name: String,
    pub(super) arguments: Value,
    pub(super) progress_token: Option<Value>,
    pub(super) side: Side,
}

/// What differs between the eras while a call runs.
#[derive(Debug)]
pub(super) enum Side {
    Legacy(Arc<Session>),
    Modern {
        responses: Value,
        state: Option<String>,
        knows_tasks: bool,
    },
}

/// How a call ends.
#[derive(Debug)]
pub(super) enum End {
    Result(String),
    Error(String),
    Asks(String),
    /// Its stream ends and it does not say why.
    Broken,
}

impl Call {
    pub(super) fn read(params: &Value, id: Value, side: Side) -> Self {
        Self {
            id,
            name: params["name"].as_str().unwrap_or_default().to_owned(),
            arguments: params["arguments"].clone(),
            progress_token: params["_meta"].get("progressToken").cloned(),
            side,
        }
    }

    /// What the calls are counted under: the argument `nonce`, else the tool's name.
    pub(super) fn nonce(&self) -> &str {
        self.arguments["nonce"].as_str().unwrap_or(&self.name)
    }

    fn number(&self, key: &str) -> u64 {
        self.arguments[key].as_u64().unwrap_or_default()
    }

    /// What a modern server's result begins with.
    pub(super) fn kind(&self) -> &'static str {
        match self.side {
            Side::Legacy(_) => "",
            Side::Modern { .. } => r#""resultType":"complete","#,
        }
    }

    pub(super) fn text(&self, text: &str) -> End {
        let kind = self.kind();
        let text = serde_json::to_string(text).unwrap();
        End::Result(format!(
            r#"{{{kind}"content":[{{"type":"text","text":{text}}}],"isError":false}}"#
        ))
    }

    pub(super) async fn run(&self, shared: &Shared, out: &mpsc::Sender<Said>) -> End {
        match self.name.as_str() {
            "echo" | "with_header" => self.echo(),
            "slow" | "work" => {
                tokio::time::sleep(Duration::from_millis(self.number("ms"))).await;
                self.text("slept")
            }
            "held" | "look" => self.held(shared).await,
            "steps" => self.steps(shared, out).await,
            "ask" => self.ask(out, &["name"]).await,
            "confide" => self.confide(out).await,
            "ask_two" => self.ask(out, &["first", "second"]).await,
            "ask_twice" => self.ask_twice(out).await,
            "come_back" => self.come_back(),
            "no_method" => End::Error(r#"{"code":-32601,"message":"no such method"}"#.into()),
            // Of a modern server: asks for what few clients can give.
            "sample" => End::Asks(
                json!({"resultType": "input_required", "inputRequests": {"s": {
                    "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1},
                }}})
                .to_string(),
            ),
            // Of a modern server: asks again, whatever is answered.
            "ask_on" => asks(&["name"], "on"),
            "typed" => {
                shared.released(self.nonce()).await;
                let kind = self.kind();
                End::Result(format!(
                    r#"{{{kind}"content":[],"structuredContent":{{"n":1}}}}"#
                ))
            }
            "ask_then_hold" => {
                let end = self.ask(out, &["name"]).await;
                if matches!(end, End::Asks(_)) {
                    return end;
                }
                shared.released(self.nonce()).await;
                end
            }
            "task_status" => self.text("the server's own"),
            "fail" => End::Result(format!(
                r#"{{{}"content":[{{"type":"text","text":"it went wrong"}}],"isError":true}}"#,
                self.kind()
            )),
            "error" => no_luck(),
            // A result word for word, whatever era it is of.
            "verbatim" => End::Result(self.arguments["result"].as_str().unwrap().to_owned()),
            "big" => self.text(&"x".repeat(usize::try_from(self.number("bytes")).unwrap())),
            "long" => {
                tokio::time::sleep(Duration::from_millis(self.number("ms"))).await;
                self.text(&long_text(usize::try_from(self.number("bytes")).unwrap()))
            }
            "never" => std::future::pending().await,
            "own" => {
                tokio::time::sleep(Duration::from_millis(self.number("ms"))).await;
                match &self.side {
                    Side::Modern {
                        knows_tasks: true, ..
                    } => End::Result(own::created()),
                    Side::Legacy(_) | Side::Modern { .. } => self.text("plain"),
                }
            }
            _ => self.of_job(shared).await.unwrap_or_else(|| {
                End::Error(r#"{"code":-32602,"message":"Unknown tool"}"#.into())
            }),
        }
    }

    fn echo(&self) -> End {
        let kind = self.kind();
        let text = serde_json::to_string(&self.arguments["text"]).unwrap();
        End::Result(format!(
            r#"{{ {kind}"content":[{{"type":"text","text":{text}}}], {FAITHFUL},"_meta":{{"io.modelcontextprotocol/related-task":{{"taskId":"x"}},"com.example/kept":1.0}}}}"#
        ))
    }

    /// Waits to be released. The argument `says` chooses the result: which of the calls of its nonce this was, or its nonce.
    async fn held(&self, shared: &Shared) -> End {
        let calls = shared.calls.borrow().get(self.nonce()).copied();
        let number = calls.map_or(0, |tally| tally.started);
        shared.released(self.nonce()).await;
        match self.arguments["says"].as_str() {
            Some("number") => self.text(&format!("call {number}")),
            Some("nonce") => self.text(self.nonce()),
            _ => self.text("released"),
        }
    }

    /// Tells of each step, and after the last waits to be released, silent or with a word each `tick`
    /// milliseconds; what is `then` comes before the end or in its place.
    async fn steps(&self, shared: &Shared, out: &mpsc::Sender<Said>) -> End {
        let steps = self.number("n");
        let padding = "x".repeat(usize::try_from(self.number("padding")).unwrap());
        let word = self.arguments["word"].as_str().unwrap_or_default();
        for step in 1..=steps {
            if let Some(token) = &self.progress_token {
                let note = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
                    "progressToken": token, "progress": step, "total": steps,
                    "message": format!("step {step}{word}{padding}"),
                }});
                let _ = out.send(Said::Note(note.to_string())).await;
            }
        }
        tokio::select! {
            () = shared.released(self.nonce()) => {}
            () = self.talk(out) => {}
        }
        match self.arguments["then"].as_str() {
            Some("ask") => return self.ask(out, &["name"]).await,
            Some("error") => return no_luck(),
            Some("break") => return End::Broken,
            Some("big") => return self.text(&"x".repeat(64 << 10)),
            Some("huge") => return self.text(&"x".repeat(2 << 20)),
            Some("stray") => {
                for id in [json!("8"), Value::Null] {
                    let stray = json!({"jsonrpc": "2.0", "id": id, "error": {
                        "code": -32600, "message": "stray",
                    }});
                    let _ = out.send(Said::Note(stray.to_string())).await;
                }
            }
            Some("log") => {
                let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
                    "level": "error", "data": "stepped",
                }});
                let _ = out.send(Said::Note(note.to_string())).await;
            }
            _ => {}
        }
        self.text("stepped")
    }

    async fn talk(&self, out: &mpsc::Sender<Said>) {
        let tick = self.number("tick");
        if tick == 0 {
            return std::future::pending().await;
        }
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
            "level": "info", "data": "tick",
        }});
        loop {
            tokio::time::sleep(Duration::from_millis(tick)).await;
            let _ = out.send(Said::Note(note.to_string())).await;
        }
    }

    /// Asks for everything at once.
    async fn ask(&self, out: &mpsc::Sender<Said>, keys: &[&str]) -> End {
        let answers = match &self.side {
            Side::Legacy(session) => {
                let asked = keys.iter().map(|key| session.ask(out, question(key)));
                futures_util::future::join_all(asked).await
            }
            Side::Modern {
                responses, state, ..
            } => {
                let complete = keys.iter().all(|key| responses.get(*key).is_some());
                match state.as_deref() {
                    Some("asked") if complete => {
                        keys.iter().map(|key| responses[*key].clone()).collect()
                    }
                    Some(_) if complete => return wrong_state(),
                    _ => return asks(keys, "asked"),
                }
            }
        };
        self.text(&said(&answers))
    }

    /// Says a word in all that a server can say: progress, a question, and the result or the error.
    async fn confide(&self, out: &mpsc::Sender<Said>) -> End {
        let word = self.arguments["word"].as_str().unwrap();
        if let Some(token) = &self.progress_token {
            let note = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
                "progressToken": token, "progress": 1, "message": word,
            }});
            let _ = out.send(Said::Note(note.to_string())).await;
        }
        let end = self.ask(out, &[word]).await;
        if matches!(end, End::Result(_)) && self.arguments["then"] == "error" {
            let error = json!({"code": -32050, "message": word, "data": {"said": word}});
            return End::Error(error.to_string());
        }
        end
    }

    /// Of a modern server: wants to be called again so often, and asks nothing.
    fn come_back(&self) -> End {
        let Side::Modern { state, .. } = &self.side else {
            return wrong_state();
        };
        let so_far: u64 = state.as_deref().map_or(0, |state| state.parse().unwrap());
        if so_far == self.number("times") {
            return self.text("here");
        }
        let state = (so_far + 1).to_string();
        let again = json!({"resultType": "input_required", "requestState": state});
        End::Asks(again.to_string())
    }

    /// Asks a second time, under the same key, when the first answer is there.
    async fn ask_twice(&self, out: &mpsc::Sender<Said>) -> End {
        let answers = match &self.side {
            Side::Legacy(session) => {
                let first = session.ask(out, question("name")).await;
                vec![first, session.ask(out, question("name")).await]
            }
            Side::Modern {
                responses, state, ..
            } => match state.as_deref() {
                None => return asks(&["name"], "once"),
                Some("once") if responses.get("name").is_some() => {
                    let state = format!("twice {}", responses["name"]);
                    return asks(&["name"], &state);
                }
                Some(state) if state.starts_with("twice ") => {
                    let first = serde_json::from_str(&state["twice ".len()..]).unwrap();
                    vec![first, responses["name"].clone()]
                }
                Some(_) => return wrong_state(),
            },
        };
        self.text(&said(&answers))
    }
}

/// What the client answered, in one line: contents, or what it did instead.
fn said(answers: &[Value]) -> String {
    let words: Vec<String> = answers
        .iter()
        .map(|answer| match answer["content"]["name"].as_str() {
            Some(name) => name.to_owned(),
            None => answer["action"].as_str().unwrap_or("refused").to_owned(),
        })
        .collect();
    words.join(" and ")
}

fn question(key: &str) -> Value {
    json!({"mode": "form", "message": format!("Your {key}?"), "requestedSchema": {
        "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
    }})
}

fn asks(keys: &[&str], state: &str) -> End {
    let requests: serde_json::Map<String, Value> = keys
        .iter()
        .map(|key| {
            let request = json!({"method": "elicitation/create", "params": question(key)});
            ((*key).to_owned(), request)
        })
        .collect();
    let result = json!({
        "resultType": "input_required", "inputRequests": requests, "requestState": state,
    });
    End::Asks(result.to_string())
}

fn no_luck() -> End {
    End::Error(r#"{"code":-32050,"message":"no such luck","data":{"z":1.10,"a":[]}}"#.into())
}

fn wrong_state() -> End {
    End::Error(r#"{"code":-32602,"message":"not my state"}"#.into())
}

/// The list of tools, or a page of it, as the era shows it.
pub(super) fn list(shared: &Shared, era: Era, params: &Value) -> String {
    let mut tools = all(era);
    let extra = shared.extra_tools.lock().unwrap();
    let extra = extra
        .iter()
        .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
    tools.splice(0..0, extra);
    if shared.has_jobs.load(Ordering::Relaxed) {
        tools.extend(jobs::tools());
    }
    let mut page = match era {
        Era::Legacy => json!({}),
        Era::Modern => json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}),
    };
    if shared.pages.load(Ordering::Relaxed) {
        let rest = tools.split_off(2);
        if params["cursor"] == "rest" {
            tools = rest;
        } else {
            page["nextCursor"] = json!("rest");
        }
    }
    page["tools"] = json!(tools);
    page.to_string()
}

fn all(era: Era) -> Vec<Value> {
    let names = [
        "echo",
        "slow",
        "work",
        "held",
        "steps",
        "ask",
        "ask_two",
        "ask_twice",
        "fail",
        "error",
        "big",
        "never",
        "own",
    ];
    let mut tools: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
        .collect();
    tools.push(
        json!({"name": "with_header", "inputSchema": {"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
        }}}),
    );
    tools.push(
        json!({"name": "look", "inputSchema": {"type": "object"}, "annotations": {
            "readOnlyHint": true,
        }}),
    );
    tools.push(
        json!({"name": "typed", "inputSchema": {"type": "object"}, "outputSchema": {
            "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        }, "_meta": {"anthropic/maxResultSizeChars": 1000, "com.example/kept": 1}}),
    );
    if era == Era::Legacy {
        tools.push(
            json!({"name": "only", "inputSchema": {"type": "object"}, "execution": {
                "taskSupport": "required",
            }}),
        );
    }
    tools
}
