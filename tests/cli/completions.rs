//! What a shell completes, and the pages for `man`.

use std::process::Command;

use super::raincheck;

#[test]
fn bash_completes_commands_and_flags() {
    let script = raincheck(&["completions", "bash"]);
    assert!(script.status.success());
    let script = String::from_utf8(script.stdout).unwrap();
    for (typed, expected) in [("st", "stdio store"), ("comp", "completions")] {
        let ask = format!(
            "{script}\nCOMP_WORDS=(raincheck {typed}); COMP_CWORD=1\n\
             _raincheck raincheck {typed} raincheck\nprintf '%s ' \"${{COMPREPLY[@]}}\""
        );
        let shell = Command::new("bash").args(["--norc", "-c", &ask]).output();
        let shell = shell.unwrap();
        let complaint = String::from_utf8_lossy(&shell.stderr);
        assert!(complaint.is_empty(), "{complaint}");
        assert_eq!(String::from_utf8_lossy(&shell.stdout).trim(), expected);
    }
}

#[test]
fn each_shell_has_a_script() {
    for shell in ["bash", "zsh", "fish"] {
        let script = raincheck(&["completions", shell]);
        let text = String::from_utf8(script.stdout).unwrap();
        assert!(script.status.success() && text.contains("wrap"), "{shell}");
    }
}

#[test]
fn there_is_a_page_for_each_command() {
    let folder = std::env::temp_dir().join(format!("raincheck-man-{}", std::process::id()));
    assert!(
        raincheck(&["man", folder.to_str().unwrap()])
            .status
            .success()
    );
    let help = raincheck(&["--help"]);
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(
        !help.contains('\x1b'),
        "no colours where nobody looks: {help}"
    );
    for (command, word) in [
        ("run", "upstream"),
        ("stdio", "upstream"),
        ("wrap", "undo"),
        ("check", "client"),
        ("call", "attach"),
        ("tasks", "list"),
        ("store", "move"),
    ] {
        assert!(help.contains(command), "{command}: {help}");
        let page = folder.join(format!("raincheck-{command}.1"));
        let page = std::fs::read_to_string(&page).unwrap();
        assert!(page.contains(".TH") && page.contains(word), "{command}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
