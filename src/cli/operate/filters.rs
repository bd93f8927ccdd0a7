//! The filters of `raincheck tasks list`, and of the tasks that one `raincheck tasks cancel` cancels.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use crate::config::duration;

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[arg(
        long,
        help = "open, ended, working, input_required, completed, failed or cancelled"
    )]
    state: Option<String>,
    #[command(flatten)]
    ends: EndArgs,
    #[command(flatten)]
    filters: FilterArgs,
    #[arg(
        long,
        help = "newest, oldest, stuck (what waits for an answer first), longest, tool or caller [default: newest]"
    )]
    sort: Option<String>,
    #[arg(long, help = "The most tasks [default: 100]")]
    limit: Option<usize>,
    #[arg(long, help = "Leave out so many")]
    offset: Option<usize>,
    #[arg(
        long,
        value_name = "PLACE",
        help = "Of tasks that have ended: what follows, as the list before says"
    )]
    after: Option<String>,
}

/// `raincheck tasks export`: which tasks that have ended.
#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    ends: EndArgs,
    #[command(flatten)]
    filters: FilterArgs,
}

/// The filters that only tasks pass that have ended.
#[derive(Debug, Args)]
struct EndArgs {
    #[arg(long, help = "completed, tool_error, failed or cancelled")]
    outcome: Option<String>,
    #[arg(long, conflicts_with = "outcome", help = "Only failed tasks")]
    failed: bool,
    #[command(flatten)]
    failures: FailureArgs,
    #[arg(long, help = "Only failures that nobody has acknowledged")]
    unacknowledged: bool,
}

/// The filters that only failures pass.
#[derive(Debug, Args)]
pub(super) struct FailureArgs {
    #[arg(long, help = "Only failures with this reason, such as owner_lost")]
    reason: Option<String>,
    #[arg(
        long,
        help = "Only failures with this effect: none, or unknown: the tool may have run"
    )]
    effect: Option<String>,
}

impl FailureArgs {
    /// Returns `true` if there is any filter.
    pub(super) fn is_any(&self) -> bool {
        self.reason.is_some() || self.effect.is_some()
    }

    /// These filters among the failures that nobody has acknowledged.
    pub(super) fn unacknowledged(&self) -> Vec<(&'static str, Option<String>)> {
        let among = [
            ("state", Some("failed".to_owned())),
            ("acknowledged", Some("false".to_owned())),
        ];
        among.into_iter().chain(self.pairs()).collect()
    }

    fn pairs(&self) -> [(&'static str, Option<String>); 2] {
        [
            ("reason", self.reason.clone()),
            ("effect", self.effect.clone()),
        ]
    }
}

impl EndArgs {
    fn pairs(&self) -> impl Iterator<Item = (&'static str, Option<String>)> {
        let unacknowledged = self.unacknowledged.then(|| "false".to_owned());
        let failed = self.failed.then(|| "failed".to_owned());
        let own = [
            ("outcome", self.outcome.clone().or(failed)),
            ("acknowledged", unacknowledged),
        ];
        own.into_iter().chain(self.failures.pairs())
    }
}

impl ExportArgs {
    /// The path of a page of so many tasks, of the first one or of the one behind `after`.
    pub(super) fn path(&self, limit: usize, after: Option<&str>) -> String {
        let own = [
            ("state", Some("ended".to_owned())),
            ("limit", Some(limit.to_string())),
            ("after", after.map(str::to_owned)),
        ];
        let all = own.into_iter().chain(self.ends.pairs());
        list_path(all.chain(self.filters.pairs()))
    }
}

/// The filters of a list, and of the tasks that one command cancels.
#[derive(Debug, Args)]
pub(super) struct FilterArgs {
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), help = "Only of this tool, or of those that a glob matches")]
    tool: Option<String>,
    #[arg(
        long,
        value_parser = NonEmptyStringValueParser::new(),
        help = "Only of this caller: its label, or its hash, as the list shows it"
    )]
    caller: Option<String>,
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), help = "Only of this replica")]
    replica: Option<String>,
    #[arg(
        long,
        value_name = "BEGINNING",
        value_parser = NonEmptyStringValueParser::new(),
        help = "Only tasks whose ids begin like this"
    )]
    id: Option<String>,
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = time,
        help = "Only tasks that began longer ago, such as 10m"
    )]
    older: Option<String>,
    #[arg(
        long,
        value_name = "TIME",
        value_parser = time,
        help = "Only tasks that changed in the last 24h, or since a time in UTC, such as 2026-11-30T08:00"
    )]
    since: Option<String>,
    #[arg(
        long,
        value_name = "TIME",
        value_parser = time,
        help = "Only tasks whose last change was before"
    )]
    until: Option<String>,
}

