//! Unwraps a server whose entry was edited after it was wrapped: removes what raincheck put there.

use std::path::Path;

use jsonc_parser::cst::CstInputValue;

use super::entry::{
    ENV_ALLOW, HEADERS, Launch, ServerEntry, ServerSpec, UPSTREAM, URL, member, variable,
};
use crate::config::load::allowed_variables;

impl ServerEntry {
    /// Returns the way this entry launches raincheck.
    pub(super) fn launch(&self) -> Launch {
        let arguments = self.arguments();
        let ours = arguments
            .iter()
            .position(|word| word == "--" || word == "--upstream");
        let ours = arguments.get(1..ours.unwrap_or(arguments.len()));
        let allowed = self.variable(ENV_ALLOW).unwrap_or_default();
        Launch {
            raincheck: self.word("command").unwrap_or_default(),
            options: ours.unwrap_or_default().to_vec(),
            allowed: allowed.split(',').map(str::to_owned).collect(),
        }
    }

    /// Allows the wrapped program to see the variables of `env` that raincheck would keep from it. Returns
    /// whether there were any. Fails with one line if raincheck's settings cannot be read.
    pub(super) fn allow_variables(&self) -> Result<bool, String> {
        // Only a program gets variables. A server with an address has none.
        if !self.arguments().iter().any(|word| word == "--") {
            return Ok(false);
        }
        let mut wanted = self.environment();
        // Variables of raincheck's own settings are not for the program.
        wanted.retain(|(name, _)| !name.starts_with("RAINCHECK_"));
        if wanted.is_empty() {
            return Ok(false);
        }
        let mut names = self.allowed()?;
        let before = names.len();
        for (name, _) in wanted {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let is_changed = names.len() > before;
        if is_changed {
            self.set_variable(ENV_ALLOW, &names.join(","));
        }
        Ok(is_changed)
    }

    /// The variables that the program sees now: the list in the entry, or else the list in raincheck's
    /// settings.
    fn allowed(&self) -> Result<Vec<String>, String> {
        if let Some(allowed) = self.variable(ENV_ALLOW) {
            let names = allowed.split(',').map(str::trim);
            return Ok(names
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect());
        }
        let Some(config) = config_of(&self.launch().options) else {
            return Ok(Vec::new());
        };
        allowed_variables(Path::new(&config)).map_err(|e| e.to_string())
    }

    /// Edits the entry so that its client launches or reaches `server` itself. Names that wrapping does not keep are
    /// taken from `before`. Returns the note for the user.
    pub(super) fn unwrap(&self, server: &ServerSpec, before: Option<&Self>) -> Option<String> {
        match server {
            ServerSpec::Program { command, .. } => {
                self.unwrap_program(command);
                None
            }
            ServerSpec::Address { url } => self.unwrap_address(url, before),
        }
    }

    fn unwrap_program(&self, command: &str) {
        self.set("command", command);
        let ours = self.arguments().iter().position(|word| word == "--");
        if let Some(args) = member(self.object(), "args").and_then(|args| args.array_value())
            && let Some(ours) = ours
        {
            // The words up to `--` are raincheck's own, and the one after it is the program, which `command` has now.
            for word in args.elements().into_iter().take(ours + 2) {
                word.remove();
            }
            if args.elements().is_empty() {
                self.remove("args");
            }
        }
        self.take_variables(&[ENV_ALLOW]);
    }

    fn unwrap_address(&self, url: &str, before: Option<&Self>) -> Option<String> {
        let headers = self.headers_again(before);
        // Without a backup the most usual name must do.
        let address = before.and_then(Self::address_member).unwrap_or("url");
        self.put_after("command", address, url.into());
        if !headers.is_empty() {
            self.put_after(address, "headers", CstInputValue::Object(headers));
        }
        // Removed after the new members, which take its place in the order.
        self.remove("command");
        self.remove("args");
        self.take_variables(&[URL, HEADERS]);
        self.word("type")?;
        let kind = before.and_then(|before| before.word("type"));
        self.set("type", kind.as_deref().unwrap_or("http"));
        kind.is_none()
            .then(|| "its type was not kept; \"http\" is what most have".to_owned())
    }

    /// The headers that variables set now, under their earlier names. Names are compared without regard to
    /// case.
    fn headers_again(&self, before: Option<&Self>) -> Vec<(String, CstInputValue)> {
        let names = before.and_then(|before| before.headers().ok());
        let names: Vec<_> = names
            .unwrap_or_default()
            .into_iter()
            .map(|it| it.0)
            .collect();
        let of_before = |upper: &str| {
            let is_it = |name: &&String| variable(name).is_ok_and(|it| it == upper);
            names.iter().find(is_it).cloned()
        };
        let start = format!("{UPSTREAM}{HEADERS}");
        self.environment()
            .into_iter()
            .filter_map(|(name, value)| {
                let upper = name.strip_prefix(&start)?;
                let name = of_before(upper).unwrap_or_else(|| title(upper));
                Some((name, value.as_str().into()))
            })
            .collect()
    }

    /// Removes the variables that have one of these names or prefixes, and `env` if it becomes empty.
    fn take_variables(&self, names: &[&str]) {
        let Some(env) = member(self.object(), "env").and_then(|env| env.object_value()) else {
            return;
        };
        for variable in env.properties() {
            let name = variable.decoded_name().unwrap_or_default();
            let ours = name.strip_prefix(UPSTREAM);
            if ours.is_some_and(|ours| names.iter().any(|name| ours.starts_with(name))) {
                variable.remove();
            }
        }
        if env.properties().is_empty() {
            self.remove("env");
        }
    }
}

/// The file that `--config` names among the options of a launch.
fn config_of(options: &[String]) -> Option<String> {
    let mut options = options.iter();
    while let Some(option) = options.next() {
        if option == "--config" {
            return options.next().cloned();
        }
        if let Some(path) = option.strip_prefix("--config=") {
            return Some(path.to_owned());
        }
    }
    None
}

/// The header name of `X_API_KEY` in its usual spelling: `X-Api-Key`.
fn title(upper: &str) -> String {
    let words: Vec<_> = upper
        .split('_')
        .map(|word| {
            let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
            format!("{first}{}", rest.to_lowercase())
        })
        .collect();
    words.join("-")
}
