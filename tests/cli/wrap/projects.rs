//! Servers of single projects, as Claude Code keeps them beside everybody's.

use super::*;

/// One name thrice: everybody's, a project's that is where the file is, and another's.
fn settings() -> (Settings, String) {
    let settings = Settings::new("");
    let here = settings.folder.canonicalize().unwrap();
    let text = r#"{
  "mcpServers": { "time": { "command": "everybodys" } },
  "projects": {
    "HERE": {
      "allowedTools": [],
      "mcpServers": { "time": { "type": "stdio", "command": "here", "args": ["--utc"] } }
    },
    "/elsewhere": {
      "mcpServers": { "time": { "command": "elsewhere" }, "own": { "command": "own" } }
    },
    "/none": { "mcpServers": {} }
  }
}
"#;
    let text = text.replace("HERE", here.to_str().unwrap());
    fs::write(&settings.file, &text).unwrap();
    (settings, text)
}

#[test]
fn all_are_listed_with_how_to_name_them() {
    let (settings, _) = settings();
    let here = settings.folder.canonicalize().unwrap();
    let listed = settings.ok(&[]);
    let listed: Vec<_> = listed
        .lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>())
        .collect();
    assert_eq!(
        listed,
        [
            vec!["time", "everybodys"],
            vec!["time", "here", "--project", here.to_str().unwrap()],
            vec!["time", "elsewhere", "--project", "/elsewhere"],
            vec!["own", "own", "--project", "/elsewhere"],
        ]
    );
    assert_eq!(settings.ok(&["--project", "/elsewhere"]).lines().count(), 2);
}

#[test]
fn one_is_wrapped_and_put_back_and_no_other_of_its_name() {
    let (settings, before) = settings();
    let wrap = |arguments: &[&str]| {
        let output = Command::new(RAINCHECK)
            .args(["wrap", "mcp.json", "time", "--project", ".", "--yes"])
            .args(arguments)
            .current_dir(&settings.folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    wrap(&[]);
    let wrapped = before
        .replace(
            r#""command": "here""#,
            &format!(r#""command": {RAINCHECK:?}"#),
        )
        .replace(r#"["--utc"]"#, r#"["stdio", "--", "here", "--utc"]"#);
    assert_eq!(settings.text(), wrapped);
    assert_eq!(settings.backup(""), before);
    wrap(&["--undo"]);
    assert_eq!(settings.text(), before);
    settings.ok(&["time", "--yes"]);
    assert!(settings.text().contains(r#""command": "here""#));
    assert!(!settings.text().contains(r#""command": "everybodys""#));
}
