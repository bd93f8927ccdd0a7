//! Rules beside the other settings: in a file, or as a text in the environment.

use super::*;

const RULES: &str = "[[tools]]\nname = \"build_*\"\nmode = \"always\"\n";

fn in_file(rules: &str, settings: &str) -> Result<Config, String> {
    let file = File::new(rules);
    let text = format!("[tasks]\nrules_file = \"{}\"\n{settings}", file.0.display());
    let settings = File::new(&text);
    let flags = Flags {
        config: Some(settings.0.clone()),
        ..upstream()
    };
    load(&flags, &pairs(&[])).map_err(|error| {
        let error = error.to_string();
        let error = error.replace(&*file.0.to_string_lossy(), "RULES");
        error.replace(&*settings.0.to_string_lossy(), "SETTINGS")
    })
}

fn mode_of(config: &Config, tool: &str) -> Mode {
    config.rules.for_tool(tool).0.mode
}

#[test]
fn rules_come_from_a_file_or_from_the_environment() {
    let config = in_file(RULES, "mode = \"never\"").unwrap();
    assert_eq!(mode_of(&config, "build_all"), Mode::Always);
    assert_eq!(mode_of(&config, "other"), Mode::Never);
    assert_eq!(config.shown["tools"][0]["name"], "build_*");

    let environment = from_environment(&[("RAINCHECK_TASKS__RULES", RULES)]).unwrap();
    assert_eq!(mode_of(&environment, "build_all"), Mode::Always);

    let jobs = in_file("[[jobs]]\nstart = \"a\"\nstatus = \"b\"", "").unwrap();
    assert!(jobs.rules.jobs().may_start("a"));
}

#[test]
fn a_mistake_names_the_file_of_rules() {
    for (rules, said) in [
        (
            "[[tools]]\nname = \"a\"\nmdoe = \"always\"",
            "RULES: [[tools]] #1: mdoe: unknown key; did you mean mode?",
        ),
        (
            "[[tools]]\nname = \"{\"",
            "RULES: [[tools]] #1: name: \"{\" is not a glob",
        ),
        ("[[tools]\n", "RULES: line 1 is not TOML"),
        (
            "[tasks]\nmode = \"always\"",
            "RULES: tasks: only rules stand here, as [[tools]] and [[jobs]]; all else belongs into the file of --config",
        ),
        ("mode = \"always\"", "RULES: mode: only rules stand here"),
        (
            "[[jobs]]\nstart = \"a\"\nstatus = \"b\"\nid = \"job\"",
            "RULES: [[jobs]] #1: id: \"job\" is not a pointer",
        ),
    ] {
        let refusal = in_file(rules, "").unwrap_err();
        assert!(refusal.starts_with(said), "{refusal}");
    }
}

#[test]
fn rules_come_from_one_place_only() {
    let refusal = in_file(RULES, RULES).unwrap_err();
    assert_eq!(
        refusal,
        "SETTINGS: tasks.rules_file: and [[tools]] of SETTINGS are both set; rules come from one place only, \
         take one of them out"
    );
    let refusal = in_file(RULES, "rules = \"\"").unwrap_err();
    assert!(refusal.contains("tasks.rules are both set"), "{refusal}");
    let both = [
        ("RAINCHECK_TASKS__RULES", RULES),
        ("RAINCHECK_TASKS__RULES_FILE", "/x"),
    ];
    let refusal = from_environment(&both).unwrap_err().to_string();
    assert!(
        refusal.starts_with("RAINCHECK_TASKS__RULES_FILE: and RAINCHECK_TASKS__RULES are both set"),
        "{refusal}"
    );
}

#[test]
fn a_missing_file_is_named_and_an_empty_one_is_told_of() {
    let refusal = from_environment(&[("RAINCHECK_TASKS__RULES_FILE", "/none/rules.toml")]);
    assert_eq!(
        refusal.unwrap_err().to_string(),
        "RAINCHECK_TASKS__RULES_FILE: /none/rules.toml: cannot be read: No such file or directory"
    );
    let misplaced = super::refusal("rules_file = '/x'");
    assert_eq!(
        misplaced,
        "config.toml: rules_file: unknown key; it belongs into [tasks]"
    );
    let config = in_file("# later\n", "").unwrap();
    assert_eq!(
        config.unused,
        [("tasks.rules_file", "there is no [[tools]] in it")]
    );
}
