//! The line of the table of clients for a modern client, which identifies itself with each request.

use std::cell::RefCell;

use serde_json::value::RawValue;

use crate::task::clients::KnownClient;

/// A longer text is looked up each time.
const REMEMBERED_BYTES_MAX: usize = 1024;

thread_local! {
    /// The last lookup. Most requests come from the same few clients, and to look up costs as much as to read
    /// `_meta`.
    static LAST: RefCell<LastLookup> = const { RefCell::new(LastLookup { info: String::new(), client: None }) };
}

struct LastLookup {
    info: String,
    client: Option<&'static KnownClient>,
}

/// Returns the line for a client's description of itself (`clientInfo`).
pub(in crate::downstream) fn of(info: &RawValue) -> Option<&'static KnownClient> {
    let text = info.get();
    if text.len() > REMEMBERED_BYTES_MAX {
        return KnownClient::of_info(info);
    }
    LAST.with_borrow_mut(|last| {
        if last.info != text {
            last.client = KnownClient::of_info(info);
            text.clone_into(&mut last.info);
        }
        last.client
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::json::raw;

    #[test]
    fn each_client_gets_its_own_line_whoever_came_before() {
        let infos = [
            r#"{"name":"opencode","version":"1.18.33"}"#,
            r#"{"name":"nobody","version":"1"}"#,
            r#"{"name":"claude-code","version":"2.1.330"}"#,
        ];
        for info in infos.iter().chain(&infos).flat_map(|info| [info, info]) {
            let info = raw((*info).to_owned()).unwrap();
            assert_eq!(of(&info), KnownClient::of_info(&info), "{info}");
        }
    }
}
