//! The last line of a process: why it ends. No filter holds it back, so it is no event.

use super::form::LineForm;
use super::stamp::Stamp;
use crate::base::printable::{printable_json, printable_lines};
use crate::mcp::json::quote;

/// The target by which the line is found, beside its level.
const TARGET: &str = "raincheck";

/// The line for people, who may have no log.
pub fn plain(text: &str) -> String {
    format!("raincheck: {}\n", printable_lines(text))
}

/// The line in the form of the log: a reader of JSON takes no other line.
pub(super) fn line(form: LineForm, text: &str, now_ns: u64) -> String {
    match form {
        LineForm::Text | LineForm::Coloured => plain(text),
        LineForm::Json => {
            let mut stamp = Stamp::default();
            let (time, text) = (String::from_utf8_lossy(stamp.of(now_ns)), quote(text));
            let text = printable_json(&text);
            format!(
                "{{\"timestamp\":\"{time}\",\"level\":\"ERROR\",\"message\":{text},\"target\":\"{TARGET}\"}}\n"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tracing::error;
    use tracing::subscriber::with_default;
    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::super::form::layer;
    use super::super::written::Written;
    use super::*;

    #[test]
    fn as_json_it_looks_like_every_other_line() {
        let text = "config.toml: store.url: \"redis\\\" is no URL\nnor \u{9b} this";
        let written = Written::default();
        let to = written.clone();
        let log = Registry::default().with(layer(LineForm::Json, move || to.clone()));
        with_default(log, || error!(target: TARGET, "{text}"));
        let event: Value = serde_json::from_str(&written.text()).unwrap();
        let said = line(LineForm::Json, text, 1_785_196_800_123_456_789);
        assert!(said.ends_with("}\n"));
        let mut said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["timestamp"], "2026-07-28T00:00:00.123456Z");
        said["timestamp"] = event["timestamp"].clone();
        assert_eq!(said, event);
    }

    #[test]
    fn as_text_it_names_the_program() {
        for form in [LineForm::Text, LineForm::Coloured] {
            assert_eq!(line(form, "it ends", 0), "raincheck: it ends\n");
        }
    }
}
