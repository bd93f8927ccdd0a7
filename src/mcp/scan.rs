//! One linear pass over the bytes of JSON, without recursion. JSON that parsers read differently is refused
//! from clients, unless it passes unread, and mended in messages of servers.
//!
//! `serde_json::RawValue` has no depth limit and keeps lone surrogates.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::flaw::Flaw;

/// Nesting deeper than this is refused. Tools take trees and return trees. Raincheck does not read values by recursion; the
/// bound protects clients and servers that do.
pub const DEPTH_MAX: usize = 4096;

/// Why bytes are not JSON that all parsers read the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("not UTF-8")]
    Utf8,
    #[error("starts with a byte order mark")]
    ByteOrderMark,
    #[error("nested too deeply")]
    Depth,
    #[error("a string holds half of a surrogate pair")]
    Surrogate,
    #[error("not JSON")]
    Syntax,
}

/// Checks what `serde_json` leaves unchecked in raw values: UTF-8, depth and surrogate pairs. Syntax is
/// checked later, when the text is parsed. A [`Fault::Surrogate`] is the only fault of its text.
pub fn scan(bytes: &[u8]) -> Result<&str, Fault> {
    // Some parsers skip the mark and others refuse the text: RFC 8259 (8.1) allows both.
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(Fault::ByteOrderMark);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Fault::Utf8)?;
    let mut has_half = false;
    walk(bytes, &mut |_| {
        // Noted and not returned at once: a fault of depth behind it goes first, so that a surrogate is the only fault.
        has_half = true;
        Ok(())
    })?;
    if has_half {
        return Err(Fault::Surrogate);
    }
    Ok(text)
}

/// Makes a server's message readable for all parsers: half of a surrogate pair becomes U+FFFD. Refusing the
/// message would lose the result of a tool that has run, only because the tool cut a text in the middle of an
/// emoji.
pub fn mend(text: &str) -> Result<Cow<'_, str>, Fault> {
    let mut mended: Option<Vec<u8>> = None;
    walk(text.as_bytes(), &mut |left| {
        // Nearly no message has half of a pair, so the copy is made at the first one.
        let bytes = mended.get_or_insert_with(|| text.as_bytes().to_vec());
        let end = bytes.len().saturating_sub(left);
        let start = end.saturating_sub(REPLACEMENT.len());
        if let Some(half) = bytes.get_mut(start..end) {
            half.copy_from_slice(REPLACEMENT);
        }
        Ok(())
    })?;
    match mended {
        None => Ok(Cow::Borrowed(text)),
        Some(bytes) => String::from_utf8(bytes)
            .map(Cow::Owned)
            .map_err(|_| Fault::Utf8),
    }
}

/// A copy of a server's message in which a number of the same length stands for each NaN and Infinity. Python's `json` writes
/// and reads them. `None`: there are none.
pub fn with_finite(text: &str) -> Option<String> {
    if !text.contains("NaN") && !text.contains("Infinity") {
        return None;
    }
    let mut copy = text.as_bytes().to_vec();
    let mut rest = text.as_bytes().iter();
    let mut found = false;
    while let Some(byte) = rest.next() {
        let at = text.len() - rest.len() - 1;
        let word: &[u8] = match byte {
            b'"' => {
                walk_string(&mut rest, &mut |_| Ok(())).ok()?;
                continue;
            }
            b'N' => b"NaN",
            b'I' => b"Infinity",
            _ => continue,
        };
        let place = copy.get_mut(at..at + word.len())?;
        if place != word {
            continue;
        }
        // Spaces are valid behind a number, so the copy keeps its length.
        place.fill(b' ');
        *place.first_mut()? = b'0';
        found = true;
    }
    String::from_utf8(copy).ok().filter(|_| found)
}

/// Returns the error in a text that is not JSON. `None`: it is JSON.
pub fn flaw_of(text: &str) -> Option<Flaw> {
    let error = serde_json::from_str::<&RawValue>(text).err()?;
    let lines = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1));
    let mut at = lines.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
    // The column of such an error is that of the character before.
    if error.to_string().starts_with("control character") {
        at += 1;
    }
    if error.is_eof() {
        return Some(Flaw::Json {
            at: text.len(),
            found: None,
        });
    }
    let rest = text.as_bytes().get(at..).unwrap_or_default();
    if ["NaN", "Infinity"]
        .iter()
        .any(|it| rest.starts_with(it.as_bytes()))
    {
        return Some(Flaw::NotFinite { at });
    }
    let found = rest.first().copied();
    Some(Flaw::Json { at, found })
}

/// U+FFFD, as long as the escape that it replaces.
const REPLACEMENT: &[u8; 6] = b"\\ufffd";

/// Checks the bytes in one pass without recursion. `half` is called for each escape that is half of a
/// surrogate pair, with the number of bytes that follow the escape.
fn walk(bytes: &[u8], half: &mut impl FnMut(usize) -> Result<(), Fault>) -> Result<(), Fault> {
    let mut depth = 0_usize;
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(Fault::Depth);
                }
            }
            // Syntax is checked later, so a bracket too many is no fault here.
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => walk_string(&mut rest, half)?,
            _ => {}
        }
    }
    Ok(())
}

