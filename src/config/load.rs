//! Loads the configuration: defaults < file < environment < flags. This is the only code that reads the environment.

use std::path::Path;
use std::sync::Arc;

use figment::Figment;
use figment::providers::{Format, Toml};
use figment::value::{Dict, Value};
use serde::Deserialize as _;

use super::file::File;
use super::fingerprints::fingerprints;
use super::host::Host;
use super::layer::Layer;
use super::problem::{
    ConfigError, ENVIRONMENT, ENVIRONMENT_PREFIX, FLAG_KEYS, FLAGS, Problem, explain,
};
use super::secret::Secret;
use super::settings::Config;
pub use super::source::{Flags, Source};
use super::{ignored, rules_file, secret_files, show};

/// The example file, which has every setting at its default.
pub const EXAMPLE: &str = include_str!("../../config.example.toml");

/// Loads the settings again.
pub fn reload(source: &Source) -> Result<Config, ConfigError> {
    load(source.flags(), &environment())
}

/// The process's environment. Variables that are not Unicode are left out, but a setting is not: without its token, a listener
/// would be open. Its value then has the character that stands for what cannot be read, and is refused.
pub fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            let value = match value.into_string() {
                Err(value) if name.starts_with(ENVIRONMENT_PREFIX) => {
                    value.to_string_lossy().into()
                }
                value => value.ok()?,
            };
            Some((name, value))
        })
        .collect()
}

/// Loads, merges and checks all layers. Every error is one line with its fix.
pub fn load(flags: &Flags, environment: &[(String, String)]) -> Result<Config, ConfigError> {
    // Each file is read once: it may change meanwhile, or be a pipe.
    let layers = all_layers(flags, environment)?;
    let figment = merged(layers.clone());
    let file = read(&figment)?;
    let format = file.telemetry.format;
    let checked = checked(file, &figment, flags, environment);
    let mut config = checked.map_err(|error| error.in_format(format))?;
    let written = written(layers)?;
    config.shown = Arc::new(show::without_secrets(written.clone()));
    config.fingerprints = Arc::new(fingerprints(&written));
    config.source = Source::new(flags);
    Ok(config)
}

/// OpenTelemetry's variables are no cause of a setting that is missing.
const OTHERS_PREFIX: &str = "OTEL_";

/// Checks the settings, and reads the secrets that they have in files.
fn checked(
    mut file: File,
    figment: &Figment,
    flags: &Flags,
    environment: &[(String, String)],
) -> Result<Config, ConfigError> {
    secret_files::read(&mut file).map_err(|problem| problem.located(figment))?;
    let host = Host::new(environment);
    let checked = Config::check(file, &host, environment, flags.for_one_client);
    let refused = |problem: Problem| with_ignored(&problem.located(figment), environment);
    checked.map_err(refused)
}

/// Also names the variables that look like settings and are not read, because the cause is probably there.
fn with_ignored(error: &ConfigError, environment: &[(String, String)]) -> ConfigError {
    let ignored = ignored::variables(environment);
    let ignored = ignored
        .iter()
        .filter(|(name, _)| !name.starts_with(OTHERS_PREFIX));
    let told = ignored.map(|(name, why)| format!("; {name}: {why}"));
    ConfigError::new(format!("{error}{}", told.collect::<String>()))
}

/// All settings as they were written, or else their defaults, without secrets. Nothing is checked but the keys.
pub fn effective(
    flags: &Flags,
    environment: &[(String, String)],
) -> Result<serde_json::Value, ConfigError> {
    let layers = all_layers(flags, environment)?;
    Ok(show::without_secrets(written(layers)?))
}

/// All settings as they were written, or else their defaults, with secrets.
fn written(layers: Vec<Layer>) -> Result<serde_json::Value, ConfigError> {
    let mut defaults = Toml::from_str(EXAMPLE)
        .map_err(|_| ConfigError::new("the settings of the example cannot be read"))?;
    show::forget_example_server(&mut defaults);
    let mut all = vec![Layer {
        name: "defaults".into(),
        settings: defaults,
    }];
    all.extend(layers);
    let settings = values(&merged(all))?;
    Ok(serde_json::to_value(settings).unwrap_or_default())
}

