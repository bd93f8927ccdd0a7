//! The rest of a result that came as an excerpt. A file, or a program behind a pipe, gets the whole result.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use super::server::read_request;
use crate::mcp::error::code;
use crate::mcp::excerpt::rest_of;
use crate::mcp::result;
use crate::mcp::version::Era;
use crate::task::large_results::{Part, RANGE_BYTES_MAX, ResultUri};
use crate::task::ranges::{ReadRange, read_range};
use crate::upstream::wrapped::{DiscoverError, Upstream};

/// A larger result is not held in memory.
const BYTES_MAX: u64 = 256 << 20;

/// The largest number of ranges that are read. raincheck gives the largest result in about half as many.
const RANGES_MAX: u64 = 2 * BYTES_MAX / RANGE_BYTES_MAX as u64;

/// The time that the server may take for one range.
const READING: Duration = Duration::from_secs(30);

/// The pause before a range is asked for once more.
const PAUSE: Duration = Duration::from_secs(1);

/// The name of the whole result. `None`: the result is whole.
pub(super) fn whole_of(result: &RawValue) -> Option<ResultUri> {
    let named = ResultUri::parse(&rest_of(result.get())?)?;
    Some(ResultUri {
        part: Part::Json,
        limit: Some(RANGE_BYTES_MAX as u64),
        ..ResultUri::whole(named.task)
    })
}

/// Reads the whole result in ranges. An error is a sentence about the failure, for the user.
pub(super) async fn read_whole(
    upstream: &Upstream,
    whole: ResultUri,
) -> Result<Box<RawValue>, String> {
    let ask = async |uri| upstream.ask(Era::Modern, read_request(&uri)).await;
    let read = in_ranges(whole, ask).await;
    read.map_err(|why| why.sentence(whole))
}

/// Returns the message if a person presses Ctrl-C meanwhile.
pub(super) fn interrupted(whole: ResultUri) -> String {
    format!(
        "the rest of the result was not read; {}",
        how_to_read(whole)
    )
}

/// Why there is no whole result.
#[derive(Debug)]
enum ReadRestError {
    /// The server does not have it, in the server's words.
    Gone(String),
    Failed(String),
    TooLarge,
}

impl ReadRestError {
    fn sentence(&self, whole: ResultUri) -> String {
        let how = how_to_read(whole);
        match self {
            Self::Gone(why) => {
                format!("the result came as an excerpt, and its rest is gone: {why}")
            }
            Self::Failed(why) => {
                format!("the result came as an excerpt, and its rest was not read: {why}; {how}")
            }
            Self::TooLarge => {
                let mib = BYTES_MAX >> 20;
                format!("the result is larger than {mib} MiB, and its rest was not read; {how}")
            }
        }
    }

    fn no_ranges() -> Self {
        Self::Failed("the server does not give it in ranges".to_owned())
    }
}

impl From<DiscoverError> for ReadRestError {
    fn from(error: DiscoverError) -> Self {
        let said = |error: &RawValue| {
            let message = result::error_message(error).unwrap_or_default();
            format!("the server answered: {message}")
        };
        let not_found = [code::INVALID_PARAMS, code::LEGACY_RESOURCE_NOT_FOUND];
        match error {
            DiscoverError::Refused(error)
                if result::error_code(&error.error).is_some_and(|it| not_found.contains(&it)) =>
            {
                Self::Gone(said(&error.error))
            }
            DiscoverError::Refused(error) | DiscoverError::Unauthorized(error) => {
                Self::Failed(said(&error.error))
            }
            DiscoverError::Failed(failure) => Self::Failed(failure.sentence().to_owned()),
        }
    }
}

fn how_to_read(whole: ResultUri) -> String {
    format!("read {}", ResultUri::whole(whole.task))
}

async fn in_ranges(
    mut range: ResultUri,
    ask: impl AsyncFn(Arc<str>) -> Result<Box<RawValue>, DiscoverError>,
) -> Result<Box<RawValue>, ReadRestError> {
    let mut text = String::new();
    for _ in 0..RANGES_MAX {
        // A read changes nothing, so it can be repeated.
        let read = match read_one(range, &ask).await {
            Err(ReadRestError::Failed(_)) => {
                sleep(PAUSE).await;
                read_one(range, &ask).await?
            }
            read => read?,
        };
        // The first range shows the size already, so that little of a result that is too large is in memory.
        if read.total > BYTES_MAX {
            return Err(ReadRestError::TooLarge);
        }
        text.push_str(&read.text);
        match read.next {
            Some(next) => range.offset = next,
            None => return RawValue::from_string(text).map_err(|_| ReadRestError::no_ranges()),
        }
    }
    // A server that gives ever smaller ranges would keep the command reading for ever.
    Err(ReadRestError::no_ranges())
}

