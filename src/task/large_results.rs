//! Large results: which of them clients get as an excerpt, and the names under which clients read the rest.

use std::fmt;

use super::id::TaskId;
use crate::mcp::excerpt::{Rest, excerpt};

/// The beginning of every name of ours. A server that has such a resource itself cannot be asked for it.
const SCHEME: &str = "raincheck://task/";

/// The size above which a client with companion tools gets an excerpt, where the operator has set nothing else.
const COMPANION_BYTES: u64 = 64 << 10;

/// The size counts the text. The JSON around it may have so many bytes more.
const ENVELOPE_BYTES: u64 = 1024;

/// The number of bytes that a reader gets at once if it requests no number: a model can bear it.
pub const RANGE_BYTES: usize = 16 << 10;

/// The largest number of bytes that a reader gets at once.
pub const RANGE_BYTES_MAX: usize = 1 << 20;

/// Which results go to clients as an excerpt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResultInline {
    /// As each kind of client needs.
    #[default]
    Auto,
    /// None: every result goes whole.
    Off,
    /// Those of more than so many bytes, for all clients.
    Bytes(u64),
}

impl ResultInline {
    /// The largest result that goes whole to clients that know tasks, or wait for the answer. `None`: any.
    pub fn for_clients(self) -> Option<u64> {
        match self {
            Self::Auto | Self::Off => None,
            Self::Bytes(bytes) => Some(bytes),
        }
    }

    /// The largest result that `task_result` gives whole. `None`: any.
    pub fn for_companion_tools(self) -> Option<u64> {
        match self {
            Self::Auto => Some(COMPANION_BYTES),
            Self::Off | Self::Bytes(_) => self.for_clients(),
        }
    }
}

/// The way a client can get the rest of a result.
#[derive(Debug, Clone, Copy)]
pub enum ReadHint<'w> {
    /// It reads a resource.
    Resource {
        /// The client knows content of the type `resource_link`.
        knows_links: bool,
    },
    /// It calls this tool, whose results it checks against no schema.
    Tool(&'w str),
    /// It calls this tool. The result may be checked against the schema of another tool.
    ToolLater(&'w str),
}

/// Returns `true` if a result is too large to go whole.
pub fn is_large(result: &str, inline_bytes: u64) -> bool {
    result.len() as u64 > inline_bytes.saturating_add(ENVELOPE_BYTES)
}

/// The excerpt of the result of a task, if the result is larger than `inline_bytes`. `None`: it goes whole.
pub fn shortened(
    result: &str,
    inline_bytes: Option<u64>,
    task: TaskId,
    way: ReadHint<'_>,
) -> Option<String> {
    if !is_large(result, inline_bytes?) {
        return None;
    }
    let uri = ResultUri::whole(task).to_string();
    let ticket = task.to_string();
    let (tool, knows_links) = match way {
        ReadHint::Resource { knows_links } => (None, knows_links),
        ReadHint::Tool(tool) | ReadHint::ToolLater(tool) => (Some((tool, ticket.as_str())), false),
    };
    let rest = Rest {
        uri: &uri,
        tool,
        knows_links,
        keeps_structured: !matches!(way, ReadHint::Tool(_)),
    };
    excerpt(result, &rest)
}

/// The part of a result that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Its text, or all of it if it has no text.
    Text,
    /// All of it, as JSON.
    Json,
    /// One part of its content, by its place.
    Block(usize),
}

/// The name of a result, or of a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultUri {
    pub task: TaskId,
    pub part: Part,
    /// In bytes.
    pub offset: u64,
    /// `None`: what raincheck gives at once.
    pub limit: Option<u64>,
}

impl ResultUri {
    /// All of the result of a task.
    pub fn whole(task: TaskId) -> Self {
        Self {
            task,
            part: Part::Text,
            offset: 0,
            limit: None,
        }
    }

    /// Returns `true` if a URI is one of raincheck's own, so that no server is asked for it.
    pub fn is_ours(uri: &str) -> bool {
        uri.starts_with(SCHEME)
    }