/// The addresses and the token of the operators' listener of a raincheck with these settings.
#[derive(Debug)]
pub struct AdminAccess {
    pub listen: Option<String>,
    pub probes: Option<String>,
    pub token: Option<Secret>,
}

/// Reads from the settings where operators ask, and with which token.
pub fn admin_access(
    file: Option<&Path>,
    environment: &[(String, String)],
) -> Result<AdminAccess, ConfigError> {
    let figment = own_settings(file, environment)?;
    let mut file = read(&figment)?;
    // An operator's own token is in the environment. The settings beside it may name the file of another one.
    let is_set = |name: &str| environment.iter().any(|(known, _)| known == name);
    if is_set("RAINCHECK_ADMIN__TOKEN") && !is_set("RAINCHECK_ADMIN__TOKEN_FILE") {
        file.admin.token_file = None;
    } else if is_set("RAINCHECK_ADMIN__TOKEN_FILE") && !is_set("RAINCHECK_ADMIN__TOKEN") {
        file.admin.token = None;
    }
    secret_files::admin_token(&mut file).map_err(|problem| problem.located(&figment))?;
    Ok(AdminAccess {
        listen: file.admin.listen,
        probes: file.admin.probes,
        token: file.admin.token,
    })
}

/// Returns the token of a named operator whose token the settings have: for a request that changes nothing, because it is not
/// this operator who asks.
pub fn named_token(
    file: Option<&Path>,
    environment: &[(String, String)],
) -> Result<Option<Secret>, ConfigError> {
    let mut file = read(&own_settings(file, environment)?)?;
    Ok(secret_files::named_token(&mut file))
}

/// The settings for somebody who asks a running raincheck: without the file of rules, which plays no part there and need not
/// be readable.
fn own_settings(
    file: Option<&Path>,
    environment: &[(String, String)],
) -> Result<Figment, ConfigError> {
    let flags = Flags {
        config: file.map(Path::to_owned),
        ..Flags::default()
    };
    Ok(merged(layers(&flags, environment)?))
}

/// Returns the URL at which clients reach a raincheck with these settings. `reachable` returns its address as it is
/// written in a URL.
pub fn public_address(
    file: Option<&Path>,
    environment: &[(String, String)],
    reachable: impl FnOnce(&str) -> String,
) -> Result<String, ConfigError> {
    let file = read(&own_settings(file, environment)?)?;
    let listen = file.listen;
    let scheme = if listen.tls.certificate.is_some() {
        "https"
    } else {
        "http"
    };
    Ok(format!(
        "{scheme}://{}{}",
        reachable(&listen.address),
        listen.path
    ))
}

/// Returns the settings of the file, the file of rules, the environment and the flags.
fn all_layers(flags: &Flags, environment: &[(String, String)]) -> Result<Vec<Layer>, ConfigError> {
    let mut layers = layers(flags, environment)?;
    layers.extend(rules_file::layer(&layers)?);
    Ok(layers)
}

/// Returns the settings of the file, the environment and the flags, the weakest first.
fn layers(flags: &Flags, environment: &[(String, String)]) -> Result<Vec<Layer>, ConfigError> {
    let file = flags
        .config
        .as_deref()
        .map(|path| Layer::of_file(path, "--config"));
    let file = file.transpose()?;
    let others = [environment_layer(environment)?, flag_layer(flags)];
    Ok(file.into_iter().chain(others).collect())
}

/// Reads the settings of all layers together.
///
/// The settings are read from the merged values and not from figment itself, whose reader has copies of two forms that are not
/// used here for each type of a setting: half a megabyte of program.
fn read(figment: &Figment) -> Result<File, ConfigError> {
    let values = Value::from(values(figment)?);
    File::deserialize(&values).map_err(|error| explain(error, figment))
}

fn values(figment: &Figment) -> Result<Dict, ConfigError> {
    figment.extract().map_err(|error| explain(error, figment))
}

fn merged(mut layers: Vec<Layer>) -> Figment {
    only_one_server(&mut layers);
    layers.into_iter().fold(Figment::new(), Figment::merge)
}

/// Keeps the server's address or command of the last layer that has either, because both are one setting.
fn only_one_server(layers: &mut [Layer]) {
    let mut is_named = false;
    for layer in layers.iter_mut().rev() {
        let Some(Value::Dict(_, upstream)) = layer.settings.get_mut("upstream") else {
            continue;
        };
        let names = ["url", "command"];
        if is_named {
            upstream.retain(|name, _| !names.contains(&name.as_str()));
        }
        is_named |= names.iter().any(|name| upstream.contains_key(*name));
    }
}