/// Consumes a string up to its closing quote.
fn walk_string(
    rest: &mut std::slice::Iter<'_, u8>,
    half: &mut impl FnMut(usize) -> Result<(), Fault>,
) -> Result<(), Fault> {
    // The first half of a pair that waits for its second half: how many bytes follow it.
    let mut first: Option<usize> = None;
    loop {
        if first.is_none() {
            // Skips to the next escape or the end of the string.
            while rest
                .as_slice()
                .first()
                .is_some_and(|byte| !matches!(byte, b'"' | b'\\'))
            {
                rest.next();
            }
        }
        let Some(byte) = rest.next() else {
            return Err(Fault::Syntax);
        };
        let unit = match byte {
            b'"' => return first.map_or(Ok(()), half),
            b'\\' => match rest.next().ok_or(Fault::Syntax)? {
                b'u' => Some(hex4(rest)?),
                _ => None,
            },
            _ => None,
        };
        let (is_first, is_second) = (
            matches!(unit, Some(0xD800..=0xDBFF)),
            matches!(unit, Some(0xDC00..=0xDFFF)),
        );
        match first.take() {
            Some(_) if is_second => {}
            Some(alone) => half(alone)?,
            None if is_second => half(rest.len())?,
            None => {}
        }
        if is_first {
            first = Some(rest.len());
        }
    }
}

fn hex4(rest: &mut std::slice::Iter<'_, u8>) -> Result<u16, Fault> {
    let mut unit = 0_u16;
    for _ in 0..4 {
        let digit = rest
            .next()
            .and_then(|b| char::from(*b).to_digit(16))
            .ok_or(Fault::Syntax)?;
        unit = (unit << 4) | u16::try_from(digit).map_err(|_| Fault::Syntax)?;
    }
    Ok(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::json::raw;

    #[test]
    fn scan_refuses_what_parsers_disagree_about() {
        assert_eq!(scan(b"\xef\xbb\xbf{}"), Err(Fault::ByteOrderMark));
        assert_eq!(scan(b"\"\xff\""), Err(Fault::Utf8));
        assert_eq!(scan(&b"[".repeat(100_000)), Err(Fault::Depth));
        for bad in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800x""#,
            r#""\ud800\ud800""#,
            r#""\ud800\n""#,
        ] {
            assert_eq!(scan(bad.as_bytes()), Err(Fault::Surrogate), "{bad}");
        }
        let deep = [br#"["\ud800","#.as_slice(), &b"[".repeat(DEPTH_MAX)].concat();
        assert_eq!(scan(&deep), Err(Fault::Depth));
        assert!(scan(br#""\ud83d\ude00 [[[ \" {""#).is_ok());
        assert_eq!(scan(br#""open"#), Err(Fault::Syntax));
        assert_eq!(scan(br#""\u12"#), Err(Fault::Syntax));
    }

    #[test]
    fn halves_of_pairs_are_mended_and_nothing_else() {
        for (said, mended) in [
            (r#"["\ud83d"]"#, r#"["\ufffd"]"#),
            (r#"["a\uDE00b"]"#, r#"["a\ufffdb"]"#),
            (r#"["\ud83d\ud83d\ude00"]"#, r#"["\ufffd\ud83d\ude00"]"#),
            (r#"["\ud83d\n\udc00"]"#, r#"["\ufffd\n\ufffd"]"#),
            (r#"["\ud83d","\ude00"]"#, r#"["\ufffd","\ufffd"]"#),
            (r#"{"\ud83d":"\\ud83d"}"#, r#"{"\ufffd":"\\ud83d"}"#),
        ] {
            assert_eq!(mend(said).unwrap(), mended);
            assert_eq!(scan(said.as_bytes()), Err(Fault::Surrogate), "{said}");
            assert!(serde_json::from_str::<serde_json::Value>(mended).is_ok());
        }
        for whole in [r#"{"a":"\ud83d\ude00 \u00e9"}"#, "[]", "junk"] {
            assert!(matches!(mend(whole), Ok(Cow::Borrowed(same)) if same == whole));
        }
        assert_eq!(mend(r#""\ud83d"#), Err(Fault::Syntax));
    }

    #[test]
    fn what_is_no_number_is_found_outside_of_strings() {
        for (said, copy) in [
            (r#"{"a":NaN,"NaN":"NaN"}"#, r#"{"a":0  ,"NaN":"NaN"}"#),
            ("[-Infinity,Infinity]", "[-0       ,0       ]"),
        ] {
            assert_eq!(with_finite(said).as_deref(), Some(copy));
        }
        for other in [r#"{"a":"NaN"}"#, "[1]", "[Nan]", r#"["NaN"#] {
            assert_eq!(with_finite(other), None, "{other}");
        }
    }

    #[test]
    fn a_flaw_is_where_it_is() {
        let json = |at, found| Some(Flaw::Json { at, found });
        for (text, flaw) in [
            ("{}", None),
            (r#"{"a":NaN}"#, Some(Flaw::NotFinite { at: 5 })),
            ("{\"a\":\n -Infinity}", Some(Flaw::NotFinite { at: 8 })),
            (r#"{"a":1,}"#, json(7, Some(b'}'))),
            ("{\"a\":\"\t\"}", json(6, Some(b'\t'))),
            ("{} x", json(3, Some(b'x'))),
            (r#"{"a":"#, json(5, None)),
        ] {
            assert_eq!(flaw_of(text), flaw, "{text}");
        }
    }

    #[test]
    fn trees_of_any_use_are_read() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        let nested = |depth| String::from_utf8(nested(depth)).unwrap();
        let deepest = nested(DEPTH_MAX);
        assert!(scan(deepest.as_bytes()).is_ok());
        assert!(mend(&deepest).is_ok());
        assert_eq!(raw(deepest.clone()).unwrap().get(), deepest);
        let too_deep = nested(DEPTH_MAX + 1);
        assert_eq!(scan(too_deep.as_bytes()), Err(Fault::Depth));
        assert_eq!(mend(&too_deep), Err(Fault::Depth));
        assert_eq!(mend(&"[".repeat(1_000_000)), Err(Fault::Depth));
    }
}
