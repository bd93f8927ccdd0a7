//! Mistakes on the command line, as their user reads them: one line, with what to do.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::failure::complain;

/// Prints help and version as they are. Reports every other error in one line.
pub(super) fn refuse(error: &clap::Error) -> ExitCode {
    let is_answer = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    if is_answer || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(u8::from(!is_answer) * 2);
    }
    complain(&one_line(error));
    ExitCode::from(2)
}

/// Clap's first sentence, and advice. The usage that clap adds is left to `--help`.
pub(super) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().take_while(|line| !line.is_empty());
    let first: Vec<&str> = first.map(str::trim).collect();
    let sentence = first.join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    format!("{sentence}; {}", advice(error, &text))
}

fn advice(error: &clap::Error, text: &str) -> String {
    let meant = match (
        error.get(ContextKind::SuggestedArg),
        error.get(ContextKind::SuggestedSubcommand),
    ) {
        (Some(ContextValue::String(meant)), _) => Some(meant),
        (_, Some(ContextValue::Strings(meant))) => meant.first(),
        _ => None,
    };
    if let Some(meant) = meant {
        return format!("did you mean {meant}?");
    }
    let unexpected = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument,
        _ => "",
    };
    let takes_command = text.contains("[-- <");
    if error.kind() == ErrorKind::UnknownArgument && takes_command && !unexpected.starts_with('-') {
        if ["http://", "https://"]
            .iter()
            .any(|scheme| unexpected.starts_with(scheme))
        {
            let is_call = command(text) == "raincheck call";
            let option = if is_call { "--url" } else { "--upstream" };
            return format!("did you mean {option} {unexpected}?");
        }
        return format!("the server's command comes after --, as in: -- {unexpected}");
    }
    format!("{} --help says what is", command(text))
}

/// The command of clap's line `Usage: raincheck tasks show [OPTIONS] <ID>`, without what follows.
fn command(text: &str) -> String {
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "));
    let is_name = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase());
    let words = usage.unwrap_or("raincheck").split(' ').take_while(is_name);
    words.collect::<Vec<_>>().join(" ")
}
