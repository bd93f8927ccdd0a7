//! Excerpts of large results: head and tail of the text, and where the rest is. Pure.
//!
//! An excerpt is a result of the same kind. It keeps `isError`, `_meta` and every other member of the result, so that its
//! client reads it as it would read the whole result.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::{Object, Writer, is_object, quote, set};

#[cfg(test)]
mod tests;

/// The member of `_meta` by which programs know an excerpt. It names the resource that is the whole text.
const MARK: &str = "io.raincheck/excerpt";

/// The number of bytes of JSON that are shown of the head and of the tail. With the rest of the excerpt this stays
/// below 4 KiB.
const HEAD_BYTES: usize = 1400;
const TAIL_BYTES: usize = 900;

/// The largest number of other parts of the content that are named or kept.
const PARTS_MAX: usize = 3;

/// A part of the content up to this size may stay as it is: a link, for example.
const SMALL_PART: usize = 256;

/// `structuredContent` up to this size stays in any case.
const SMALL_STRUCTURED: usize = 512;

/// Where the client gets the whole result.
#[derive(Debug)]
pub struct Rest<'r> {
    /// The resource that is the whole text. A query may follow.
    pub uri: &'r str,
    /// The tool that gives the rest, and the ticket for it.
    pub tool: Option<(&'r str, &'r str)>,
    /// The client knows content of the type `resource_link`, which there is since 2025-06-18.
    pub knows_links: bool,
    /// Large `structuredContent` stays: the client may check it against the output schema of the tool.
    pub keeps_structured: bool,
}

impl Rest<'_> {
    /// Returns the instruction for the client to read all of the result.
    fn as_json(&self) -> String {
        match self.tool {
            Some((tool, ticket)) => {
                format!("for all of the result, call {tool} with ticket {ticket} and as \"json\"")
            }
            None => format!("read {}?as=json for all of the result", self.uri),
        }
    }
}

/// The excerpt of a result. `None`: the result cannot be read, or an excerpt would not be shorter.
pub fn excerpt(result: &str, rest: &Rest<'_>) -> Option<String> {
    let object = Object::parse(result).ok()?;
    let blocks = blocks(&object)?;
    // What is dropped of it.
    let structured = object
        .get("structuredContent")
        .filter(|structured| !rest.keeps_structured && structured.get().len() > SMALL_STRUCTURED);
    let drops_structured = structured.is_some();
    let text = text_of(result);
    let (text, mime) = match &text {
        Ok(Some(text)) => (&**text, "text/plain"),
        Ok(None) if !drops_structured => ("", "text/plain"),
        // Otherwise the excerpt would show nothing of a result that has no readable text.
        Ok(None) | Err(Unreadable) => (result, "application/json"),
    };
    let mut parts = OtherParts::default();
    for (place, block) in blocks.iter().enumerate() {
        parts.add(place, block, rest);
    }
    // Where the JSON of the whole result is shown, structuredContent is a part of it already.
    if let Some(structured) = structured.filter(|_| mime == "text/plain") {
        let (bytes, how) = (structured.get().len(), rest.as_json());
        let _ = writeln!(
            parts.named,
            "[raincheck: structuredContent of {bytes} bytes is left out; {how}]"
        );
    }
    let mut content = Vec::new();
    let shown = shown(text, &parts, rest);
    if !shown.is_empty() {
        let mut block = Writer::object();
        block.str("type", "text").str("text", &shown);
        content.push(block.end());
    }
    if rest.knows_links && !text.is_empty() {
        content.push(link(rest.uri, "result", mime, text.len()));
    }
    content.append(&mut parts.kept);
    let left = object.render_filtered(|key| !(drops_structured && key == "structuredContent"));
    let excerpt = set(&left, "content", &format!("[{}]", content.join(","))).ok()?;
    // A `_meta` that is no object has no place for the mark, so it is replaced.
    let meta = object.get("_meta").filter(|meta| is_object(meta));
    let meta = set(meta.map_or("{}", RawValue::get), MARK, &quote(rest.uri)).ok()?;
    let excerpt = set(&excerpt, "_meta", &meta).ok()?;
    (excerpt.len() < result.len()).then_some(excerpt)
}

