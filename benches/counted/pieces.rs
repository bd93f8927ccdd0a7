//! The pieces of work, each on data as it is in life.

use std::error::Error;
use std::hint::black_box;

use raincheck::downstream::bench_hooks::MeasuredRequest;
use raincheck::mcp::sse::Decoder;
use raincheck::store::record::{decode, encode};
use raincheck::task::id::Fence;
use raincheck::task::last_news::LastNews;
use raincheck::task::machine::{OwnerEvent, TaskEvent, step};
use raincheck::task::state::{Outcome, Payload, Task};
use raincheck::task::view::{create_result, get_result};
use serde_json::value::RawValue;

type Run = fn(u64) -> Result<(), Box<dyn Error>>;

pub(crate) const ALL: [(&str, Run); 9] = [
    ("read", read),
    ("route", route),
    ("sse-decode", sse_decode),
    ("step-dispatched", step_dispatched),
    ("step-ended", step_ended),
    ("view-created", view_created),
    ("view-completed", view_completed),
    ("record-encode", record_encode),
    ("record-decode", record_decode),
];

const NOW_MS: u64 = 1_790_000_000_000;

/// A call as the load generator makes it.
const CALL: &str = r#"{"jsonrpc":"2.0","id":1234,"method":"tools/call","params":{"name":"fast","arguments":{"nonce":"n1234"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"loadgen","version":"0.1.0"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;

/// An event of a stream with progress.
const EVENT: &str = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1234,\"progress\":1,\"total\":100,\"message\":\"t=123456789012345\"}}\n\n";

const RESULT: &str =
    r#"{"resultType":"complete","content":[{"type":"text","text":"n1234"}],"isError":false}"#;

/// A task that waits to be sent, as the store keeps it.
const QUEUED: &str = r#"1 {"id":"00000000-0000-4000-8000-000000000001","caller":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],"method":"tools/call","name":"fast","created_ms":1790000000000,"updated_ms":1790000000000,"deadline_ms":1790003600000,"ttl_ms":7200000,"poll_interval_ms":2000,"announced":true,"owner":"web-0/1","fence":1,"leg":"queued"}"#;

fn read(times: u64) -> Result<(), Box<dyn Error>> {
    check(request()?.read(times), "the message is no request")
}

fn route(times: u64) -> Result<(), Box<dyn Error>> {
    check(request()?.route(times), "the call does not pass")
}

fn request() -> Result<MeasuredRequest, Box<dyn Error>> {
    let (parts, ()) = hyper::Request::post("/mcp")
        .header("host", "127.0.0.1:8440")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("content-length", CALL.len())
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "fast")
        .body(())?
        .into_parts();
    Ok(MeasuredRequest::new(parts, CALL.into()))
}

fn sse_decode(times: u64) -> Result<(), Box<dyn Error>> {
    let mut decoder = Decoder::new(1 << 20);
    let mut events = 0;
    for _ in 0..times {
        decoder.feed(black_box(EVENT.as_bytes()), |event| {
            black_box(event);
            events += 1;
        })?;
    }
    check(events == times, "an event was lost")
}

fn step_dispatched(times: u64) -> Result<(), Box<dyn Error>> {
    let task = queued()?;
    repeat(times, || {
        let event = TaskEvent::Owner(Fence(1), OwnerEvent::Dispatched);
        step(black_box(&task), event, NOW_MS + 1).is_ok()
    })
}

fn step_ended(times: u64) -> Result<(), Box<dyn Error>> {
    let task = sent()?;
    let result = raw(RESULT)?;
    repeat(times, || {
        step(black_box(&task), ended(result.clone()), NOW_MS + 2).is_ok()
    })
}

fn view_created(times: u64) -> Result<(), Box<dyn Error>> {
    let task = queued()?;
    repeat(times, || {
        !black_box(create_result(black_box(&task), NOW_MS)).is_empty()
    })
}

fn view_completed(times: u64) -> Result<(), Box<dyn Error>> {
    let task = completed()?;
    repeat(times, || {
        !black_box(get_result(black_box(&task), None, NOW_MS + 3)).is_empty()
    })
}

fn record_encode(times: u64) -> Result<(), Box<dyn Error>> {
    let task = completed()?;
    repeat(times, || black_box(encode(black_box(&task))).is_ok())
}

fn record_decode(times: u64) -> Result<(), Box<dyn Error>> {
    let record = encode(&completed()?)?;
    repeat(times, || black_box(decode(black_box(&record))).is_ok())
}

fn queued() -> Result<Task, Box<dyn Error>> {
    Ok(decode(QUEUED.as_bytes())?.task)
}

fn sent() -> Result<Task, Box<dyn Error>> {
    let event = TaskEvent::Owner(Fence(1), OwnerEvent::Dispatched);
    after(&queued()?, event, NOW_MS + 1)
}

fn completed() -> Result<Task, Box<dyn Error>> {
    after(&sent()?, ended(raw(RESULT)?), NOW_MS + 2)
}

fn ended(result: Box<RawValue>) -> TaskEvent {
    let ended = OwnerEvent::Ended {
        outcome: Outcome::Completed(Payload::Inline(result)),
        message: None,
        last: LastNews::default(),
    };
    TaskEvent::Owner(Fence(1), ended)
}

fn after(task: &Task, event: TaskEvent, now_ms: u64) -> Result<Task, Box<dyn Error>> {
    let step = step(task, event, now_ms).map_err(|why| format!("{why:?}"))?;
    Ok(step.task)
}

fn raw(text: &str) -> Result<Box<RawValue>, Box<dyn Error>> {
    Ok(RawValue::from_string(text.to_owned())?)
}

fn repeat(times: u64, mut work: impl FnMut() -> bool) -> Result<(), Box<dyn Error>> {
    check((0..times).all(|_| work()), "the work failed")
}

fn check(is_right: bool, otherwise: &'static str) -> Result<(), Box<dyn Error>> {
    if is_right {
        Ok(())
    } else {
        Err(otherwise.into())
    }
}
