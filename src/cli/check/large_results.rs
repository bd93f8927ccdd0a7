//! The lines of `check` for large results: the setting of each rule, and the form that one client gets.

use crate::config::size_text;
use crate::task::clients::Choice;
use crate::task::large_results::ResultInline;

/// The setting as it is written in the file.
pub(super) fn setting(inline: ResultInline) -> String {
    match inline {
        ResultInline::Auto => "auto".to_owned(),
        ResultInline::Off => "off".to_owned(),
        ResultInline::Bytes(bytes) => size_text(bytes),
    }
}

/// Returns the form in which a client gets a large result. `has_ours`: the client has companion tools.
pub(super) fn gets(inline: ResultInline, has_ours: bool) -> Choice<String> {
    let inline_bytes = if has_ours {
        inline.for_companion_tools()
    } else {
        inline.for_clients()
    };
    let why = match (inline, has_ours) {
        (ResultInline::Auto, false) => "\"auto\" shortens only what task_result gives",
        (ResultInline::Auto, true) => {
            "its model reads the rest with task_result; what comes before a ticket goes whole"
        }
        (ResultInline::Off, _) => "the settings say so",
        (ResultInline::Bytes(_), false) => {
            "the settings say so; the rest is read by resources/read"
        }
        (ResultInline::Bytes(_), true) => "the settings say so; the rest is read with task_result",
    };
    let value = match inline_bytes {
        None => "whole".to_owned(),
        Some(bytes) => format!("excerpt above {}", size_text(bytes)),
    };
    Choice { value, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_client_is_told_of_apart() {
        for (inline, written, [without, with]) in [
            (ResultInline::Auto, "auto", ["whole", "excerpt above 64KiB"]),
            (ResultInline::Off, "off", ["whole", "whole"]),
            (
                ResultInline::Bytes(5000),
                "5000",
                ["excerpt above 5000", "excerpt above 5000"],
            ),
        ] {
            assert_eq!(setting(inline), written);
            assert_eq!(gets(inline, false).value, without);
            assert_eq!(gets(inline, true).value, with);
        }
    }
}
