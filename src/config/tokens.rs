//! Checks the tokens of operators and of the drain, and turns each `[[admin.operators]]` into an operator.

use super::file;
use super::problem::Problem;
use super::scalar::words;
use super::secret::Secret;
use super::settings::{NamedOperator, OperatorRole};
use crate::base::printable::one_line;
use crate::task::history::BY_MAX;

words!(OperatorRole: "read" => Self::Read; or "act" => Self::Act);

/// The most operators: each request compares the token of each.
const OPERATORS_MAX: usize = 100;

/// The shortest token: 16 random letters and digits cannot be guessed over a network.
const TOKEN_MIN: usize = 16;
const TOKEN_MAX: usize = 256;

/// The beginnings of the tokens in raincheck's documentation and manifests.
const PUBLISHED: [&str; 2] = ["a-long-random-text", "change-me"];

/// `nameless`: the token of the operator without a name, `admin.token`.
pub(super) fn operators(
    written: Vec<file::Operator>,
    nameless: Option<&Secret>,
) -> Result<Vec<NamedOperator>, Problem> {
    if written.len() > OPERATORS_MAX {
        let text = format!("{} operators; the most are {OPERATORS_MAX}", written.len());
        return Err(Problem::new("admin.operators", text));
    }
    let mut checked: Vec<NamedOperator> = Vec::with_capacity(written.len());
    for (place, operator) in written.into_iter().enumerate() {
        let key = |setting: &str| format!("admin.operators.{place}.{setting}");
        let name = operator.name.unwrap_or_default();
        check_name(&name).map_err(|text| Problem::new(key("name"), text))?;
        let token = operator.token.ok_or_else(|| {
            let text = "not set; write a random text, such as `openssl rand -hex 16` makes, or set token_file";
            Problem::new(key("token"), text)
        })?;
        check_token(&key("token"), token.expose())?;
        if checked.iter().any(|other| *other.name == *name) {
            let text = "is the name of another [[admin.operators]]; write each operator once";
            return Err(Problem::new(key("name"), text));
        }
        let mut others = checked.iter().map(|other| &other.token).chain(nameless);
        if others.any(|other| *other == token) {
            let text =
                "is the token of another operator, or admin.token; write one that nobody else has";
            return Err(Problem::new(key("token"), text));
        }
        checked.push(NamedOperator {
            name: name.into(),
            token,
            role: operator.role,
        });
    }
    Ok(checked)
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("not set; write who it is, such as \"ada\"".into());
    }
    // Logs and terminals show it inside a line.
    if one_line(name) != name || name.chars().count() > BY_MAX {
        return Err(format!(
            "is not one line of at most {BY_MAX} characters that can be seen, with single spaces"
        ));
    }
    Ok(())
}

/// Refuses a token that is easily guessed. The text of the token is not quoted, because it is a secret.
pub(super) fn check_token(setting: &str, token: &str) -> Result<(), Problem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c);
    if token.len() < TOKEN_MIN || token.len() > TOKEN_MAX || !token.chars().all(plain) {
        let text = "cannot be part of a path or is easily guessed; write 16 to 256 letters, digits, \
                    \"-\", \"_\", \".\" and \"~\"";
        return Err(Problem::new(setting, text));
    }
    if PUBLISHED.iter().any(|known| token.starts_with(known)) {
        let text = "is one of our examples, which everybody knows; write your own, such as \
                    `openssl rand -hex 16` makes";
        return Err(Problem::new(setting, text));
    }
    Ok(())
}
