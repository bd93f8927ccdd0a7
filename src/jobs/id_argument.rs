//! The argument of a job's tool that takes the job's id.

use crate::jobs::Helper;
use crate::mcp::tools::ToolArgument;

/// The place of the id in the texts of a rule.
pub(super) const ID: &str = "{id}";

/// Returns the argument of a tool that takes the id of a job: the only one that the tool requires, or else the first whose
/// name ends with `id`, one that is required before one that is not. Arguments that the rule gives, and those of the start
/// (`own`), are about something else. `None`: there is none, or the rule itself says where the id goes.
pub(super) fn id_argument(
    helper: &Helper,
    listed: &[ToolArgument],
    own: &[ToolArgument],
) -> Option<Box<str>> {
    if says_where_id_goes(helper) {
        return None;
    }
    let is_given = |it: &ToolArgument| helper.arguments.contains_key(&*it.name);
    let is_own = |it: &ToolArgument| own.iter().any(|own| own.name == it.name);
    let others = listed.iter().filter(|it| !is_given(it) && !is_own(it));
    let others: Vec<_> = others.collect();
    // A tool whose arguments are not listed takes any.
    let unlisted = || listed.is_empty().then(|| "id".into());
    likely_id(&others)
        .map(|it| it.name.clone())
        .or_else(unlisted)
}

/// Returns `true` if the rule itself says where the id goes.
pub(super) fn says_where_id_goes(helper: &Helper) -> bool {
    let mut templates = helper.arguments.values();
    templates.any(|template| template.to_string().contains(ID))
}

fn likely_id<'l>(arguments: &[&'l ToolArgument]) -> Option<&'l ToolArgument> {
    let ends_with_id = |it: &&ToolArgument| {
        let folded = it.name.to_lowercase();
        folded.ends_with("id") || folded.ends_with("ids")
    };
    let all = || arguments.iter().copied();
    let mut required = all().filter(|it| it.required);
    let only = required.next().filter(|_| required.next().is_none());
    only.or_else(|| all().filter(|it| it.required).find(ends_with_id))
        .or_else(|| all().find(ends_with_id))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mcp::tools::ArgumentKind;

    #[test]
    fn what_the_start_has_too_is_not_the_id() {
        let text = |name: &str, required| ToolArgument {
            name: name.into(),
            kind: ArgumentKind::Text,
            required,
        };
        let status = [text("project_id", true), text("pipeline_id", true)];
        let found = |own: &[ToolArgument]| id_argument(&Helper::default(), &status, own);
        assert_eq!(found(&[]).as_deref(), Some("project_id"));
        assert_eq!(found(&status[..1]).as_deref(), Some("pipeline_id"));
        assert_eq!(found(&status), None);
        let says = Helper {
            arguments: json!({"job": ["{id}"]}).as_object().unwrap().clone(),
            ..Helper::default()
        };
        assert_eq!(id_argument(&says, &status, &[]), None);
    }
}
