//! Reading of one setting. The environment has only text and TOML has types, so every setting is parsed from its
//! text: `7` and `"7"` are the same.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::duration::{duration, size};
use super::secret::Secret;
use crate::task::input_rule::OnInputTimeout;
use crate::task::large_results::ResultInline;
use crate::task::policy::{InputWhen, Mode, OnOwnerLost};

/// A setting that is read from its text. The error may quote the text, so a secret must be a [`Secret`], which never
/// fails.
pub(super) trait FromText: Sized {
    /// Completes "must be ..".
    const KIND: &'static str;
    fn from_text(text: &str) -> Result<Self, String>;
}

/// Reads a setting that has a few possible words, each with its value.
macro_rules! words {
    (
        $setting:ty:
        $first:literal => $first_value:expr
        $(, $word:literal => $value:expr)*; or $last:literal => $last_value:expr
    ) => {
        impl $crate::config::scalar::FromText for $setting {
            const KIND: &'static str =
                concat!("\"", $first, "\"", $(", \"", $word, "\"",)* " or \"", $last, "\"");
            fn from_text(text: &str) -> Result<Self, String> {
                const ALL: &str =
                    concat!("\"", $first, "\"", $(", \"", $word, "\"",)* ", \"", $last, "\"");
                match text {
                    $first => Ok($first_value),
                    $($word => Ok($value),)*
                    $last => Ok($last_value),
                    _ => Err(format!("{text:?} is not one of {ALL}")),
                }
            }
        }
    };
}
pub(super) use words;

/// For `#[serde(deserialize_with)]`: a setting with a default.
pub(super) fn scalar<'de, T: FromText, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(Reader(PhantomData))
}

/// For `#[serde(deserialize_with)]`: a setting without a default.
pub(super) fn optional<'de, T: FromText, D>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
{
    scalar(from).map(Some)
}

/// For `#[serde(deserialize_with)]`: a list, or one text with commas (the environment has no
/// lists).
pub(super) fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_any(ListReader {
        separator: Some(','),
    })
}

/// For `#[serde(deserialize_with)]`: such a list without a default.
pub(super) fn optional_list<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<String>>, D::Error> {
    list(from).map(Some)
}

/// For `#[serde(deserialize_with)]`: a list, or one text with one element, because globs contain commas.
pub(super) fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_any(ListReader { separator: None })
}

struct Reader<T>(PhantomData<T>);

impl<T: FromText> Visitor<'_> for Reader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::KIND)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).map_err(E::custom)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        self.visit_str(if value { "true" } else { "false" })
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }
}

struct ListReader {
    separator: Option<char>,
}

impl<'de> Visitor<'de> for ListReader {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of texts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<String>, E> {
        // The environment has no lists, but people write them as in the file.
        if let Ok(all) = serde_json::from_str::<Vec<String>>(text) {
            return Ok(all);
        }
        if self.separator.is_some() && text.trim_start().starts_with('[') {
            let text = "is not a list; write one,two or [\"one\", \"two\"]";
            return Err(E::custom(text));
        }
        let Some(separator) = self.separator else {
            return Ok(vec![text.to_owned()]);
        };
        Ok(text
            .split(separator)
            .map(|part| part.trim().to_owned())
            .filter(|part| !part.is_empty())
            .collect())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<String>, A::Error> {
        let mut all = Vec::new();
        while let Some(text) = from.next_element()? {
            all.push(text);
        }
        Ok(all)
    }
}

impl FromText for String {
    const KIND: &'static str = "a text";
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl FromText for Secret {
    const KIND: &'static str = "a text";
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self::new(text))
    }
}

impl FromText for bool {
    const KIND: &'static str = "true or false";
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("{text:?} is neither true nor false"))
    }
}

impl FromText for usize {
    const KIND: &'static str = "a whole number";
    fn from_text(text: &str) -> Result<Self, String> {
        text.trim()
            .parse()
            .map_err(|_| format!("{text:?} is not a whole number"))
    }
}

impl FromText for Duration {
    const KIND: &'static str = r#"a duration such as "2s""#;
    fn from_text(text: &str) -> Result<Self, String> {
        duration(text)
    }
}

/// The value of a variable or a header. It may be a secret.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct SecretText(#[serde(deserialize_with = "scalar")] pub(super) Secret);
/// A setting that raincheck chooses for each client where the operator does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OrAuto<T> {
    Auto,
    Said(T),
}

impl<T> OrAuto<T> {
    /// Returns the operator's value. `None`: raincheck chooses.
    pub(super) fn said(self) -> Option<T> {
        match self {
            Self::Auto => None,
            Self::Said(value) => Some(value),
        }
    }
}

const AUTO: &str = "auto";

impl FromText for OrAuto<bool> {
    const KIND: &'static str = r#"true, false or "auto""#;
    fn from_text(text: &str) -> Result<Self, String> {
        if text == AUTO {
            return Ok(Self::Auto);
        }
        let said = text.parse().map(Self::Said);
        said.map_err(|_| format!("{text:?} is neither true, false nor \"auto\""))
    }
}

impl FromText for OrAuto<Duration> {
    const KIND: &'static str = r#""auto" or a duration such as "45s""#;
    fn from_text(text: &str) -> Result<Self, String> {
        if text == AUTO {
            return Ok(Self::Auto);
        }
        Duration::from_text(text).map(Self::Said)
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

impl FromText for Size {
    const KIND: &'static str = r#"a size such as "8MiB""#;
    fn from_text(text: &str) -> Result<Self, String> {
        size(text).map(Self)
    }
}

impl FromText for ResultInline {
    const KIND: &'static str = r#""auto", "off" or a size such as "64KiB""#;
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            AUTO => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => size(text).map(Self::Bytes),
        }
    }
}

words!(Mode: "auto" => Self::Auto, "always" => Self::Always; or "never" => Self::Never);

words!(OnOwnerLost: "resume" => Self::Resume, "rerun" => Self::Rerun; or "fail" => Self::Fail);

impl FromText for OnInputTimeout {
    const KIND: &'static str =
        r#""fail", "decline", "cancel" or an answer such as '{"sure": false}'"#;
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "fail" => Ok(Self::Fail),
            "decline" => Ok(Self::Decline),
            "cancel" => Ok(Self::Cancel),
            _ if is_object(text) => Ok(Self::Answer(text.into())),
            _ => Err(format!("{text:?} is not {}", Self::KIND)),
        }
    }
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(text).is_ok_and(|value| value.is_object())
}

words!(InputWhen: "in_task" => Self::InTask; or "before_task" => Self::BeforeTask);
