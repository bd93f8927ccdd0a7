//! Secrets that the settings do not hold themselves: `KEY_file` names a file that has the value of `KEY`.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use super::file::File;
use super::problem::Problem;
use super::scalar::SecretText;
use super::secret::Secret;
use crate::base::io_reason::io_reason;

/// The largest file that may hold a secret.
const BYTES_MAX: u64 = 64 * 1024;

/// Reads the files of secrets, each in place of its setting.
pub(super) fn read(file: &mut File) -> Result<(), Problem> {
    let store = &mut file.store;
    one("store.url", &mut store.url, store.url_file.as_deref())?;
    let key_file = store.seal_key_file.as_deref();
    one("store.seal_key", &mut store.seal_key, key_file)?;
    let key_file = store.seal_key_previous_file.as_deref();
    one(
        "store.seal_key_previous",
        &mut store.seal_key_previous,
        key_file,
    )?;
    admin_token(file)?;
    for (place, operator) in file.admin.operators.iter_mut().enumerate() {
        let path = operator.token_file.as_deref();
        one(&operator_key(place), &mut operator.token, path)?;
    }
    let token_file = file.drain.token_file.as_deref();
    one("drain.token", &mut file.drain.token, token_file)?;
    for (place, receiver) in file.notify.iter_mut().enumerate() {
        let key = format!("notify.{place}.secret");
        let path = receiver.secret_file.as_deref();
        one(&key, &mut receiver.secret, path)?;
        let path = receiver.secret_previous_file.as_deref();
        one(
            &format!("{key}_previous"),
            &mut receiver.secret_previous,
            path,
        )?;
    }
    let upstream = &mut file.upstream;
    all(
        "upstream.headers",
        &mut upstream.headers,
        "upstream.header_files",
        &upstream.header_files,
    )?;
    all(
        "upstream.env",
        &mut upstream.env,
        "upstream.env_files",
        &upstream.env_files,
    )?;
    let traces = &mut file.telemetry.traces;
    all(
        "telemetry.traces.headers",
        &mut traces.headers,
        "telemetry.traces.header_files",
        &traces.header_files,
    )
}

/// Reads the file of the operators' token only: who asks as an operator may not be able to read the other files.
pub(super) fn admin_token(file: &mut File) -> Result<(), Problem> {
    let admin = &mut file.admin;
    one("admin.token", &mut admin.token, admin.token_file.as_deref())
}

/// Reads the token of the first named operator whose token is there.
pub(super) fn named_token(file: &mut File) -> Option<Secret> {
    let mut operators = file.admin.operators.iter_mut().enumerate();
    operators.find_map(|(place, operator)| {
        // Not everybody can read the files of all operators.
        let path = operator.token_file.as_deref();
        one(&operator_key(place), &mut operator.token, path).ok()?;
        operator.token.take()
    })
}

fn operator_key(place: usize) -> String {
    format!("admin.operators.{place}.token")
}

fn one(key: &str, value: &mut Option<Secret>, path: Option<&str>) -> Result<(), Problem> {
    let Some(path) = path else { return Ok(()) };
    let file_key = format!("{key}_file");
    if value.is_some() {
        return Err(both(file_key, key));
    }
    *value = Some(secret(&file_key, path)?);
    Ok(())
}

fn all(
    section: &str,
    values: &mut BTreeMap<String, SecretText>,
    file_section: &str,
    paths: &BTreeMap<String, String>,
) -> Result<(), Problem> {
    for (name, path) in paths {
        let file_key = format!("{file_section}.{name}");
        if values.contains_key(name) {
            return Err(both(file_key, &format!("{section}.{name}")));
        }
        let value = SecretText(secret(&file_key, path)?);
        values.insert(name.clone(), value);
    }
    Ok(())
}

fn both(file_key: String, key: &str) -> Problem {
    let text = format!("and {key} are both set; take one of them out");
    Problem::new(file_key, text)
}

/// The path as an error may show it: a secret that was written in the place of its path is not shown.
fn shown(path: &str) -> &str {
    let directory = Path::new(path).parent();
    let is_there = directory.is_some_and(|it| !it.as_os_str().is_empty() && it.is_dir());
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    let is_path = ["/", "./", "../"]
        .iter()
        .any(|begin| path.starts_with(begin));
    let looks_so = is_path && path.bytes().all(is_plain) && path.matches('/').count() > 1;
    if is_there || looks_so {
        path
    } else {
        "the file that it names (not shown: it does not look like a path)"
    }
}

/// The text of the file without the byte order mark and the line end that editors and `echo` leave.
fn secret(key: &str, path: &str) -> Result<Secret, Problem> {
    let refused = |text: String| Problem::new(key, format!("{} {text}", shown(path)));
    let mut text = String::new();
    // One byte beyond the bound shows that the file is larger.
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| refused(format!("cannot be read: {}", io_reason(&error))))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(refused("is larger than 64 KiB: it is no secret".into()));
    }
    // Editors of Windows begin a file with this character.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(refused("is empty".into()));
    }
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_looks_like_a_path_is_shown() {
        for path in [
            "/run/secrets/seal-key",
            "/nonexistent",
            "./secrets/token",
            "../token.txt",
            "src/no such file",
        ] {
            assert_eq!(shown(path), path);
        }
        for secret in [
            "change-me-0123456789abcdef",
            "1f2e3d4c5b6a79880f1e2d3c4b5a6978",
            "rediss://:password@cache:6379/0",
            "Bearer abc/def",
            "abc/def+ghi==",
            "/9j4AAQSkZJRg+g/x==",
            "",
        ] {
            assert_ne!(shown(secret), secret);
        }
    }
}
