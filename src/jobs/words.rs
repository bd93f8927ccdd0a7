//! The words in which servers report the state of a job.

use serde::{Deserialize, Serialize};

use crate::jobs::document::{Document, JobSource};

/// The meaning of an answer about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    Working,
    Done,
    Failed,
    Cancelled,
    /// The job waits for a person.
    Input,
    /// This check failed, not the job.
    Retry,
    /// The server does not know the job any more.
    Gone,
}

impl Meaning {
    /// Returns `true` if the job has ended.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// The words that a rule adds to those that are known, each with its meaning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobWords(Vec<(Box<str>, Meaning)>);

/// A condition for an answer, and the meaning of the answer if it is true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acceptor {
    /// `None`: all of the text.
    pub place: Option<JobSource>,
    pub test: WordTest,
    pub means: Meaning,
}

/// A test of a word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WordTest {
    Equals(Box<str>),
    /// A pattern.
    Matches(Box<str>),
}

/// The usual words for a job that works. A word in no table means the same, and is warned of.
const WORKING: &[&str] = &[
    "accepted",
    "active",
    "created",
    "executing",
    "inprogress",
    "inqueue",
    "initializing",
    "new",
    "pending",
    "preparing",
    "processing",
    "queued",
    "queueing",
    "retrying",
    "running",
    "scheduled",
    "started",
    "starting",
    "submitted",
    "waiting",
    "working",
];

const DONE: &[&str] = &[
    "complete",
    "completed",
    "done",
    "finished",
    "success",
    "succeeded",
    "successful",
];

const FAILED: &[&str] = &[
    "error", "errored", "failed", "failure", "timedout", "timeout",
];

const CANCELLED: &[&str] = &["aborted", "canceled", "cancelled", "killed"];

const INPUT: &[&str] = &["awaitinginput", "inputrequired", "waitingforinput"];

impl JobWords {
    /// The words of a rule.
    pub fn new(words: impl IntoIterator<Item = (String, Meaning)>) -> Self {
        let folded = words.into_iter().map(|(word, means)| (fold(&word), means));
        Self(folded.collect())
    }

    /// Returns the meaning of a word. `None`: it is not known.
    pub fn meaning(&self, word: &str) -> Option<Meaning> {
        let word = fold(word);
        let own = self.0.iter().find(|(own, _)| *own == word);
        if let Some((_, means)) = own {
            return Some(*means);
        }
        let tables = [
            (DONE, Meaning::Done),
            (FAILED, Meaning::Failed),
            (CANCELLED, Meaning::Cancelled),
            (WORKING, Meaning::Working),
            (INPUT, Meaning::Input),
        ];
        let mut known = tables.iter().filter(|(words, _)| words.contains(&&*word));
        known.next().map(|(_, means)| *means)
    }
}

impl Acceptor {
    /// Returns `true` if the condition is true of this answer.
    pub fn accepts(&self, document: &Document) -> bool {
        let word = match &self.place {
            Some(place) => place.word(document),
            None => Some(document.text.as_str().into()),
        };
        word.is_some_and(|word| match &self.test {
            WordTest::Equals(wanted) => fold(&word) == fold(wanted),
            // Checked when the settings were read.
            WordTest::Matches(pattern) => {
                regex_lite::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(&word))
            }
        })
    }
}

/// Returns `true` for the words that servers also use for a request that went well.
pub(super) fn is_success(word: &str) -> bool {
    matches!(&*fold(word), "ok" | "success" | "successful")
}

/// Returns a word without what servers write in different ways: case, `_`, `-`, spaces, and a prefix up to a dot such as that of
/// `JobState.RUNNING`.
fn fold(word: &str) -> Box<str> {
    let word = word.trim();
    // A dot in a sentence ends no prefix.
    let is_sentence = word.contains(char::is_whitespace) || word.ends_with('.');
    let last = word.rsplit('.').next().filter(|_| !is_sentence);
    let letters = last.unwrap_or(word).chars();
    let kept = letters.filter(|letter| !matches!(letter, '_' | '-' | ' '));
    kept.flat_map(char::to_lowercase).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_known_in_every_spelling() {
        let words = JobWords::default();
        for (word, means) in [
            ("IN_PROGRESS", Some(Meaning::Working)),
            ("JobStatus.Timed-Out", Some(Meaning::Failed)),
            ("Succeeded", Some(Meaning::Done)),
            ("canceled", Some(Meaning::Cancelled)),
            ("Step 1 of 3: upload. Done", None),
            ("stopped", None),
            ("not_found", None),
            ("", None),
        ] {
            assert_eq!(words.meaning(word), means, "{word}");
        }
    }

    #[test]
    fn the_words_of_a_rule_come_first() {
        let own = JobWords::new([
            ("still processing".to_owned(), Meaning::Working),
            ("Failed".to_owned(), Meaning::Retry),
        ]);
        assert_eq!(own.meaning("Still Processing"), Some(Meaning::Working));
        assert_eq!(own.meaning("FAILED"), Some(Meaning::Retry));
        assert_eq!(own.meaning("done"), Some(Meaning::Done));
    }

    #[test]
    fn a_condition_reads_a_place_or_all_of_the_text() {
        let document = Document {
            value: serde_json::json!({"phase": "Ended", "code": 404}),
            text: "Error: job not found".into(),
            is_error: true,
        };
        let accepts = |place: Option<&str>, test| {
            let place = place.map(|pointer| JobSource::Pointer(pointer.into()));
            let acceptor = Acceptor {
                place,
                test,
                means: Meaning::Gone,
            };
            acceptor.accepts(&document)
        };
        assert!(accepts(Some("/phase"), WordTest::Equals("ended".into())));
        assert!(accepts(Some("/code"), WordTest::Equals("404".into())));
        assert!(accepts(None, WordTest::Matches("(?i)not found".into())));
        assert!(!accepts(Some("/missing"), WordTest::Matches(".*".into())));
    }
}
