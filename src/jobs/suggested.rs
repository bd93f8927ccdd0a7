//! Groups of tools that look like the tools of a job: by the words of their names and by their arguments. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::mcp::tools::{Repeats, Tool, Tools};

/// Tools that look like those of a job.
#[derive(Debug, PartialEq, Eq)]
pub struct JobGroup<'t> {
    /// In the server's order.
    pub starts: Vec<&'t str>,
    /// The name of the status tool has no word for what is started, so that only the answers show which tools start a job.
    pub is_any_start: bool,
    pub status: &'t str,
    /// The argument of the status tool that takes the job's id.
    pub id_argument: &'t str,
    pub cancel: Option<&'t str>,
    pub result: Option<&'t str>,
}

/// The most tools that are looked at: each is compared with each other.
const TOOLS_MAX: usize = 1_000;

/// Words for the state of a job.
const STATE: &str = "status state progress poll";
/// Verbs of tools that report.
const REPORT: &str = "get check query describe fetch poll retrieve wait inspect status";
const RESULT: &str = "result output finding";
const CANCEL: &str = "cancel abort stop kill terminate";
/// Verbs of tools that start what goes on after their answer.
const START: &str = "start submit launch trigger initiate queue enqueue begin";
/// Verbs of tools that may.
const RUN: &str = "run generate execute invoke call post";
/// Verbs of tools that make things.
const MAKE: &str = "create upscale render transcribe translate train edit extend remix import export \
    deploy build process";
/// Verbs of tools that start no job.
const OTHER: &str = "get list search delete update set remove download upload cancel abort stop kill \
    terminate tail read write show describe check query fetch poll wait add save view \
    find inspect retrieve clear clean interact open close connect disconnect validate \
    preview estimate enable disable rename move copy approve pause resume retry";
/// Verbs of tools about a thing that is there.
const CHANGE: &str = "delete update run execute";
/// Nouns for jobs of any kind.
const ANY_JOB: &str = "job task run request generation execution operation status";
/// Nouns for what takes a while.
const JOB: &str = "job task run execution prediction generation query build pipeline crawl batch import \
    export scan research render workflow";
/// Nouns for the products of jobs: a tool that makes one starts a job.
const MADE_BY_JOB: &str = "prediction generation build export import scan crawl research batch render \
    transcription translation";
const SMALL: &str =
    "by id tool the a an of for async with from to in via detail info is complete my";
const ID: &str = "id uid uuid token handle";

/// Nouns for what a person works in, and what is no job.
const PLACE: &str = "session conversation chat thread";

/// A tool and the words of its name but for those that most tools of the server have.
struct NamedTool<'t> {
    name: &'t str,
    tool: &'t Tool,
    words: Vec<String>,
}

/// A tool that may report on a job.
struct StatusTool<'a, 't> {
    named: &'a NamedTool<'t>,
    /// The name has a word for a state.
    is_of_state: bool,
    /// The arguments that may take the id.
    ids: Vec<&'t str>,
    /// The words for the job.
    nouns: BTreeSet<&'a str>,
    /// Those of them that are not for jobs of any kind.
    own: BTreeSet<&'a str>,
    /// The arguments that name a thing with a state, and no job: it can be changed or deleted.
    things: Vec<&'t str>,
}

/// How a tool that may start a job fits a status tool.
enum Fit {
    ByName,
    /// Beside another one that fits by its name.
    Beside,
    /// The status tool is about jobs of any kind.
    AnyJob,
}

