//! The values in the query of an operator. Pure. Each error is a sentence for the operator.

use crate::task::history::Moment;
use crate::task::id::TaskId;

/// The shortest beginning of an id that finds a task.
const PREFIX_MIN: usize = 4;

/// The one of these words, or an error that names them all.
pub(super) fn word<T: Copy>(key: &str, text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("{key}={text} is unknown; there are {}", known.join(", "))
    })
}

/// The beginning of an id, as the log writes it, too.
pub(super) fn beginning(text: &str) -> Result<String, String> {
    // The log writes dots behind the beginning of an id, and operators copy it from there.
    let beginning = text.trim_end_matches('.').to_ascii_lowercase();
    let is_hex = |c: char| c.is_ascii_hexdigit() || c == '-';
    if beginning.len() < PREFIX_MIN || !beginning.chars().all(is_hex) {
        return Err(format!(
            "{text:?} is no task id, nor the first {PREFIX_MIN} characters of one"
        ));
    }
    Ok(beginning)
}

/// The text of a place in the history, which [`place`] reads.
pub(super) fn place_text((ended_ms, id): (u64, TaskId)) -> String {
    format!("{ended_ms}-{id}")
}

pub(super) fn place(text: &str) -> Result<(u64, TaskId), String> {
    let parts = text.split_once('-');
    let place = parts.and_then(|(ended_ms, id)| Some((ended_ms.parse().ok()?, TaskId::parse(id)?)));
    place.ok_or_else(|| format!("after={text} is not what \"next\" of a list was"))
}

/// Reads a number of seconds ago, or a time in UTC: as much of it as there is of `2026-11-30T08:00:00.000Z`, at least the day.
pub(super) fn moment(key: &str, text: &str) -> Result<Moment, String> {
    const TIME: &str = "0000-00-00T00:00:00.000Z";
    // A larger number is rather a time in another form.
    const AGO_MAX: u64 = 366 * 86_400;
    if let Some(seconds) = text
        .parse()
        .ok()
        .filter(|seconds: &u64| *seconds <= AGO_MAX)
    {
        return Ok(Moment::Ago(seconds.saturating_mul(1000)));
    }
    let like = |(a, b): (u8, u8)| {
        if b == b'0' {
            a.is_ascii_digit()
        } else {
            a == b
        }
    };
    // Without its fraction a time may end with its zone, too.
    let beginning = text.strip_suffix('Z').filter(|text| !text.contains('.'));
    let text = beginning.unwrap_or(text);
    let is_time =
        (10..=TIME.len()).contains(&text.len()) && text.bytes().zip(TIME.bytes()).all(like);
    // As far as it is written, each part is within its bounds.
    let part = |at: usize, least: u8, most: u8| {
        let number = text.get(at..at + 2).map(str::parse::<u8>);
        number.is_none_or(|number| number.is_ok_and(|number| (least..=most).contains(&number)))
    };
    if is_time
        && part(5, 1, 12)
        && part(8, 1, 31)
        && part(11, 0, 23)
        && part(14, 0, 59)
        && part(17, 0, 59)
    {
        return Ok(Moment::At(text.to_owned()));
    }
    Err(format!(
        "{key}={text} is neither a number of seconds (on the command line, 24h) nor a time in UTC, such as 2026-11-30T08:00"
    ))
}

pub(super) fn seconds(key: &str, text: &str) -> Result<u64, String> {
    let seconds = text.parse();
    seconds.map_err(|_| {
        format!(
            "{key}={text} is not a number of seconds; on the command line, write 90s, 10m or 2h"
        )
    })
}

fn number(key: &str, text: &str) -> Result<u64, String> {
    let number = text.parse();
    number.map_err(|_| format!("{key}={text} is not a whole number"))
}

pub(super) fn size(key: &str, text: &str) -> Result<usize, String> {
    number(key, text).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_read_as_the_log_writes_it() {
        assert_eq!(beginning("3FA9.."), Ok("3fa9".to_owned()));
        assert!(beginning("3fa").is_err() && beginning("build").is_err());
    }

    #[test]
    fn a_day_that_is_in_no_calendar_is_refused() {
        for good in ["2026-12-31", "2026-11-30T23:59:59.999Z", "2026-11-30T2"] {
            assert!(moment("since", good).is_ok(), "{good}");
        }
        for wrong in [
            "2026-13-01",
            "2026-12-32",
            "2026-12-01T24:00",
            "2026-12-01T00:60",
        ] {
            assert!(moment("since", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let here = (7, TaskId::random());
        assert_eq!(place(&place_text(here)), Ok(here));
        assert!(place("7").is_err() && place("7-x").is_err());
    }
}
