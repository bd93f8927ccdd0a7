//! `Mcp-Param-*` headers against the arguments that they mirror (streamable-http, Server Behavior
//! for Custom Headers).

use std::borrow::Cow;

use hyper::HeaderMap;
use serde_json::value::RawValue;

use super::headers;
use super::json::{Object, is_object, string};
use super::tools::{Mirrored, Tool};

/// Compares the headers with the arguments. The error names the difference.
pub fn check(tool: &Tool, arguments: Option<&RawValue>, headers: &HeaderMap) -> Result<(), String> {
    tool.mirrored
        .iter()
        .try_for_each(|mirrored| check_one(mirrored, arguments, headers))
}

fn check_one(
    mirrored: &Mirrored,
    arguments: Option<&RawValue>,
    headers: &HeaderMap,
) -> Result<(), String> {
    let name = &mirrored.header;
    let says = |what: &str| Err(format!("Header mismatch: {name} {what}"));
    let mut values = headers.get_all(name).iter();
    let header = values.next();
    // Of two headers with one name some servers read the first and some the last.
    if values.next().is_some() {
        return says("stands twice");
    }
    if arguments.is_some_and(|arguments| is_ambiguous(arguments, &mirrored.path)) {
        return says("mirrors an argument that is there twice");
    }
    let body = arguments.and_then(|arguments| argument(arguments, &mirrored.path));
    let (header, body) = match (header, body) {
        (None, None) => return Ok(()),
        (None, Some(_)) => return says("is missing although the argument is given"),
        (Some(_), None) => return says("is given although the argument is not"),
        (Some(header), Some(body)) => (header, body),
    };
    let Ok(header) = header.to_str() else {
        return says("holds invalid characters");
    };
    // White space around a value is no part of it (RFC 9110, 5.5).
    let Some(header) = headers::decode(header.trim_matches([' ', '\t'])) else {
        return says("is not valid base64");
    };
    if is_same(&header, body) {
        Ok(())
    } else {
        says("differs from the argument")
    }
}

/// The headers that mirror these arguments, for a client that has no headers of its own.
pub fn mirrored<'a>(
    tool: &'a Tool,
    arguments: Option<&'a RawValue>,
) -> impl Iterator<Item = (&'a str, String)> {
    tool.mirrored.iter().filter_map(move |mirrored| {
        let value = argument(arguments?, &mirrored.path)?;
        let text = string(value).unwrap_or_else(|| value.get().into());
        Some((&*mirrored.header, headers::encode(&text).into_owned()))
    })
}

/// Returns `true` if the arguments of a call are an object or absent. Some clients write null, and most servers take
/// it.
pub fn has_arguments_or_none(params: &Object<'_>) -> bool {
    let arguments = params.get("arguments");
    arguments.is_none_or(|raw| is_object(raw) || raw.get() == "null")
}

/// The argument at that path. `null` counts as absent.
fn argument<'a>(arguments: &'a RawValue, path: &[String]) -> Option<&'a RawValue> {
    let mut value = arguments;
    for key in path {
        value = Object::parse(value.get()).ok()?.get(key)?;
    }
    (value.get() != "null").then_some(value)
}

/// Returns `true` if another reader could find another argument at that path: of several members with one name, some
/// readers take the first and some the last.
fn is_ambiguous(arguments: &RawValue, path: &[String]) -> bool {
    let mut value = arguments;
    for key in path {
        let Ok(object) = Object::parse(value.get()) else {
            return false;
        };
        if object.is_ambiguous(&[key]) {
            return true;
        }
        let Some(inner) = object.get(key) else {
            return false;
        };
        value = inner;
    }
    false
}

fn is_same(header: &str, body: &RawValue) -> bool {
    if let Some(text) = string(body) {
        return *text == *header;
    }
    let text: Cow<'_, str> = body.get().into();
    if *text == *header {
        return true;
    }
    // Numbers are compared exactly: 42.0 equals 42, and 9007199254740993 differs from 9007199254740992,
    // although the two are the same float.
    match (Decimal::read(header), Decimal::read(&text)) {
        (Some(header), Some(body)) => header == body,
        (None, _) | (_, None) => false,
    }
}

