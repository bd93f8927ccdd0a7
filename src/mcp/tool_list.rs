//! Edits of a page of `tools/list`. Every byte that an edit is not about stays.

use serde_json::value::RawValue;

use super::json::{Object, is_object, place_of, quote, set};

/// The name, in the `_meta` of a tool, of the size up to which Claude Code puts the tool's result into the context of
/// its model.
const RESULT_SIZE: &str = "anthropic/maxResultSizeChars";

/// Returns `true` if no further page of the list follows.
pub fn is_last(page: &RawValue) -> bool {
    let cursor = Object::parse(page.get()).map(|page| page.get("nextCursor"));
    cursor.is_ok_and(|cursor| cursor.is_none_or(|cursor| cursor.get() == "null"))
}

/// The page with each tool as `edit` gives it; `None`: the tool stays. `None`: the whole page stays.
pub fn edit_tools(page: &str, mut edit: impl FnMut(&RawValue) -> Option<String>) -> Option<String> {
    let tools = Object::parse(page).ok()?.get("tools")?.get();
    let listed: Vec<&RawValue> = serde_json::from_str(tools).ok()?;
    let mut all = String::with_capacity(tools.len() + 512);
    let mut copied = 0;
    for tool in listed {
        let Some(edited) = edit(tool) else {
            continue;
        };
        let place = place_of(tools, tool)?;
        all.push_str(tools.get(copied..place.start)?);
        all.push_str(&edited);
        copied = place.end;
    }
    if copied == 0 {
        return None;
    }
    all.push_str(tools.get(copied..)?);
    set(page, "tools", &all).ok()
}

/// The page with the sizes that `size_of` gives for the names of tools. `None`: the page stays.
pub fn with_result_sizes(page: &str, size_of: impl Fn(&str) -> Option<u32>) -> Option<String> {
    edit_tools(page, |tool| {
        let read = Object::parse(tool.get()).ok()?;
        let size = size_of(&read.get_str("name")?)?;
        let meta = read.get("_meta").filter(|meta| is_object(meta));
        let meta = meta.map_or("{}", RawValue::get);
        let meta = set(meta, RESULT_SIZE, &size.to_string()).ok()?;
        set(tool.get(), "_meta", &meta).ok()
    })
}

/// The beginning of the description of a tool that starts jobs.
const BY_ITSELF: &str =
    "The result comes by itself when the job has ended: there is nothing to poll.";

/// The page for clients whose jobs are followed: tools that start jobs say so, and have no output schema, because their
/// result is that of another tool. Hidden tools are left out. `None`: the page stays.
pub fn with_jobs(
    page: &str,
    starts: impl Fn(&str) -> bool,
    is_hidden: impl Fn(&str) -> bool,
) -> Option<String> {
    let tools = Object::parse(page).ok()?.get("tools")?.get();
    let listed: Vec<&RawValue> = serde_json::from_str(tools).ok()?;
    let mut changes = false;
    let mut all = Vec::with_capacity(listed.len());
    for tool in listed {
        let read = Object::parse(tool.get()).unwrap_or_default();
        let name = read.get_str("name").unwrap_or_default();
        if is_hidden(&name) {
            changes = true;
        } else if starts(&name) {
            changes = true;
            let described = read.get_str("description").unwrap_or_default();
            let described = format!("{BY_ITSELF} {described}");
            let bare = read.render_filtered(|key| key != "outputSchema");
            all.push(set(&bare, "description", &quote(described.trim_end())).ok()?);
        } else {
            all.push(tool.get().to_owned());
        }
    }
    changes.then(|| set(page, "tools", &format!("[{}]", all.join(","))).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_starts_jobs_says_so_and_hidden_ones_are_left_out() {
        let page = r#"{"tools":[{"name":"a","description":"Exports.","outputSchema":{}}, {"name":"b"},{"name":"c","n":1.0}],"x":1}"#;
        let starts = |name: &str| name == "a";
        assert_eq!(
            with_jobs(page, starts, |name| name == "b").unwrap(),
            r#"{"tools":[{"name":"a","description":"The result comes by itself when the job has ended: there is nothing to poll. Exports."},{"name":"c","n":1.0}],"x":1}"#
        );
        assert_eq!(with_jobs(page, |_| false, |_| false), None);
        assert_eq!(with_jobs("{}", starts, |_| true), None);
    }

    #[test]
    fn a_size_is_set_and_every_other_byte_stays() {
        let page = r#"{ "tools" : [ {"name":"a", "n":1.10},{"name":"b","_meta":{"x":1.0, "anthropic/maxResultSizeChars" : 7}},{"name":"c","_meta":null},{"n":2},5] ,"x":1}"#;
        let size_of = |name: &str| (name != "c").then_some(500);
        assert_eq!(
            with_result_sizes(page, size_of).unwrap(),
            r#"{ "tools" : [ {"_meta":{"anthropic/maxResultSizeChars":500},"name":"a", "n":1.10},{"name":"b","_meta":{"x":1.0, "anthropic/maxResultSizeChars" : 500}},{"name":"c","_meta":null},{"n":2},5] ,"x":1}"#
        );
        let of_c = with_result_sizes(page, |name| (name == "c").then_some(1)).unwrap();
        assert!(
            of_c.contains(r#"{"name":"c","_meta":{"anthropic/maxResultSizeChars":1}}"#),
            "{of_c}"
        );
    }

    #[test]
    fn what_no_rule_is_about_stays() {
        let page = r#"{"tools":[{"name":"a"}]}"#;
        assert_eq!(with_result_sizes(page, |_| None), None);
        for other in [r#"{"tools":{}}"#, "{}", "[]"] {
            assert_eq!(with_result_sizes(other, |_| Some(1)), None);
        }
    }

    #[test]
    fn only_the_last_page_has_no_cursor() {
        let page = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert!(is_last(&page(r#"{"tools":[]}"#)));
        assert!(is_last(&page(r#"{"tools":[],"nextCursor":null}"#)));
        assert!(!is_last(&page(r#"{"tools":[],"nextCursor":"x"}"#)));
    }
}
