//! What real servers write, and what becomes of it: one row a variation, so that the next report is one more row. Each row is
//! written by a server of every kind that can write it, and answered to clients of both eras, on calls that pass and on calls
//! that are carried.

use futures_util::future::join_all;
use hyper::Method;
use serde_json::json;

use crate::field_servers::server::{FieldServer, PLAIN, Way, Writing};
use crate::support::client::Client;
use crate::support::session::{NEWEST, SESSION, initialize};
use crate::support::{Config, PATIENCE, within};

mod bodies;
mod codings;
mod messages;
mod notifications;
pub(crate) mod server;
mod streams;

/// What clients hear of a call.
#[derive(Clone, Copy)]
enum Heard {
    /// The result.
    Done,
    /// The call ends at once with an error that has this in its message. On a call that passes as bytes the client gets what
    /// the server wrote.
    Refused(&'static str),
    /// The same, and clients of a session get what the server wrote: some of them read it.
    Carried(&'static str),
}

use Heard::{Carried, Done, Refused};

/// One variation: its name, the servers that write so, how they write, and what clients hear.
type Row = (&'static str, &'static [Way], Writing, Heard);

const HTTP: &[Way] = &[Way::Modern, Way::Legacy];
const STREAMS: &[Way] = &[Way::Modern, Way::Legacy, Way::Sse];
const PROGRAM: &[Way] = &[Way::Program];

fn json(writing: Writing) -> Writing {
    Writing {
        is_json: true,
        ..writing
    }
}

fn call(message: fn(&str, &str) -> Vec<u8>) -> Writing {
    Writing {
        message,
        calls_only: true,
        ..PLAIN
    }
}

fn all(message: fn(&str, &str) -> Vec<u8>) -> Writing {
    Writing { message, ..PLAIN }
}

fn text(text: impl Into<String>) -> Vec<u8> {
    text.into().into_bytes()
}

/// What each client hears of its call, in words: of a task, of a call that is carried, and of a call on a session.
async fn heard(way: Way, writing: Writing) -> [String; 3] {
    let server = FieldServer::start(way, writing).await;
    let proxy = server.behind(Config::always()).await;
    let client = Client::of(proxy.address());
    let task = async {
        let answer = client.call("t", json!({})).await;
        if !answer.body.contains("taskId") {
            return answer.body;
        }
        let task = answer.into_task();
        let ended = client.until_it(&task, "over", |state| state["status"] != "working");
        ended.await.to_string()
    };
    let plain = async {
        let other = client.clone().without_tasks();
        other.call("t", json!({})).await.body
    };
    if writing.stays_open {
        // A client that gets the bytes has no end of them.
        let carried = task.await;
        return [carried.clone(), carried.clone(), carried];
    }
    [task.await, plain.await, on_session(&client).await]
}

/// A call on a session.
async fn on_session(client: &Client) -> String {
    let opened = client.post(initialize(NEWEST, json!({})).to_string());
    let opened = opened.send().await;
    let Some(session) = opened.headers.get(SESSION) else {
        return opened.body;
    };
    let session = session.to_str().unwrap().to_owned();
    let on_it = |body: String| {
        let request = client.post(body).header(SESSION, &session);
        request.header("mcp-protocol-version", NEWEST).send()
    };
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    on_it(ready.to_string()).await;
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "t", "arguments": {}}});
    let answer = on_it(call.to_string()).await.body;
    let end = client
        .http(Method::DELETE, "/mcp")
        .header(SESSION, &session);
    end.send().await;
    answer
}

async fn check(rows: Vec<Row>) {
    let mut wrong = Vec::new();
    for (what, ways, writing, expected) in rows {
        let of_ways = ways
            .iter()
            .map(async |way| (*way, heard(*way, writing).await));
        let of_ways = within(PATIENCE * 3, what, join_all(of_ways)).await;
        for (way, heard) in of_ways {
            for (client, said) in ["task", "plain", "session"].into_iter().zip(heard) {
                // Bytes that pass are the server's.
                let passes = match way {
                    Way::Modern => client == "plain",
                    Way::Legacy => client == "session",
                    Way::Sse | Way::Program => false,
                };
                let is_good = match expected {
                    Done => said.contains("done"),
                    Refused(_) if passes => true,
                    Carried(_) if client == "session" && way != Way::Modern => {
                        said.contains("done")
                    }
                    Carried(_) if passes => said.contains("done"),
                    Refused(why) | Carried(why) => said.contains(why) && said.contains("error"),
                };
                if !is_good {
                    wrong.push(format!("{what}: {way:?}, {client}: {said}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
