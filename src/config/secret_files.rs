//! Secrets that the settings do not hold themselves: `KEY_file` names a file that has the value of `KEY`.

use std::collections::BTreeMap;
use std::io::Read as _;

use super::file::File;
use super::problem::Problem;
use super::scalar::SecretText;
use super::secret::Secret;
use crate::io_reason::io_reason;

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

/// The text of the file without the byte order mark and the line end that editors and `echo` leave.
fn secret(key: &str, path: &str) -> Result<Secret, Problem> {
    let refused = |text: String| Problem::new(key, text);
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| refused(format!("{path} cannot be read: {}", io_reason(&error))))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(refused(format!(
            "{path} is larger than 64 KiB: it is no secret"
        )));
    }
    // Editors of Windows begin a file with this character.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(refused(format!("{path} is empty")));
    }
    Ok(Secret::new(text))
}
