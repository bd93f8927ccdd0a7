//! Fuzzes what reads bytes of others: a seeded mutator over a small corpus, and slow references beside the readers.
//!
//! Each target runs for a moment with every test run, and `tests/fuzz/run.sh SECONDS` gives each so many seconds. What is
//! private is fuzzed beside its code, by tests whose names begin with `fuzzed`. The mutator does not look at coverage: the corpus must reach the interesting branches.
#![expect(
    clippy::disallowed_methods,
    reason = "tests own their tasks and environment"
)]
#![expect(
    clippy::print_stdout,
    reason = "the figures of a run, and the input on which a target failed"
)]

#[path = "fuzz/mutator.rs"]
mod mutator;
#[path = "fuzz/reference.rs"]
mod reference;

use bytes::Bytes;
use raincheck::config::load::{Flags, load};
use raincheck::mcp::json::{Fault, Object};
use raincheck::mcp::request::{ClientMessage, Envelope};
use raincheck::mcp::scan::{mend, scan};
use raincheck::mcp::sse::{Decoder, SseEvent, encode};
use raincheck::mcp::{base64, headers};
use raincheck::store::record;
use raincheck::store::seal::{Binding, Sealer};
use serde_json::Value;

use mutator::fuzz;

/// What is not JSON is refused. What is read strictly is what serde reads, without loss of a member.
#[test]
fn envelope() {
    fuzz("envelope", |bytes| {
        let scanned = scan(bytes);
        if let Err(Fault::Utf8) = scanned {
            assert!(std::str::from_utf8(bytes).is_err());
        }
        if let Ok(text) = std::str::from_utf8(bytes) {
            mended(text);
            read_in_one_pass(text);
        }
        let Ok(text) = scanned else { return };
        let by_serde = serde_json::from_str::<Value>(text);
        let Ok(object) = Object::parse(text) else {
            let is_object = by_serde.as_ref().is_ok_and(Value::is_object);
            assert!(!is_object, "serde reads an object");
            return;
        };
        // Numbers beyond f64 are JSON, which serde's values do not hold.
        if let Ok(Value::Object(members)) = &by_serde {
            for (name, value) in members {
                let found = object.iter().filter(|(key, _)| key == name).last();
                let raw = found.expect("a member").1.get();
                assert_eq!(serde_json::from_str::<Value>(raw).unwrap(), *value);
            }
            assert!(object.iter().all(|(key, _)| members.contains_key(key)));
        }
        let params = object.get_object("params");
        let envelope = Envelope::of(object);
        if let Ok(ClientMessage::Request(request)) = ClientMessage::of(&envelope, params) {
            let object = &envelope.members;
            assert_eq!(object.iter().filter(|(key, _)| *key == "id").count(), 1);
            assert_eq!(object.get_str("method").unwrap(), request.method);
            let _ = (request.name(), request.has_id());
        }
    });
}

/// What is read in one pass has no fault, and is what `serde_json` reads.
fn read_in_one_pass(text: &str) {
    let Some((object, inner)) = Object::read_plain(text, ["params", "_meta"]) else {
        return;
    };
    assert_eq!(scan(text.as_bytes()), Ok(text));
    let by_serde: Object<'_> = serde_json::from_str(text).expect("JSON");
    let params = inside(Some(&by_serde), "params");
    let [found_params, found_meta] = &inner;
    assert_eq!(shown(Some(&object)), shown(Some(&by_serde)));
    assert_eq!(shown(found_params.as_ref()), shown(params.as_ref()));
    let meta = inside(params.as_ref(), "_meta");
    assert_eq!(shown(found_meta.as_ref()), shown(meta.as_ref()));
}

/// The member as `serde_json` reads it.
fn inside<'a>(outer: Option<&Object<'a>>, name: &str) -> Option<Object<'a>> {
    serde_json::from_str(outer?.get(name)?.get()).ok()
}

fn shown<'a>(object: Option<&'a Object<'a>>) -> Option<Vec<(&'a str, &'a str)>> {
    object.map(|it| it.iter().map(|(name, value)| (name, value.get())).collect())
}

/// What is mended is what was there, but for halves of surrogate pairs, and all parsers read it.
fn mended(text: &str) {
    let Ok(mended) = mend(text) else { return };
    assert_eq!(mended.len(), text.len());
    let is_json =
        |text: &str| serde_json::from_str::<Box<serde_json::value::RawValue>>(text).is_ok();
    assert_eq!(is_json(&mended), is_json(text));
    assert_eq!(mend(&mended).unwrap(), mended, "mended once for all");
}