async fn read_one(
    range: ResultUri,
    ask: impl AsyncFn(Arc<str>) -> Result<Box<RawValue>, DiscoverError>,
) -> Result<ReadRange, ReadRestError> {
    let read = timeout(READING, ask(range.to_string().into())).await;
    let read = read.map_err(|_| {
        let seconds = READING.as_secs();
        ReadRestError::Failed(format!("no answer within {seconds} s"))
    })??;
    read_range(read.get(), range.offset).ok_or_else(ReadRestError::no_ranges)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::mcp::error::{Failure, Reason, SideEffect};
    use crate::task::ranges::as_resource;
    use crate::upstream::UpstreamError;

    const ID: &str = "3ad6b4fd-737e-47b0-aa3e-9980ad6444a1";

    fn raw(json: &serde_json::Value) -> Box<RawValue> {
        RawValue::from_string(json.to_string()).unwrap()
    }

    fn whole(limit: u64) -> ResultUri {
        let named = ResultUri::parse(&format!("raincheck://task/{ID}/result")).unwrap();
        ResultUri {
            part: Part::Json,
            limit: Some(limit),
            ..named
        }
    }

    fn failed() -> DiscoverError {
        DiscoverError::Failed(Failure::new(Reason::UpstreamReset, SideEffect::None))
    }

    fn refused(code: i64) -> DiscoverError {
        DiscoverError::Refused(UpstreamError {
            status: 200,
            error: raw(&json!({"code": code, "message": "no"})),
            www_authenticate: None,
        })
    }

    /// The answer to the read of a name.
    fn range_of(result: &str, uri: &str) -> Box<RawValue> {
        let named = ResultUri::parse(uri).unwrap();
        let read = as_resource(uri, &named, result, Era::Modern).unwrap();
        RawValue::from_string(read).unwrap()
    }

    /// Returns the printed text, and the number of requests to the server.
    async fn ends(
        answer: impl AsyncFn(usize) -> Result<Box<RawValue>, DiscoverError>,
    ) -> (String, usize) {
        let asked = Cell::new(0);
        let ask = async |_| {
            asked.set(asked.get() + 1);
            answer(asked.get()).await
        };
        let why = in_ranges(whole(9), ask).await.unwrap_err();
        (why.sentence(whole(9)), asked.get())
    }

    #[test]
    fn only_an_excerpt_has_a_rest() {
        let uri = format!("raincheck://task/{ID}/result");
        let excerpt = json!({"content": [], "_meta": {"io.raincheck/excerpt": uri}});
        let named = whole_of(&raw(&excerpt)).unwrap().to_string();
        assert_eq!(named, format!("{uri}?as=json&limit=1048576"));
        let link = json!({"content": [{"type": "resource_link", "uri": uri}], "_meta": {}});
        assert_eq!(whole_of(&raw(&link)), None);
        let other = json!({"_meta": {"io.raincheck/excerpt": "file:///a"}});
        assert_eq!(whole_of(&raw(&other)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_range_that_fails_is_asked_for_once_more() {
        let result = json!({"content": [{"type": "text", "text": "aä€😀".repeat(20)}]}).to_string();
        let asked = Cell::new(0);
        let ask = async |uri: Arc<str>| {
            asked.set(asked.get() + 1);
            if asked.get() % 2 == 1 {
                return Err(failed());
            }
            Ok(range_of(&result, &uri))
        };
        let read = in_ranges(whole(9), ask).await.unwrap();
        assert_eq!(read.get(), result);
        assert!(asked.get() > 20, "{}", asked.get());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_read_says_how_to_read_it() {
        let began = Instant::now();
        let how = format!("; read raincheck://task/{ID}/result");
        let gap = json!({"contents": [{"text": "a"}], "_meta": {"io.raincheck/range": {
            "offset": 0, "total": 9, "nextOffset": 3,
        }}});
        let large = json!({"contents": [{"text": "a"}], "_meta": {"io.raincheck/range": {
            "offset": 0, "total": BYTES_MAX + 1, "nextOffset": 1,
        }}});
        for ((said, times), part, expected) in [
            (ends(async |_| Err(failed())).await, "was not read: ", 2),
            (
                ends(async |_| Err(refused(-32603))).await,
                "was not read: the server answered: no",
                2,
            ),
            (ends(async |_| Ok(raw(&gap))).await, "in ranges", 2),
            (
                ends(async |_| Ok(raw(&large))).await,
                "larger than 256 MiB",
                1,
            ),
        ] {
            assert!(said.contains(part) && said.ends_with(&how), "{said}");
            assert_eq!(times, expected, "{said}");
        }
        assert!(interrupted(whole(9)).ends_with(&how));
        assert!(Instant::now() - began < READING);
        let (said, _) = ends(async |_| std::future::pending().await).await;
        assert!(
            said.contains("within 30 s") && said.ends_with(&how),
            "{said}"
        );
        assert!(Instant::now() - began < 3 * READING);
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_the_server_does_not_have_is_gone() {
        for code in [-32602, -32002] {
            let (said, times) = ends(async |_| Err(refused(code))).await;
            assert!(said.ends_with("its rest is gone: the server answered: no"));
            assert_eq!(times, 1, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_comes_to_an_end_is_left() {
        let (said, times) = ends(async |times| {
            let numbers = json!({"offset": times - 1, "total": BYTES_MAX, "nextOffset": times});
            let contents = json!([{"text": "a"}]);
            Ok(raw(
                &json!({"contents": contents, "_meta": {"io.raincheck/range": numbers}}),
            ))
        })
        .await;
        assert!(said.contains("in ranges"), "{said}");
        assert_eq!(times as u64, RANGES_MAX);
    }
}
