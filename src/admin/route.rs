//! Routes a request to the admin listener by its method and path. Pure.

use hyper::Method;

use super::board::BoardFile;

/// The answer to every other path.
pub(super) const PATHS: &str = "not here: this listener (admin.listen) has GET / (a page), /livez, /readyz, /metrics, /config, /level, \
                                /events, /about, \
                                /tasks, /tasks/ID, /tools, /tools/stats; POST /tasks/ID/cancel, /tasks/ID/answer, /tasks/ID/ack, /tasks/ID/rerun, /tools/pause, /tools/resume, \
                                /level, /reload, /drain";

/// A request from an operator.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AdminRequest {
    Board(&'static BoardFile),
    Live,
    Ready,
    Metrics,
    Events,
    Config,
    About,
    Tasks,
    Task(String),
    Cancel(String),
    Answer(String),
    Acknowledge(String),
    Rerun(String),
    Tools,
    Stats,
    Pause,
    Resume,
    Level,
    SetLevel,
    Reload,
    Drain,
}

/// Where a request leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Routed {
    Request(AdminRequest),
    /// The path has these methods, and not the one of the request.
    Only(&'static str),
    Nothing,
}

pub(super) fn route(method: &Method, path: &str) -> Routed {
    // The path begins with a slash, so the first part is empty.
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (get, post) = match parts.as_slice() {
        ["" | "board"] => (Some(AdminRequest::Board(BoardFile::page())), None),
        ["board", name] => match BoardFile::named(name) {
            Some(file) => (Some(AdminRequest::Board(file)), None),
            None => return Routed::Nothing,
        },
        ["livez"] => (Some(AdminRequest::Live), None),
        ["readyz"] => (Some(AdminRequest::Ready), None),
        ["metrics"] => (Some(AdminRequest::Metrics), None),
        ["events"] => (Some(AdminRequest::Events), None),
        ["config"] => (Some(AdminRequest::Config), None),
        ["about"] => (Some(AdminRequest::About), None),
        ["tasks"] => (Some(AdminRequest::Tasks), None),
        ["tasks", id] if !id.is_empty() => (Some(AdminRequest::Task((*id).into())), None),
        ["tasks", id, "cancel"] => (None, Some(AdminRequest::Cancel((*id).into()))),
        ["tasks", id, "answer"] => (None, Some(AdminRequest::Answer((*id).into()))),
        ["tasks", id, "ack"] => (None, Some(AdminRequest::Acknowledge((*id).into()))),
        ["tasks", id, "rerun"] => (None, Some(AdminRequest::Rerun((*id).into()))),
        ["tools"] => (Some(AdminRequest::Tools), None),
        ["tools", "stats"] => (Some(AdminRequest::Stats), None),
        ["tools", "pause"] => (None, Some(AdminRequest::Pause)),
        ["tools", "resume"] => (None, Some(AdminRequest::Resume)),
        ["level"] => (Some(AdminRequest::Level), Some(AdminRequest::SetLevel)),
        ["reload"] => (None, Some(AdminRequest::Reload)),
        ["drain"] => (None, Some(AdminRequest::Drain)),
        _ => return Routed::Nothing,
    };
    let methods = match (&get, &post) {
        (Some(_), Some(_)) => "GET, POST",
        (Some(_), None) => "GET",
        (None, _) => "POST",
    };
    let asked = match *method {
        Method::GET => get,
        Method::POST => post,
        _ => None,
    };
    asked.map_or(Routed::Only(methods), Routed::Request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_methods() {
        let get = |path| route(&Method::GET, path);
        let post = |path| route(&Method::POST, path);
        assert_eq!(get("/tasks"), Routed::Request(AdminRequest::Tasks));
        let one = AdminRequest::Task("0a1b".into());
        assert_eq!(get("/tasks/0a1b"), Routed::Request(one));
        let cancel = AdminRequest::Cancel("0a1b".into());
        assert_eq!(post("/tasks/0a1b/cancel"), Routed::Request(cancel));
        assert_eq!(get("/tasks/0a1b/cancel"), Routed::Only("POST"));
        assert_eq!(post("/level"), Routed::Request(AdminRequest::SetLevel));
        assert_eq!(route(&Method::DELETE, "/level"), Routed::Only("GET, POST"));
        assert_eq!(get("/tools"), Routed::Request(AdminRequest::Tools));
        assert_eq!(post("/tools/pause"), Routed::Request(AdminRequest::Pause));
        assert_eq!(get("/tools/stats"), Routed::Request(AdminRequest::Stats));
        assert_eq!(get("/tools/resume"), Routed::Only("POST"));
        assert_eq!(get("/drain"), Routed::Only("POST"));
        let page = || Routed::Request(AdminRequest::Board(BoardFile::page()));
        assert_eq!((get("/"), get("/board")), (page(), page()));
        assert_eq!(post("/"), Routed::Only("GET"));
        for path in [
            "",
            "/tasks/",
            "/tasks/a/b",
            "/livez/",
            "/mcp",
            "/board/",
            "/board/board.html",
            "/board/../config",
        ] {
            assert_eq!(get(path), Routed::Nothing, "{path}");
        }
    }
}