/// A JSON number without loss: its digits from the first to the last that is not zero, and the power of ten
/// of the last digit.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Reads a number. `None`: the text is no JSON number, or its exponent is absurdly large.
    fn read(text: &str) -> Option<Self> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent_of(exponent)?),
            None => (text, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            // JSON has at least one digit behind the point.
            Some((_, "")) => return None,
            Some((whole, fraction)) => (whole, fraction),
            None => (mantissa, ""),
        };
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let has_padding = whole.len() > 1 && whole.starts_with('0');
        if whole.is_empty() || has_padding || !is_number(whole) || !is_number(fraction) {
            return None;
        }
        let all = [whole, fraction].concat();
        let digits = all.trim_end_matches('0');
        let zeros = i64::try_from(all.len() - digits.len()).ok()?;
        let exponent = exponent - i64::try_from(fraction.len()).ok()? + zeros;
        let digits = digits.trim_start_matches('0');
        // Zero gets one form, so that 0, -0, 0.0 and 0e5 are the same number.
        if digits.is_empty() {
            return Some(Self {
                is_negative: false,
                digits: String::new(),
                exponent: 0,
            });
        }
        Some(Self {
            is_negative,
            digits: digits.to_owned(),
            exponent,
        })
    }
}

/// At most nine digits, so that no sum overflows.
fn exponent_of(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let fits = (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.strip_prefix('+')
        .unwrap_or(text)
        .parse()
        .ok()
        .filter(|_| fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::tools::Tools;

    #[test]
    fn numbers_are_compared_exactly() {
        let is_same = |header: &str, body: &str| {
            is_same(header, &RawValue::from_string(body.to_owned()).unwrap())
        };
        for (header, body) in [
            ("42.0", "42"),
            ("4.2e1", "42"),
            ("-0.50", "-5E-1"),
            ("1e400", "10e399"),
            ("0", "-0.0"),
            ("12345678901234567890123", "12345678901234567890123.0"),
        ] {
            assert!(is_same(header, body), "{header} {body}");
        }
        for (header, body) in [
            ("9007199254740993", "9007199254740992"),
            ("0.1", "0.10000000000000000001"),
            ("1e999", "2e999"),
            ("42", "-42"),
            ("inf", "1e999"),
            ("+42", "42"),
            ("042", "42"),
            ("42.", "42"),
            (".5", "0.5"),
            ("", "0"),
            ("1e1000000000000", "1e1000000000001"),
            ("true", "1"),
        ] {
            assert!(!is_same(header, body), "{header} {body}");
        }
    }

    #[test]
    fn headers_mirror_arguments() {
        let mut tools = Tools::default();
        let list = r#"{"tools":[{"name":"t","inputSchema":{"properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}},
            "bad":{"x-mcp-header":"no token"}}}}]}"#;
        let list = RawValue::from_string(list.to_owned()).unwrap();
        assert_eq!(tools.add_page(&list).unwrap(), None);
        let tool = tools.get("t").unwrap();
        let ok = |arguments: &str, headers: &[(&'static str, &str)]| {
            let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, value.parse().unwrap());
            }
            check(tool, Some(&arguments), &map).is_ok()
        };
        assert!(ok("{}", &[]));
        assert!(ok(r#"{"region":null}"#, &[]));
        assert!(ok(r#"{"region":"eu"}"#, &[("mcp-param-region", "eu")]));
        assert!(ok(
            r#"{"region":" x"}"#,
            &[("mcp-param-region", "=?base64?IHg=?=")]
        ));
        assert!(ok(r#"{"deep":{"n":42}}"#, &[("mcp-param-n", "42.0")]));
        let eu = [("mcp-param-region", "eu")];
        for twice in [
            r#"{"region":"eu","region":"us"}"#,
            r#"{"region":"eu","r\u0065gion":"us"}"#,
            r#"{"region":"eu","Region":"us"}"#,
        ] {
            assert!(!ok(twice, &eu), "{twice}");
        }
        let n = [("mcp-param-n", "1")];
        assert!(!ok(r#"{"deep":{"n":1},"deep":{"n":2}}"#, &n));
        assert!(!ok(r#"{"deep":{"n":1,"n":2}}"#, &n));
        assert!(ok(r#"{"deep":{"n":1},"other":1,"other":2}"#, &n));
        assert!(!ok(r#"{"region":"eu"}"#, &[]));
        assert!(!ok(r#"{"region":"eu"}"#, &[("mcp-param-region", "us")]));
        assert!(!ok(r#"{"region":"eu"}"#, &[("mcp-param-region", "EU")]));
        assert!(!ok("{}", &[("mcp-param-region", "eu")]));
        assert!(!ok(
            r#"{"region":"x"}"#,
            &[("mcp-param-region", "=?base64?!?=")]
        ));
        assert!(!ok(
            r#"{"region":"x"}"#,
            &[("mcp-param-region", "x"), ("mcp-param-region", "x")]
        ));
    }
}