/// The name of the resource that is the whole text of an excerpt. `None`: the result is no excerpt.
pub fn rest_of(result: &str) -> Option<String> {
    // Nearly all results. This search is cheaper than the parse.
    if !result.contains(MARK) {
        return None;
    }
    let meta = Object::parse(result).ok()?.get_object("_meta")?;
    meta.get_str(MARK).map(Cow::into_owned)
}

/// Returns the readable form of a result for ranges: its text, or the whole result if it has no text. With its MIME
/// type.
pub fn readable(result: &str) -> (Cow<'_, str>, &'static str) {
    match text_of(result) {
        Ok(Some(text)) => (text, "text/plain"),
        Ok(None) | Err(Unreadable) => (result.into(), "application/json"),
    }
}

/// One part of the content of a result.
pub fn block(result: &str, place: usize) -> Option<&RawValue> {
    let object = Object::parse(result).ok()?;
    blocks(&object)?.get(place).copied()
}

fn blocks<'a>(result: &Object<'a>) -> Option<Vec<&'a RawValue>> {
    match result.get("content") {
        Some(content) => serde_json::from_str(content.get()).ok(),
        None => Some(Vec::new()),
    }
}

/// The members of a result that are read for its text.
#[derive(Deserialize)]
struct Texts<'a> {
    #[serde(borrow, default)]
    content: Vec<Text<'a>>,
}

#[derive(Deserialize)]
struct Text<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

/// The result may have a text that is no Unicode, such as one half of a character.
struct Unreadable;

/// The text of all texts of the content, a line break between two of them. `None`: there is no text.
///
/// The result may be large, so it is read in one pass.
fn text_of(result: &str) -> Result<Option<Cow<'_, str>>, Unreadable> {
    let texts: Texts<'_> = serde_json::from_str(result).map_err(|_| Unreadable)?;
    let texts = texts.content.into_iter().filter(|it| it.kind == "text");
    let mut texts: Vec<Cow<'_, str>> = texts.map(|it| it.text).collect();
    let whole = match texts.len() {
        0 => return Ok(None),
        1 => texts.swap_remove(0),
        _ => texts.join("\n").into(),
    };
    Ok((!whole.is_empty()).then_some(whole))
}

/// The parts of the content that are no text.
#[derive(Default)]
struct OtherParts {
    /// As JSON: small parts as they are, and links in place of large ones.
    kept: Vec<String>,
    /// Lines in place of links.
    named: String,
    left_out: Option<LeftOut>,
}

/// The parts that are only counted.
#[derive(Clone, Copy)]
struct LeftOut {
    number: usize,
    /// The place of the first of them.
    first: usize,
}

impl OtherParts {
    fn add(&mut self, place: usize, block: &RawValue, rest: &Rest<'_>) {
        let object = Object::parse(block.get()).unwrap_or_default();
        let kind = object.get_str("type").unwrap_or_default();
        if kind == "text" {
            return;
        }
        // Each part takes room in the excerpt, and a result may have thousands of them.
        if self.kept.len() + self.named.lines().count() >= PARTS_MAX {
            let left_out = self.left_out.get_or_insert(LeftOut {
                number: 0,
                first: place,
            });
            left_out.number += 1;
            return;
        }
        if block.get().len() <= SMALL_PART {
            self.kept.push(block.get().to_owned());
            return;
        }
        let inner = object.get_object("resource").unwrap_or_default();
        let mime = object.get_str("mimeType");
        let mime = mime.or_else(|| inner.get_str("mimeType"));
        // The server chooses this text, and a long one would fill the excerpt.
        let mime = mime.filter(|mime| mime.len() <= 80);
        let mime = mime.as_deref().unwrap_or("application/octet-stream");
        let size = size(&object).or_else(|| size(&inner));
        let size = size.unwrap_or_else(|| block.get().len());
        let uri = format!("{}?block={place}", rest.uri);
        if rest.tool.is_none() && rest.knows_links {
            let name = format!("part {place}");
            self.kept.push(link(&uri, &name, mime, size));
            return;
        }
        let how = match rest.tool {
            Some((tool, ticket)) => format!("call {tool} with ticket {ticket} and block {place}"),
            None => format!("read {uri}"),
        };
        let _ = writeln!(self.named, "[raincheck: {mime} of {size} bytes; {how}]");
    }
}

