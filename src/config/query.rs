//! `upstream.forward_query`: the parameters of a client's query that go to the server.

use url::form_urlencoded;

use super::problem::Problem;
use super::server::Wrapped;
use crate::base::printable::is_printable;

/// A longer name is a mistake.
const NAME_BYTES_MAX: usize = 256;

/// Reads the names. A parameter of `upstream.url` cannot be a client's, too.
pub(super) fn forwarded(written: &[String], server: &Wrapped) -> Result<Vec<String>, Problem> {
    let own = match server {
        Wrapped::Url(url) => url.query(),
        Wrapped::Unix(socket) => socket.path.query(),
        Wrapped::Command(_) => None,
    };
    // Some servers separate parameters by ";", too.
    let own = own.unwrap_or_default().split(';');
    let own: Vec<_> = own
        .flat_map(|part| form_urlencoded::parse(part.as_bytes()))
        .collect();
    for name in written {
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        let text = if !is_name || name.contains(|c: char| !is_printable(c) || "&;=?#%".contains(c))
        {
            "is not the name of a parameter; write \"tenant\", not encoded"
        } else if own.iter().any(|(set, _)| set.eq_ignore_ascii_case(name)) {
            "is set in upstream.url, and no client replaces it; take it out here or there"
        } else {
            continue;
        };
        let text = format!("{name:?} {text}");
        return Err(Problem::new("upstream.forward_query", text));
    }
    Ok(written.to_vec())
}
