//! Lists of tools that real servers gave, recorded in `tests/jobs/lists`: the names and the arguments, without the words of their
//! authors.

use std::fs;
use std::path::PathBuf;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::mcp::tools::Tools;

/// All lists, each with the name of its file.
pub(crate) fn all() -> Vec<(String, Value)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/jobs/lists");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut all: Vec<_> = files
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let list = fs::read_to_string(&path).unwrap();
            (name, serde_json::from_str(&list).unwrap())
        })
        .collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

/// The tools of a list, as the server gave them.
pub(crate) fn tools(list: &Value) -> Tools {
    let listed = list["tools"].as_array().unwrap().iter().map(|tool| {
        let arguments = tool["arguments"].as_object().unwrap().iter();
        let properties = arguments.map(|(name, kind)| (name.clone(), json!({ "type": kind })));
        json!({
            "name": tool["name"],
            "inputSchema": {
                "properties": Value::Object(properties.collect()),
                "required": tool["required"],
            },
            "annotations": tool.get("hints").cloned().unwrap_or_else(|| json!({})),
        })
    });
    let page = json!({ "tools": listed.collect::<Vec<_>>() }).to_string();
    let mut tools = Tools::default();
    tools
        .add_page(&RawValue::from_string(page).unwrap())
        .unwrap();
    tools
}