/// Returns the number of bytes that a part of the content holds.
fn size(block: &Object<'_>) -> Option<usize> {
    let encoded = block.get("data").or_else(|| block.get("blob"));
    let plain = block.get("text");
    // The raw value has two quotes around it, and base64 has four letters for three bytes.
    let of = |raw: &RawValue| raw.get().len().saturating_sub(2);
    encoded.map(|raw| of(raw) / 4 * 3).or_else(|| plain.map(of))
}

fn link(uri: &str, name: &str, mime: &str, size: usize) -> String {
    let mut out = Writer::with_capacity(256);
    out.str("type", "resource_link")
        .str("uri", uri)
        .str("name", name)
        .str("mimeType", mime)
        .number("size", size);
    out.end()
}

/// The text that the model sees.
fn shown(text: &str, parts: &OtherParts, rest: &Rest<'_>) -> String {
    let (head, tail) = (head(text), tail(text));
    let mut out = String::with_capacity(3072);
    if head < tail {
        let left = tail - head;
        let total = text.len();
        out.push_str(text.get(..head).unwrap_or_default());
        if !out.ends_with('\n') {
            out.push('\n');
        }
        let _ = write!(
            out,
            "[raincheck: {left} of {total} bytes are left out here; "
        );
        let _ = match rest.tool {
            Some((tool, ticket)) => write!(
                out,
                "for the rest, call {tool} with ticket {ticket} and offset {head}, or with grep for the lines that contain \
                 a word"
            ),
            None => write!(
                out,
                "for the rest, read the resource {}?offset={head}",
                rest.uri
            ),
        };
        out.push_str("]\n");
        out.push_str(text.get(tail..).unwrap_or_default());
    } else {
        out.push_str(text);
    }
    let says_more = !parts.named.is_empty() || parts.left_out.is_some();
    if says_more && !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    out.push_str(&parts.named);
    if let Some(LeftOut { number, first }) = parts.left_out {
        let how = match rest.tool {
            Some((tool, ticket)) => format!(
                "the first is block {first}: call {tool} with ticket {ticket} and block {first}"
            ),
            None => rest.as_json(),
        };
        let _ = write!(out, "[raincheck: {number} more parts are left out; {how}]");
    }
    out
}

/// Where the head of the text ends: at the end of a line if that leaves half of what fits.
fn head(text: &str) -> usize {
    let mut bytes = 0;
    let end = text.char_indices().find(|(_, letter)| {
        bytes += json_bytes(*letter);
        bytes > HEAD_BYTES
    });
    let Some((end, _)) = end else {
        return text.len();
    };
    let line = text.get(..end).and_then(|head| head.rfind('\n'));
    line.map(|at| at + 1)
        .filter(|line| *line >= end / 2)
        .unwrap_or(end)
}

/// Where the tail of the text begins: at the start of a line if that leaves half of what fits.
fn tail(text: &str) -> usize {
    let (mut bytes, mut start) = (0, text.len());
    // Counted from the end, so that a long text is not read through.
    for (at, letter) in text.char_indices().rev() {
        bytes += json_bytes(letter);
        if bytes > TAIL_BYTES {
            break;
        }
        start = at;
    }
    if start == 0 {
        return 0;
    }
    let line = text.get(start..).and_then(|tail| tail.find('\n'));
    line.map(|at| start + at + 1)
        .filter(|line| *line - start <= (text.len() - start) / 2)
        .unwrap_or(start)
}

/// Returns the number of bytes that JSON needs for a character.
fn json_bytes(letter: char) -> usize {
    match letter {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        control if control < ' ' => 6,
        other => other.len_utf8(),
    }
}
