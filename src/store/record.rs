//! The stored form of a task: a format number, a space, JSON.
//!
//! A newer format only adds fields, so that an older program still reads the fields that it knows.

use std::io;

use bytes::Bytes;

use super::error::StoreError;
use crate::task::state::Task;

/// The newest format that this program reads, which it [shows](crate::task::id::Incarnation::reading) to other replicas.
pub const FORMAT: u32 = 4;

/// The format that replicas show which need no key of callers in the clear where there is a [seal](super::sealed). Records
/// are those of `WITH_LOG`.
pub const SEALS_CALLERS: u32 = 4;

/// The format of a call with a log: replicas that do not know such calls leave the record alone.
const WITH_LOG: u32 = 2;

/// The format of every other task, which an earlier version can change, too.
const WITHOUT_LOG: u32 = 1;

/// A record that was read.
#[derive(Debug)]
pub struct Decoded {
    pub task: Task,
    /// A newer program wrote the record, so it may have fields that this program does not know.
    pub newer: bool,
}

/// Encodes a record in the oldest format that has its fields, so that replicas of an earlier version can read it.
pub fn encode(task: &Task) -> Result<Bytes, StoreError> {
    let format = if task.log.is_some() {
        WITH_LOG
    } else {
        WITHOUT_LOG
    };
    let mut out = Record(Vec::with_capacity(512));
    out.0.extend_from_slice(format.to_string().as_bytes());
    out.0.push(b' ');
    // A number that JSON does not have fails here, because it would be read back as `null`.
    serde_json::to_writer(&mut out, task).map_err(|_| UNREADABLE)?;
    Ok(out.0.into())
}

/// A record that is being written.
struct Record(Vec<u8>);

impl io::Write for Record {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match bytes {
            // Most writes of serde_json: quotes, colons, commas.
            [byte] => self.0.push(*byte),
            _ => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub fn decode(record: &[u8]) -> Result<Decoded, StoreError> {
    let space = record.iter().position(|b| *b == b' ').ok_or(UNREADABLE)?;
    let (format, json) = record.split_at_checked(space).ok_or(UNREADABLE)?;
    let format = std::str::from_utf8(format)
        .ok()
        .and_then(|text| text.parse::<u32>().ok())
        .filter(|format| *format >= WITHOUT_LOG)
        .ok_or(UNREADABLE)?;
    let newer = format > FORMAT;
    // Once for all strings of the record.
    let task = std::str::from_utf8(json)
        .ok()
        .and_then(|json| serde_json::from_str(json).ok())
        // A newer record may have another shape, and is left to newer replicas. Any other one is damaged.
        .ok_or(if newer { StoreError::Newer } else { UNREADABLE })?;
    Ok(Decoded { task, newer })
}

const UNREADABLE: StoreError = StoreError::Corrupt("task record");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::progress::Progress;

    const TASK: &str = r#"{"id":"00000000-0000-4000-8000-000000000000","caller":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"method":"tools/call","name":"t","created_ms":1,"updated_ms":1,"deadline_ms":2,"ttl_ms":2,"poll_interval_ms":1,"announced":true,"fence":1,"leg":"queued","what_comes_later":7}"#;

    #[test]
    fn a_newer_record_is_told_as_far_as_it_is_known() {
        let known = decode(format!("1 {TASK}").as_bytes()).unwrap();
        assert!(!known.newer);
        let newer = decode(format!("5 {TASK}").as_bytes()).unwrap();
        assert!(newer.newer);
        assert_eq!(&*newer.task.name, "t");
        let strange = decode(br#"5 {"other":1}"#).unwrap_err();
        assert!(matches!(strange, StoreError::Newer));
        for wrong in ["0 {}", "1 {}", "x {}", "{}", "-1 {}"] {
            let error = decode(wrong.as_bytes()).unwrap_err();
            assert!(matches!(error, StoreError::Corrupt(_)), "{wrong}");
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let mut task = decode(format!("1 {TASK}").as_bytes()).unwrap().task;
        let numbers = [0.0, -1.5, 1e300, f64::MIN_POSITIVE];
        for progress in numbers {
            let total = Some(progress);
            task.progress = Some(Progress { progress, total });
            let read = decode(&encode(&task).unwrap()).unwrap().task;
            assert_eq!(read.progress, task.progress);
        }
        for number in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            for (progress, total) in [(number, None), (1.0, Some(number))] {
                task.progress = Some(Progress { progress, total });
                let error = encode(&task).unwrap_err();
                assert!(matches!(error, StoreError::Corrupt(_)));
            }
        }
    }

    #[test]
    fn a_call_with_a_log_is_left_alone_by_replicas_that_do_not_know_it() {
        let log = r#"{"log":{"session":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"id":7,"began_ms":1,"ends_ms":2,"retention_ms":3,"bytes_max":4},"#;
        let task = decode(format!("2 {}", TASK.replacen('{', log, 1)).as_bytes());
        let task = task.unwrap().task;
        assert_eq!(task.log.as_ref().unwrap().id.get(), "7");
        assert!(encode(&task).unwrap().starts_with(b"2 "));
    }

    #[test]
    fn a_trace_is_in_the_format_that_every_version_reads() {
        let trace = r#"{"trace":{"trace":"0af7651916cd43dd8448eb211c80319c","span":"b7ad6b7169203331","sent":"a7ad6b7169203331","request":"1","version":"2026-07-28","of_tomorrow":1},"#;
        let text = TASK.replacen('{', trace, 1);
        let task = decode(format!("1 {text}").as_bytes()).unwrap().task;
        let kept = task.trace.as_deref().unwrap();
        assert_eq!(kept.to_server().span.to_string(), "a7ad6b7169203331");
        let written = encode(&task).unwrap();
        assert!(written.starts_with(b"1 "));
        assert_eq!(decode(&written).unwrap().task.trace, task.trace);
    }

    #[test]
    fn a_record_with_a_number_that_was_lost_is_read() {
        for progress in [
            r#"{"progress":null}"#,
            r#"{"progress":null,"total":1}"#,
            "null",
        ] {
            let text = TASK.replacen('{', &format!(r#"{{"progress":{progress},"#), 1);
            let read = decode(format!("1 {text}").as_bytes()).unwrap().task;
            assert_eq!(read.progress, None);
        }
        let text = TASK.replacen('{', r#"{"progress":{"progress":2.0,"total":null},"#, 1);
        let read = decode(format!("1 {text}").as_bytes()).unwrap().task;
        assert_eq!(read.progress.unwrap().total, None);
    }
}