/// What was decoded is encoded as a header may carry it, and decodes to the same.
#[test]
fn header_codec() {
    fuzz("header_codec", |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return;
        };
        let encoded = headers::encode(text);
        assert!(
            encoded
                .bytes()
                .all(|byte| matches!(byte, 0x20..=0x7e | b'\t'))
        );
        assert_eq!(headers::decode(&encoded).as_deref(), Some(text));
        let _ = headers::decode(text);
        if let Some(decoded) = base64::decode(text) {
            let mut again = String::new();
            base64::encode(&decoded, &mut again);
            assert_eq!(again, text, "there is one form of each value");
        }
        let _ = base64::decode_url(text);
    });
}

/// The decoder finds what a slow reference finds, wherever the bytes are cut.
#[test]
fn sse() {
    fuzz("sse", |bytes| {
        let (first, stream) = bytes.split_first().unwrap_or((&0, &[]));
        let cut = usize::from(*first) % (stream.len() + 1);
        let mut found = Vec::new();
        let mut decoder = Decoder::new(1 << 20);
        let (a, b) = stream.split_at(cut);
        let fed = decoder
            .feed(a, |event| found.push(event))
            .and_then(|()| decoder.feed(b, |event| found.push(event)));
        let (expected, is_utf8) = reference::events(stream);
        assert_eq!(found, expected, "cut at {cut}");
        assert_eq!(fed.is_ok(), is_utf8);
        for event in found {
            let is_plain = |text: &Option<String>| {
                text.as_ref()
                    .is_none_or(|text| !text.contains(['\r', '\n']))
            };
            assert!(is_plain(&event.id) && is_plain(&event.event));
            let mut again = Vec::new();
            let written = encode(&event);
            Decoder::new(1 << 20)
                .feed(&written, |event| again.push(event))
                .unwrap();
            // An event of wrong fields only has nothing to write.
            let is_empty = event == SseEvent::default();
            let expected: Vec<SseEvent> = (!is_empty).then_some(event).into_iter().collect();
            assert_eq!(again, expected);
        }
        // Beyond its bound an event is refused, and the decoder begins anew.
        let mut small = Decoder::new(8);
        let mut rest = stream;
        for _ in 0..=stream.len() {
            if small.feed_up_to(&mut rest, |_| {}).is_ok() {
                break;
            }
            let _ = small.take_refused();
        }
    });
}

/// What can be read is written as something that can be read, and is the same then.
#[test]
fn stored_record() {
    let sealer = Sealer::new("fuzz", &[1; 32], &[]);
    let binding = Binding {
        kind: "record",
        id: &[1; 16],
        caller: &[2; 16],
        number: 0,
    };
    fuzz("stored_record", |bytes| {
        assert!(
            sealer
                .open(&binding, Bytes::copy_from_slice(bytes))
                .is_err()
        );
        let Ok(read) = record::decode(bytes) else {
            return;
        };
        let Ok(written) = record::encode(&read.task, record::FORMAT) else {
            return;
        };
        let again = record::decode(&written).expect("what was written is read");
        let twice = record::encode(&again.task, record::FORMAT).unwrap();
        assert_eq!(written, twice);
        let _ = (
            read.task.status(),
            read.task.due_ms(),
            read.task.look_ms(),
            read.task.expires_ms(),
        );
    });
}

/// A configuration is read or refused in one line.
#[test]
fn configuration() {
    let name = format!("raincheck-fuzz-{}.toml", std::process::id());
    let base = std::path::Path::new("/dev/shm");
    let base = if base.is_dir() {
        base.to_owned()
    } else {
        std::env::temp_dir()
    };
    let path = base.join(name);
    let flags = Flags {
        config: Some(path.clone()),
        store: Some("memory:".into()),
        ..Flags::default()
    };
    fuzz("configuration", |bytes| {
        std::fs::write(&path, bytes).unwrap();
        if let Err(refused) = load(&flags, &[]) {
            let text = refused.to_string();
            assert!(
                !text.is_empty() && !text.contains(char::is_control),
                "{text:?}"
            );
        }
    });
    let _ = std::fs::remove_file(path);
}