impl ListArgs {
    /// The path of the list at the admin listener.
    pub(super) fn path(&self) -> String {
        let number = |number: Option<usize>| number.map(|number| number.to_string());
        let state = [("state", self.state.clone())];
        let page = [
            ("sort", self.sort.clone()),
            ("limit", number(self.limit)),
            ("offset", number(self.offset)),
            ("after", self.after.clone()),
        ];
        let own = state.into_iter().chain(self.ends.pairs()).chain(page);
        list_path(own.chain(self.filters.pairs()))
    }
}

impl FilterArgs {
    /// Returns `true` if there is any filter.
    pub(super) fn is_any(&self) -> bool {
        self.pairs().iter().any(|(_, value)| value.is_some())
    }

    /// The filters as parameters of a query.
    pub(super) fn pairs(&self) -> [(&'static str, Option<String>); 7] {
        // The listener takes seconds, and refuses with a sentence what is neither seconds nor a time.
        let seconds = |text: &String| match duration(text) {
            // Rounded up: a filter must not find more than was asked for.
            Ok(duration) => duration.as_millis().div_ceil(1000).to_string(),
            Err(_) => text.clone(),
        };
        [
            ("tool", self.tool.clone()),
            ("caller", self.caller.clone()),
            ("replica", self.replica.clone()),
            ("id", self.id.clone()),
            ("older", self.older.as_ref().map(seconds)),
            ("since", self.since.as_ref().map(seconds)),
            ("until", self.until.as_ref().map(seconds)),
        ]
    }
}

/// Reads a duration or a time. A bare number would be seconds for the listener, and hours for many people.
fn time(text: &str) -> Result<String, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("write a duration with its unit, such as 24h or 90s".to_owned());
    }
    Ok(text.to_owned())
}

/// The path of a list with these parameters.
pub(super) fn list_path(pairs: impl IntoIterator<Item = (&'static str, Option<String>)>) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (key, value) in pairs {
        query.extend_pairs(value.iter().map(|value| (key, value)));
    }
    format!("/tasks?{}", query.finish())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        list: ListArgs,
    }

    fn path(words: &[&str]) -> String {
        let words = std::iter::once("list").chain(words.iter().copied());
        Command::parse_from(words).list.path()
    }

    #[test]
    fn durations_are_sent_as_seconds_and_times_as_they_are() {
        assert_eq!(path(&[]), "/tasks?");
        assert_eq!(
            path(&[
                "--failed", "--since", "24h", "--older", "90s", "--tool", "b*"
            ]),
            "/tasks?outcome=failed&tool=b*&older=90&since=86400"
        );
        assert_eq!(
            path(&["--outcome", "tool_error", "--until", "2026-11-30T08:00"]),
            "/tasks?outcome=tool_error&until=2026-11-30T08%3A00"
        );
        assert_eq!(
            path(&["--older", "10m", "--limit", "5"]),
            "/tasks?limit=5&older=600"
        );
        let unclear = Command::try_parse_from(["list", "--since", "24"]).unwrap_err();
        assert!(unclear.to_string().contains("with its unit"), "{unclear}");
    }
}
