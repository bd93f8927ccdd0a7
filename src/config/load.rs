//! Loads the configuration: defaults < file < environment < flags. This is the only code that reads the environment.

use std::path::Path;
use std::sync::Arc;

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::file::File;
use super::host::Host;
use super::problem::{ConfigError, ENVIRONMENT, ENVIRONMENT_PREFIX, FLAG_KEYS, FLAGS, explain};
use super::secret::Secret;
use super::settings::Config;
pub use super::source::{Flags, Source};
use super::{secret_files, show};

/// Loads the settings again.
pub fn reload(source: &Source) -> Result<Config, ConfigError> {
    load(source.flags(), &environment())
}

/// The process's environment. Variables that are not Unicode are left out, because no setting is one.
pub fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Loads, merges and checks all layers. Every error is one line with its fix.
pub fn load(flags: &Flags, environment: &[(String, String)]) -> Result<Config, ConfigError> {
    let figment = merged(layers(flags, environment)?);
    let mut file: File = figment.extract().map_err(explain)?;
    secret_files::read(&mut file).map_err(|problem| problem.located(&figment))?;
    let host = Host::new(environment);
    let checked = Config::check(file, &host, environment, flags.for_one_client);
    let mut config = checked.map_err(|problem| problem.located(&figment))?;
    config.shown = Arc::new(effective(flags, environment)?);
    config.source = Source::new(flags);
    Ok(config)
}

/// All settings as they were written, or else their defaults, without secrets. Nothing is checked but the keys.
pub fn effective(
    flags: &Flags,
    environment: &[(String, String)],
) -> Result<serde_json::Value, ConfigError> {
    let mut defaults = Toml::from_str(show::DEFAULTS)
        .map_err(|_| ConfigError::new("the settings of the example cannot be read"))?;
    show::forget_example_server(&mut defaults);
    let mut all = vec![Layer {
        name: "defaults".into(),
        settings: defaults,
    }];
    all.extend(layers(flags, environment)?);
    let settings: Dict = merged(all).extract().map_err(explain)?;
    Ok(show::without_secrets(&settings))
}

/// How to reach the operators' listener of a raincheck with these settings.
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
    let flags = Flags {
        config: file.map(Path::to_owned),
        ..Flags::default()
    };
    let figment = merged(layers(&flags, environment)?);
    let mut file: File = figment.extract().map_err(explain)?;
    secret_files::admin_token(&mut file).map_err(|problem| problem.located(&figment))?;
    Ok(AdminAccess {
        listen: file.admin.listen,
        probes: file.admin.probes,
        token: file.admin.token,
    })
}

/// The URL at which clients reach a raincheck with these settings. `reachable` says how its address is written in a URL.
pub fn public_address(
    file: Option<&Path>,
    environment: &[(String, String)],
    reachable: impl FnOnce(&str) -> String,
) -> Result<String, ConfigError> {
    let flags = Flags {
        config: file.map(Path::to_owned),
        ..Flags::default()
    };
    let figment = merged(layers(&flags, environment)?);
    let file: File = figment.extract().map_err(explain)?;
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

/// What the file, the environment and the flags say, the weakest first.
fn layers(flags: &Flags, environment: &[(String, String)]) -> Result<Vec<Layer>, ConfigError> {
    let file = flags.config.as_deref().map(file_layer).transpose()?;
    let others = [environment_layer(environment), flag_layer(flags)];
    Ok(file.into_iter().chain(others).collect())
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
    let figment = Figment::new().merge(file_layer(path)?);
    let file: File = figment.extract().map_err(explain)?;
    Ok(file.upstream.env_allow)
}

/// One source of settings under the name that errors give it.
struct Layer {
    name: String,
    settings: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.settings.clone()))
    }
}

fn file_layer(path: &Path) -> Result<Layer, ConfigError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    let settings = Toml::from_str(&text).map_err(|e| {
        // Not its Display, which quotes the line, and with it perhaps a password.
        let before = e
            .span()
            .and_then(|span| text.get(..span.start))
            .unwrap_or_default();
        let line = before.matches('\n').count().saturating_add(1);
        let message = e.message().replace('\n', ", ");
        ConfigError::new(format!("{name}: line {line} is not TOML: {message}"))
    })?;
    Ok(Layer { name, settings })
}

/// Names the flag, because only a flag names a file, and the folder of a relative path: a service is often started in
/// another one than its user thinks.
fn unreadable(path: &Path, error: &std::io::Error) -> ConfigError {
    let text = error.to_string();
    let reason = text
        .split_once(" (os error")
        .map_or(&*text, |(reason, _)| reason);
    let folder = std::env::current_dir().ok().filter(|_| path.is_relative());
    let looked = folder.map(|folder| format!("; looked for in {}", folder.display()));
    let (path, looked) = (path.display(), looked.unwrap_or_default());
    ConfigError::new(format!("--config {path}: cannot be read: {reason}{looked}"))
}

/// `RAINCHECK_STORE__URL` is `store.url`. Only names with `__` count: a Kubernetes Service called
/// raincheck puts `RAINCHECK_PORT` and the like into every pod.
fn environment_layer(environment: &[(String, String)]) -> Layer {
    let mut settings = Dict::new();
    for (name, value) in environment {
        let Some(key) = name.strip_prefix(ENVIRONMENT_PREFIX) else {
            continue;
        };
        let path = header_name(setting(key));
        if path.len() > 1 && path.iter().all(|part| !part.is_empty()) {
            insert(&mut settings, &path, &Value::from(value.as_str()));
        }
    }
    Layer {
        name: ENVIRONMENT.into(),
        settings,
    }
}

/// Turns underscores in a header's name into dashes. Shells allow no dash in a variable, and headers use no underscore.
fn header_name(mut path: Vec<String>) -> Vec<String> {
    if let [upstream, headers, name] = path.as_mut_slice()
        && upstream == "upstream"
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
    if !matches!(section, Value::Dict(..)) {
        *section = Value::from(Dict::new());
    }
    if let Value::Dict(_, section) = section {
        insert(section, rest, value);
    }
}
