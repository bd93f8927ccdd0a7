//! A wrapped server whose entry was edited since: what raincheck put there is taken out again.

use jsonc_parser::cst::CstInputValue;

use super::document::member;
use super::entry::{ENV_ALLOW, Entry, HEADERS, Launch, Server, UPSTREAM, URL, variable};

impl Entry {
    /// What this entry launches in front of its server.
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

    /// Lets a wrapped program see the variables that `env` has and raincheck keeps from it. Whether
    /// there were any.
    pub(super) fn allow_variables(&self) -> bool {
        if !self.arguments().iter().any(|word| word == "--") {
            return false;
        }
        let allowed = self.variable(ENV_ALLOW).unwrap_or_default();
        let mut names: Vec<_> = allowed.split(',').map(str::trim).collect();
        names.retain(|name| !name.is_empty());
        let before = names.len();
        let environment = self.environment();
        for (name, _) in &environment {
            if !name.starts_with("RAINCHECK_") && !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let is_changed = names.len() > before;
        if is_changed {
            self.set_variable(ENV_ALLOW, &names.join(","));
        }
        is_changed
    }

    /// Edits the entry so that its client launches or reaches `server` itself, with names that
    /// wrapping does not keep as `before` has them. Returns what to tell the user.
    pub(super) fn unwrap(&self, server: &Server, before: Option<&Self>) -> Option<String> {
        match server {
            Server::Program { command, .. } => {
                self.unwrap_program(command);
                None
            }
            Server::Address { url } => self.unwrap_address(url, before),
        }
    }

    fn unwrap_program(&self, command: &str) {
        self.set("command", command);
        let ours = self.arguments().iter().position(|word| word == "--");
        if let Some(args) = member(self.object(), "args").and_then(|args| args.array_value())
            && let Some(ours) = ours
        {
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
        let address = before.and_then(Self::address_member).unwrap_or("url");
        self.put_after("command", address, url.into());
        if !headers.is_empty() {
            self.put_after(address, "headers", CstInputValue::Object(headers));
        }
        self.remove("command");
        self.remove("args");
        self.take_variables(&[URL, HEADERS]);
        self.word("type")?;
        let kind = before.and_then(|before| before.word("type"));
        self.set("type", kind.as_deref().unwrap_or("http"));
        kind.is_none()
            .then(|| "its type was not kept; \"http\" is what most have".to_owned())
    }

    /// The headers that variables set now, under the names that they had. No case is of meaning.
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

    /// Takes the variables out that are named so or begin so, and `env` if it had no others.
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

/// `X_API_KEY` as people write headers.
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