/// Returns the groups that the names and the arguments of these tools suggest. A tool starts jobs of one group only.
pub fn groups(tools: &Tools) -> Vec<JobGroup<'_>> {
    let named = named(tools);
    let reports = named.iter().filter_map(StatusTool::of);
    let mut reports: Vec<_> = reports.map(|status| status.beside(&named)).collect();
    reports.sort_by_key(StatusTool::rank);
    let mut used = BTreeSet::new();
    let mut groups = Vec::new();
    for status in &reports {
        let (mut by_name, mut beside, mut any) = (Vec::new(), Vec::new(), Vec::new());
        for start in named.iter().filter(|it| !used.contains(it.name)) {
            match status.fit(start) {
                Some((Fit::ByName, id)) => by_name.push((start.name, id)),
                Some((Fit::Beside, id)) => beside.push((start.name, id)),
                Some((Fit::AnyJob, id)) => any.push((start.name, id)),
                None => {}
            }
        }
        let is_any_start = by_name.is_empty();
        let starts = if is_any_start {
            any
        } else {
            by_name.append(&mut beside);
            by_name
        };
        let Some((_, id_argument)) = starts.first().copied() else {
            continue;
        };
        let starts: Vec<_> = starts.into_iter().map(|(name, _)| name).collect();
        used.extend(starts.iter().copied());
        let about = |verbs: &str| {
            let mut others = named.iter().filter(|it| it.name != status.named.name);
            let found =
                others.find(|it| it.has(verbs) && !it.begins("tail") && it.wants(id_argument));
            found.map(|it| it.name)
        };
        groups.push(JobGroup {
            starts,
            is_any_start,
            status: status.named.name,
            id_argument,
            cancel: about(CANCEL),
            result: about(RESULT),
        });
    }
    groups
}

impl<'a, 't> StatusTool<'a, 't> {
    /// `None`: the tool reports on nothing that has an id.
    fn of(named: &'a NamedTool<'t>) -> Option<Self> {
        let first = named.words.first()?;
        let is_report = has(REPORT, first) || !(has(OTHER, first) || is_doing(first));
        let is_of_state = named.has(STATE);
        let is_other = named.has("list latest all") || named.has(PLACE);
        if !is_report || named.tool.is_destructive || is_other {
            return None;
        }
        if !is_of_state && !named.has(REPORT) {
            return None;
        }
        let all = || named.tool.arguments.iter();
        let ids = all().filter(|it| it.required && is_id(&it.name));
        let mut ids: Vec<_> = ids.map(|it| &*it.name).collect();
        if (is_of_state || all().count() == 1) && all().all(|it| !it.required) {
            let mut optional = all().filter(|it| is_id(&it.name));
            ids.extend(
                optional
                    .next()
                    .filter(|_| optional.next().is_none())
                    .map(|it| &*it.name),
            );
        }
        // A noun may be a verb elsewhere: `get_query_status` is about a query.
        let behind = named.words.iter().skip(usize::from(has(REPORT, first)));
        let is_noun = |word: &&str| {
            let others = [STATE, RESULT, SMALL, "check fetch"];
            !others.iter().any(|all| has(all, word))
        };
        let nouns: BTreeSet<_> = behind.map(String::as_str).filter(is_noun).collect();
        (!ids.is_empty()).then_some(Self {
            named,
            is_of_state,
            ids,
            own: special(&nouns),
            nouns,
            things: Vec::new(),
        })
    }

