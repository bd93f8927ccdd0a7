//! Rules that are written beside the other settings: in a file of their own (`tasks.rules_file`), or as a text in the
//! environment (`tasks.rules`).

use std::path::Path;

use figment::value::Value;

use super::layer::Layer;
use super::problem::{ConfigError, ENVIRONMENT, ENVIRONMENT_PREFIX};

/// The keys of a file of rules.
const TOOLS: &str = "tools";
const JOBS: &str = "jobs";

/// The layer of the rules that one of these layers names. `None`: none of them does.
///
/// Rules come from one place only, because the first rule that matches counts: merged lists would have an order that
/// no user wrote.
pub(super) fn layer(layers: &[Layer]) -> Result<Option<Layer>, ConfigError> {
    let file = named(layers, "rules_file");
    let text = named(layers, "rules");
    let own = [TOOLS, JOBS].into_iter().find_map(|key| {
        let mut written = layers.iter();
        let layer = written.find(|layer| layer.settings.contains_key(key))?;
        Some((key, layer))
    });
    let both = |one: &str, other: String| {
        let text = format!(
            "{one}: and {other} are both set; rules come from one place only, take one of them out"
        );
        Err(ConfigError::new(text))
    };
    let (rules, place) = match (file, text) {
        (None, None) => return Ok(None),
        (Some((place, _)), Some((other, _))) => return both(&place, other),
        (Some((place, path)), None) => {
            let rules = Layer::of_file(Path::new(path), &format!("{place}:"))?;
            (rules, place)
        }
        (None, Some((place, text))) => (Layer::of_text(place.clone(), text)?, place),
    };
    if let Some((key, own)) = own {
        return both(&place, format!("[[{key}]] of {}", own.name));
    }
    let is_other = |key: &&String| *key != TOOLS && *key != JOBS;
    if let Some(other) = rules.settings.keys().find(is_other) {
        let name = &rules.name;
        return Err(ConfigError::new(format!(
            "{name}: {other}: only rules stand here, as [[tools]] and [[jobs]]; all else belongs into the file of --config"
        )));
    }
    Ok(Some(rules))
}

/// The text of a setting of `[tasks]`, with what names it. The last layer that has it counts.
fn named<'l>(layers: &'l [Layer], key: &str) -> Option<(String, &'l str)> {
    layers.iter().rev().find_map(|layer| {
        let Some(Value::Dict(_, tasks)) = layer.settings.get("tasks") else {
            return None;
        };
        let Value::String(_, text) = tasks.get(key)? else {
            return None;
        };
        let place = if layer.name == ENVIRONMENT {
            format!("{ENVIRONMENT_PREFIX}TASKS__{}", key.to_uppercase())
        } else {
            format!("{}: tasks.{key}", layer.name)
        };
        Some((place, &**text))
    })
}