    /// `None`: it names no result.
    pub fn parse(uri: &str) -> Option<Self> {
        let path = uri.strip_prefix(SCHEME)?;
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut named = Self::whole(TaskId::parse(path.strip_suffix("/result")?)?);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=')?;
            match key {
                "offset" => named.offset = value.parse().ok()?,
                "limit" => named.limit = Some(value.parse().ok()?),
                "block" => named.part = Part::Block(value.parse().ok()?),
                "as" if value == "json" => named.part = Part::Json,
                // With an unknown member ignored, a part that this version does not have would be answered with
                // another part.
                _ => return None,
            }
        }
        Some(named)
    }

    /// Returns the number of bytes that are read at once.
    pub fn limit(&self) -> usize {
        limit(self.limit)
    }
}

/// Returns the number of bytes that are read at once for a reader that requests this number.
pub fn limit(wanted: Option<u64>) -> usize {
    let wanted = wanted.map_or(RANGE_BYTES, |it| usize::try_from(it).unwrap_or(usize::MAX));
    wanted.clamp(1, RANGE_BYTES_MAX)
}

impl fmt::Display for ResultUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/result", self.task)?;
        let mut mark = '?';
        let mut pair = |f: &mut fmt::Formatter<'_>, key: &str, value: &dyn fmt::Display| {
            let mark = std::mem::replace(&mut mark, '&');
            write!(f, "{mark}{key}={value}")
        };
        match self.part {
            Part::Text => {}
            Part::Json => pair(f, "as", &"json")?,
            Part::Block(place) => pair(f, "block", &place)?,
        }
        if self.offset > 0 {
            pair(f, "offset", &self.offset)?;
        }
        match self.limit {
            Some(limit) => pair(f, "limit", &limit),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3ad6b4fd-737e-47b0-aa3e-9980ad6444a1";

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let uri = |query: &str| format!("raincheck://task/{ID}/result{query}");
        for query in [
            "",
            "?offset=7",
            "?limit=9",
            "?offset=7&limit=9",
            "?block=2",
            "?as=json&offset=5",
        ] {
            assert!(ResultUri::is_ours(&uri(query)));
            assert_eq!(
                ResultUri::parse(&uri(query)).unwrap().to_string(),
                uri(query)
            );
        }
        let other_order = ResultUri::parse(&uri("?limit=9&offset=7")).unwrap();
        assert_eq!((other_order.offset, other_order.limit()), (7, 9));
        for wrong in ["?offset=-1", "?offset", "?as=xml", "?x=1", "/", "s"] {
            assert!(ResultUri::is_ours(&uri(wrong)));
            assert_eq!(ResultUri::parse(&uri(wrong)), None, "{wrong}");
        }
        assert_eq!(ResultUri::parse("raincheck://task/x/result"), None);
        assert!(!ResultUri::is_ours("raincheck://tasks/x/result"));
        assert_eq!(limit(None), RANGE_BYTES);
        assert_eq!(
            (limit(Some(0)), limit(Some(u64::MAX))),
            (1, RANGE_BYTES_MAX)
        );
    }

    #[test]
    fn each_kind_of_client_has_its_size() {
        for (said, clients, companion_tools) in [
            (ResultInline::Auto, None, Some(64 << 10)),
            (ResultInline::Off, None, None),
            (ResultInline::Bytes(7), Some(7), Some(7)),
        ] {
            assert_eq!(said.for_clients(), clients);
            assert_eq!(said.for_companion_tools(), companion_tools);
        }
    }

    #[test]
    fn what_is_small_enough_goes_whole() {
        let text = "x".repeat(8000);
        let result = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
        let id = TaskId::parse(ID).unwrap();
        let way = ReadHint::Resource { knows_links: true };
        let shortened = |bytes| shortened(&result, bytes, id, way);
        let bytes = result.len() as u64 - ENVELOPE_BYTES;
        assert!(shortened(None).is_none() && shortened(Some(bytes)).is_none());
        let excerpt = shortened(Some(bytes - 1)).unwrap();
        assert!(excerpt.contains(&format!("raincheck://task/{ID}/result?offset=1400")));
    }
}
