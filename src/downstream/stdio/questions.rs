//! The requests of the server that wait for the client. After the end of its input the client can answer none of them, so the
//! server gets an error in place of each answer, and the calls that wait for the answers go on.

use std::collections::HashSet;

use crate::base::lock::Mutex;
use crate::mcp::envelope;
use crate::mcp::error::RpcError;
use crate::mcp::json::Object;

/// The most requests that are remembered. A call that waits for the answer to a further one ends when raincheck waits no
/// longer.
const OPEN_MAX: usize = 1024;

/// The ids of the server's open requests, as JSON.
#[derive(Debug)]
pub(super) struct ServerRequests {
    /// `None`: the input has ended.
    open: Mutex<Option<HashSet<Box<str>>>>,
}

impl Default for ServerRequests {
    fn default() -> Self {
        Self {
            open: Mutex::new(Some(HashSet::new())),
        }
    }
}

impl ServerRequests {
    /// Remembers the message if it is a request. Returns the answer to a request that the client cannot answer.
    pub(super) fn asked(&self, message: &str) -> Option<String> {
        let object = Object::parse(message).ok()?;
        let (method, id) = (object.get_str("method")?, object.get("id")?.get());
        let mut open = self.open.lock();
        let Some(open) = open.as_mut() else {
            return Some(match &*method {
                // A ping asks nothing of the client, so it succeeds without one.
                "ping" => envelope::result(id, "{}"),
                _ => refusal(id),
            });
        };
        if open.len() < OPEN_MAX {
            open.insert(id.into());
        }
        None
    }

    pub(super) fn answered(&self, id: &str) {
        if let Some(open) = self.open.lock().as_mut() {
            open.remove(id);
        }
    }

    /// The input has ended. Returns the answers to all open requests.
    pub(super) fn end(&self) -> Vec<String> {
        // `None` from now on: `asked` refuses later requests at once, and none waits without a client.
        let open = self.open.lock().take();
        open.iter().flatten().map(|id| refusal(id)).collect()
    }
}

fn refusal(id: &str) -> String {
    let error = RpcError::internal("The client has closed its input, and can answer nothing more");
    envelope::error(id, &error.to_json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_request_is_refused_once() {
        let requests = ServerRequests::default();
        let ask = |id: &str, method: &str| requests.asked(&envelope::request(id, method, None));
        assert_eq!(ask("1", "elicitation/create"), None);
        assert_eq!(ask("\"a\"", "roots/list"), None);
        assert_eq!(requests.asked(r#"{"method":"notifications/x"}"#), None);
        assert_eq!(requests.asked(r#"{"id":3,"result":{}}"#), None);
        requests.answered("1");
        let refused = requests.end();
        assert!(
            matches!(refused.as_slice(), [one] if one.contains(r#""id":"a""#) && one.contains("error")),
            "{refused:?}"
        );
        assert_eq!(requests.end(), Vec::<String>::new());
        let late = ask("4", "sampling/createMessage").unwrap();
        assert!(
            late.contains(r#""id":4"#) && late.contains("error"),
            "{late}"
        );
        assert!(ask("5", "ping").unwrap().contains(r#""result":{}"#));
    }
}