    /// The tool among all tools of its server.
    fn beside(mut self, all: &[NamedTool<'_>]) -> Self {
        let changes = all.iter().filter(|it| it.has(CHANGE) && self.is_about(it));
        let changes: Vec<_> = changes.collect();
        let is_thing = |id: &&str| changes.iter().any(|it| it.takes(id));
        self.things = self.ids.iter().copied().filter(is_thing).collect();
        self
    }

    /// Returns `true` if the name of that tool has all words for the job.
    fn is_about(&self, it: &NamedTool<'_>) -> bool {
        self.own.iter().all(|word| it.has(word))
    }

    /// The place among the tools that may report on the same job: the first is the status tool.
    fn rank(&self) -> (bool, bool, bool) {
        (
            !self.is_of_state,
            self.named.has("wait"),
            self.named.has(RESULT),
        )
    }

    /// Returns how this tool fits, and the argument that takes the id of the job that it starts.
    fn fit(&self, start: &NamedTool<'_>) -> Option<(Fit, &'t str)> {
        let mut new = self.ids.iter().filter(|id| !start.takes(id));
        let id = *new.next().filter(|_| new.next().is_none())?;
        let mut further = self.named.tool.arguments.iter();
        let has_further =
            further.all(|it| !it.required || &*it.name == id || start.takes(&it.name));
        let (first, last) = (start.words.first()?, start.words.last()?);
        let is_other = start.name == self.named.name
            || start.tool.repeats == Some(Repeats::ReadOnly)
            || has(OTHER, first)
            || has("delete update", last);
        if is_other || !has_further {
            return None;
        }
        let verb = [first, last].into_iter().find(|word| is_doing(word));
        let verb = verb.map_or("", String::as_str);
        let rest = start.words.iter().map(String::as_str);
        let nouns: BTreeSet<_> = rest
            .filter(|word| *word != verb && !has(SMALL, word))
            .collect();
        let (own, others) = (&self.own, special(&nouns));
        let is_same = !self.nouns.is_empty() && self.nouns == nouns;
        let is_alike = is_same || (!own.is_empty() && *own == others);
        let is_job = || {
            let words = words(id);
            let mut all = self
                .nouns
                .iter()
                .copied()
                .chain(words.iter().map(String::as_str));
            all.any(|word| has(JOB, word))
        };
        let starts =
            has(START, verb) || has(RUN, verb) && is_job() && (is_same || !self.named.has(RESULT));
        let makes = || has(MAKE, verb) && self.nouns.iter().any(|word| has(MADE_BY_JOB, word));
        let is_thing = || self.things.contains(&id);
        // A workflow is what is run, and its tool may well wait.
        let is_run = || verb.is_empty() && self.named.has("workflow");
        // As in `text_to_video`.
        let turns = || start.has("to");
        let fit = if is_alike && (starts || makes() || self.is_of_state && !is_thing()) {
            Fit::ByName
        } else if is_same && !verb.is_empty() {
            Fit::Beside
        } else if !own.is_empty()
            && own.len() < self.nouns.len()
            && has(START, verb)
            && self.is_about(start)
        {
            Fit::ByName
        } else if !self.is_of_state || self.nouns.is_empty() {
            return None;
        } else if !own.is_empty() && self.is_about(start) && !is_run() && (starts || !is_thing()) {
            Fit::ByName
        } else if own.is_empty() && (!verb.is_empty() || turns()) {
            Fit::AnyJob
        } else {
            return None;
        };
        Some((fit, id))
    }
}

/// The words that are not about jobs of any kind.
fn special<'w>(all: &BTreeSet<&'w str>) -> BTreeSet<&'w str> {
    let special = all.iter().filter(|word| !has(ANY_JOB, word));
    special.copied().collect()
}

impl NamedTool<'_> {
    fn has(&self, any: &str) -> bool {
        self.words.iter().any(|word| has(any, word))
    }

    fn begins(&self, with: &str) -> bool {
        self.words.first().is_some_and(|word| word == with)
    }

    fn takes(&self, argument: &str) -> bool {
        let mut arguments = self.tool.arguments.iter();
        arguments.any(|it| &*it.name == argument)
    }

    fn wants(&self, argument: &str) -> bool {
        let mut arguments = self.tool.arguments.iter();
        arguments.any(|it| it.required && &*it.name == argument)
    }
}

/// The tools, in the server's order.
fn named(tools: &Tools) -> Vec<NamedTool<'_>> {
    // A glob would name other tools. MCP names a tool in 128 characters at most (2026-07-28, Tools).
    let is_plain = |name: &&str| name.len() <= 128 && !name.contains(['*', '?', '[', '{', '\\']);
    let names = tools.names().filter(is_plain).take(TOOLS_MAX);
    let named = names.filter_map(|name| {
        Some(NamedTool {
            name,
            tool: tools.get(name)?,
            words: words(name),
        })
    });
    let mut named: Vec<_> = named.collect();
    let common = common(&named);
    for it in &mut named {
        it.words.retain(|word| !common.contains(word));
    }
    named
}