/// The variables that a settings file lets the wrapped program see.
pub fn allowed_variables(path: &Path) -> Result<Vec<String>, ConfigError> {
    let figment = Figment::new().merge(Layer::of_file(path, "--config")?);
    let file = read(&figment)?;
    Ok(file.upstream.env_allow)
}

/// `RAINCHECK_STORE__URL` is `store.url`. Only names with `__` count: a Kubernetes Service called
/// raincheck puts `RAINCHECK_PORT` and the like into every pod.
fn environment_layer(environment: &[(String, String)]) -> Result<Layer, ConfigError> {
    let mut settings = Dict::new();
    for (name, value) in environment {
        let Some(key) = name.strip_prefix(ENVIRONMENT_PREFIX) else {
            continue;
        };
        let path = header_name(setting(key));
        if path.len() > 1 && path.iter().all(|part| !part.is_empty()) {
            // `environment` puts this character in place of what is not UTF-8.
            if value.contains(char::REPLACEMENT_CHARACTER) {
                return Err(ConfigError::new(format!("{name}: is not UTF-8")));
            }
            insert(
                &mut settings,
                &path,
                &Value::from(without_line_end(&path, value)),
            );
        }
    }
    Ok(Layer {
        name: ENVIRONMENT.into(),
        settings,
    })
}

/// A value without the line end that a Secret of Kubernetes often has, as the files of secrets are read. The variables of
/// the wrapped program are the program's.
fn without_line_end<'v>(path: &[String], value: &'v str) -> &'v str {
    let of_program = matches!(path, [section, env, ..] if section == "upstream" && env == "env");
    let line = value.strip_suffix('\n').filter(|_| !of_program);
    line.map_or(value, |line| line.strip_suffix('\r').unwrap_or(line))
}

/// Turns underscores in a header's name into dashes. Shells allow no dash in a variable, and headers use no underscore.
fn header_name(mut path: Vec<String>) -> Vec<String> {
    if let [section, .., headers, name] = path.as_mut_slice()
        && (section == "upstream" || section == "telemetry")
        && (headers == "headers" || headers == "header_files")
    {
        *name = name.replace('_', "-");
    }
    path
}

/// The setting that a variable sets. The names of the wrapped program's own variables stay as they are.
fn setting(key: &str) -> Vec<String> {
    for section in ["env", "env_files"] {
        let prefix = format!("UPSTREAM__{}__", section.to_uppercase());
        if let Some(name) = key.strip_prefix(&prefix) {
            return ["upstream", section, name].map(str::to_owned).into();
        }
    }
    key.split("__").map(str::to_lowercase).collect()
}

fn flag_layer(flags: &Flags) -> Layer {
    let mut settings = Dict::new();
    for (flag, key) in FLAG_KEYS {
        let value = match flag {
            "--upstream" => &flags.upstream,
            "--listen" => &flags.listen,
            "--store" => &flags.store,
            "--namespace" => &flags.namespace,
            _ => &flags.log,
        };
        if let Some(value) = value {
            let path: Vec<String> = key.split('.').map(str::to_owned).collect();
            insert(&mut settings, &path, &Value::from(value.as_str()));
        }
    }
    if !flags.command.is_empty() {
        let path = ["upstream", "command"].map(str::to_owned);
        insert(&mut settings, &path, &Value::from(flags.command.clone()));
    }
    Layer {
        name: FLAGS.into(),
        settings,
    }
}

/// Inserts a value as text. Each setting parses its own text, so that a secret `007` does not become 7.
fn insert(settings: &mut Dict, path: &[String], value: &Value) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    if rest.is_empty() {
        settings.insert(first.clone(), value.clone());
        return;
    }
    let section = settings
        .entry(first.clone())
        .or_insert_with(|| Value::from(Dict::new()));
    // One variable may use a name as a setting and another as a section. The later one counts.
    if !matches!(section, Value::Dict(..)) {
        *section = Value::from(Dict::new());
    }
    if let Value::Dict(_, section) = section {
        insert(section, rest, value);
    }
}
