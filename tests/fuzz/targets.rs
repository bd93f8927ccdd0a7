//! What reads bytes of others, each beside a slow reference: for the mutator of `tests/fuzz.rs`, and for the fuzzer of `fuzz/`,
//! which follows the coverage.

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

use crate::reference;

/// What is not JSON is refused. What is read strictly is what serde reads, without loss of a member.
pub(crate) fn envelope(bytes: &[u8]) {
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
pub(crate) fn header_codec(bytes: &[u8]) {
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
}

/// The decoder finds what a slow reference finds, wherever the bytes are cut.
pub(crate) fn sse(bytes: &[u8]) {
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
}

/// What can be read is written as something that can be read, and is the same then.
pub(crate) fn stored_record(bytes: &[u8]) {
    let sealer = Sealer::new("fuzz", &[1; 32], &[]);
    let binding = Binding {
        kind: "record",
        id: &[1; 16],
        caller: &[2; 16],
        number: 0,
    };
    assert!(
        sealer
            .open(&binding, Bytes::copy_from_slice(bytes))
            .is_err()
    );
    let Ok(read) = record::decode(bytes) else {
        return;
    };
    let Ok(written) = record::encode(&read.task) else {
        return;
    };
    let again = record::decode(&written).expect("what was written is read");
    let twice = record::encode(&again.task).unwrap();
    assert_eq!(written, twice);
    let _ = (
        read.task.status(),
        read.task.due_ms(),
        read.task.look_ms(),
        read.task.expires_ms(),
    );
}

/// A value that was sealed opens in its place, and nothing else does.
pub(crate) fn sealed(bytes: &[u8]) {
    let sealer = Sealer::new("fuzz", &[2; 32], &[&[1; 32]]);
    let (first, clear) = bytes.split_first().unwrap_or((&0, &[]));
    let here = Binding {
        kind: "answer",
        id: &[*first; 16],
        caller: &[],
        number: u64::from(*first),
    };
    let mut out = Vec::new();
    sealer.seal(&here, clear, &mut out).unwrap();
    let sealed = Bytes::from(out);
    assert_eq!(sealer.open(&here, sealed.clone()).unwrap(), clear);
    // The input says what is changed, and how.
    let mut altered = sealed.to_vec();
    for (at, change) in clear.chunks_exact(2).map(|two| (two[0], two[1])) {
        let at = usize::from(at) % altered.len();
        altered[at] ^= change;
    }
    if altered != sealed {
        assert!(sealer.open(&here, altered.into()).is_err());
    }
    let cut = usize::from(*first) % sealed.len();
    assert!(sealer.open(&here, sealed.slice(..cut)).is_err());
    assert!(sealer.open(&here, sealed.slice(cut + 1..)).is_err());
    let elsewhere = Binding {
        number: here.number + 1,
        ..here
    };
    assert!(sealer.open(&elsewhere, sealed).is_err());
    // As it came, under keys that are known: the id of a key and the rest.
    for id in sealer.key_ids() {
        let forged = [&id[..], bytes].concat();
        assert!(sealer.open(&here, forged.into()).is_err());
    }
}

/// A configuration is read or refused in one line.
pub(crate) fn configuration(bytes: &[u8]) {
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
    std::fs::write(&path, bytes).unwrap();
    if let Err(refused) = load(&flags, &[]) {
        let text = refused.to_string();
        assert!(
            !text.is_empty() && !text.contains(char::is_control),
            "{text:?}"
        );
    }
    let _ = std::fs::remove_file(path);
}