/// The words that say nothing of a tool: more than half of the names begin with them, or more than four of five have them.
fn common(named: &[NamedTool<'_>]) -> BTreeSet<String> {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for it in named.iter().filter(|it| it.words.len() > 1) {
        for word in it.words.iter().map(String::as_str).collect::<BTreeSet<_>>() {
            let (first, any) = counts.entry(word).or_default();
            *first += usize::from(it.begins(word));
            *any += 1;
        }
    }
    // Of a few tools, two may have a word in common that matters.
    let is_many = named.len() >= 4;
    let common = counts.into_iter().filter(|(word, (first, any))| {
        let is_common = 2 * first > named.len() || 5 * any > 4 * named.len();
        let matters = [OTHER, STATE, ANY_JOB].iter().any(|all| has(all, word)) || is_doing(word);
        is_many && is_common && !matters
    });
    common.map(|(word, _)| word.to_owned()).collect()
}

/// Returns `true` if the word is among these, which spaces separate.
fn has(words: &str, word: &str) -> bool {
    words.split(' ').any(|it| it == word)
}

/// Returns `true` for the verbs of tools that may start a job.
fn is_doing(word: &str) -> bool {
    [START, RUN, MAKE].iter().any(|all| has(all, word))
}

fn is_id(argument: &str) -> bool {
    words(argument).last().is_some_and(|word| has(ID, word))
}

/// The words of a name in lower case and in the singular: `getJobIds` and `get_job_ids` are "get", "job", "id".
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let (mut words, mut word) = (Vec::new(), String::new());
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| letters.get(at));
        let after = letters.get(at + 1);
        let is_new = letter.is_uppercase()
            && (before.is_some_and(|it| !it.is_uppercase())
                || after.is_some_and(|it| it.is_lowercase()));
        if is_new || !letter.is_alphanumeric() {
            words.push(std::mem::take(&mut word));
        }
        if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words.into_iter().map(singular).collect()
}

fn singular(mut word: String) -> String {
    let is_plural = word.len() > 3 && word.ends_with('s');
    if is_plural && !["ss", "us", "is"].iter().any(|end| word.ends_with(end)) {
        word.pop();
    }
    word
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use serde_json::Value;

    use super::*;
    use crate::jobs::recorded;

    /// A suggestion is right if the status tool is, and one of the starts.
    #[test]
    fn suggestions_on_recorded_lists_are_right() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/jobs");
        let truth = fs::read_to_string(folder.join("groups.json")).unwrap();
        let truth: Value = serde_json::from_str(&truth).unwrap();
        let (mut right, mut wrong, mut missed) = (Vec::new(), Vec::new(), Vec::new());
        let (mut servers, mut wrong_elsewhere) = (0, 0);
        for (name, list) in recorded::all() {
            let is_surveyed = list["surveyed"] == true;
            servers += usize::from(!is_surveyed);
            let tools = recorded::tools(&list);
            let real: Vec<&Value> = truth[&*name].as_array().into_iter().flatten().collect();
            let mut found = BTreeSet::new();
            for group in groups(&tools) {
                let is_it = |real: &Value| {
                    let mut starts = real["starts"].as_array().unwrap().iter();
                    real["status"] == group.status
                        && starts.any(|start| group.starts.iter().any(|it| start == it))
                };
                let line = format!("{name}: {} by {:?}", group.status, group.starts);
                if let Some(place) = real.iter().position(|real| is_it(real)) {
                    found.insert(place);
                    right.push(line);
                } else {
                    wrong_elsewhere += usize::from(!is_surveyed);
                    wrong.push(line);
                }
            }
            let rest = real
                .iter()
                .enumerate()
                .filter(|(place, _)| !found.contains(place));
            missed.extend(rest.map(|(_, real)| format!("{name}: {}", real["status"])));
        }
        let (found, all) = (right.len(), right.len() + missed.len());
        let report = format!("{found} of {all}, missed: {missed:#?}\nwrong: {wrong:#?}");
        assert!(found * 100 >= (found + wrong.len()) * 95, "{report}");
        assert!(wrong_elsewhere * 40 <= servers, "{report}");
        assert!(found * 100 >= all * 40, "{report}");
    }
}
