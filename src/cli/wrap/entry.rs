//! One server's entry in a client's settings, and the edit that makes the client launch raincheck in front of
//! it.

use std::fmt;
use std::path::Path;

use jsonc_parser::cst::{CstInputValue, CstNode, CstObject, CstObjectProp};

use super::options::LaunchOptions;
use crate::config::load::{Flags, load};

#[derive(Clone)]
pub(super) struct ServerEntry(CstObject);

/// The way a client reaches a server. Prints without the parts that may be secret: arguments, paths and
/// queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerSpec {
    Program {
        command: String,
        arguments: Vec<String>,
    },
    Address {
        url: String,
    },
}

/// The way the client launches raincheck in front of a server.
pub(super) struct Launch {
    pub(super) raincheck: String,
    /// The options of `raincheck stdio`.
    pub(super) options: Vec<String>,
    /// The variables that raincheck's settings let the server see.
    pub(super) allowed: Vec<String>,
}

pub(super) enum Runs {
    Plain(ServerSpec),
    /// The entry launches raincheck, in front of the server that its arguments name.
    Wrapped(Option<ServerSpec>),
    Unknown,
}

/// The members that hold a server's address, in various clients.
const ADDRESSES: [&str; 3] = ["url", "serverUrl", "httpUrl"];

/// The beginning of the variables that configure raincheck's server.
pub(super) const UPSTREAM: &str = "RAINCHECK_UPSTREAM__";
pub(super) const ENV_ALLOW: &str = "ENV_ALLOW";
pub(super) const URL: &str = "URL";
pub(super) const HEADERS: &str = "HEADERS__";

/// Members with which a client signs in to a server by itself. Clients do not sign in to a program that they
/// launch.
const SIGN_IN: [&str; 4] = ["auth", "authProviderType", "headersHelper", "oauth"];

impl ServerEntry {
    pub(super) fn new(object: CstObject) -> Self {
        Self(object)
    }

    pub(super) fn object(&self) -> &CstObject {
        &self.0
    }

    pub(super) fn node(&self) -> CstNode {
        self.0.clone().into()
    }

    pub(super) fn text(&self) -> String {
        self.0.to_string()
    }

    pub(super) fn runs(&self) -> Runs {
        if let Some(command) = self.word("command") {
            let arguments = self.arguments();
            let name = Path::new(&command).file_stem();
            let is_ours = name.is_some_and(|name| name == "raincheck")
                && arguments.first().is_some_and(|word| word == "stdio");
            return if is_ours {
                Runs::Wrapped(behind(&arguments).or_else(|| self.address()))
            } else {
                Runs::Plain(ServerSpec::Program { command, arguments })
            };
        }
        let address = self.address_member().and_then(|name| self.word(name));
        address.map_or(Runs::Unknown, |url| {
            Runs::Plain(ServerSpec::Address { url })
        })
    }

    /// Edits the entry so that raincheck is launched, and returns the notes for the user.
    pub(super) fn wrap(&self, server: &ServerSpec, launch: &Launch) -> Result<Vec<String>, String> {
        match server {
            ServerSpec::Program { command, .. } => {
                let args = member(&self.0, "args");
                if args.is_some_and(|args| args.array_value().is_none()) {
                    return Err(
                        "has args that are no list; write \"args\": [\"one\", \"two\"]".into(),
                    );
                }
                Ok(self.wrap_program(command, launch))
            }
            ServerSpec::Address { url } => self.wrap_address(url, launch),
        }
    }

    fn wrap_program(&self, command: &str, launch: &Launch) -> Vec<String> {
        self.set("command", &launch.raincheck);
        let first = [
            &["stdio".to_owned()],
            launch.options.as_slice(),
            &["--".into(), command.into()],
        ]
        .concat();
        match member(&self.0, "args").and_then(|args| args.array_value()) {
            Some(args) => {
                // Inserted one by one, so that the arguments that are there keep their comments and line breaks.
                for word in first.into_iter().rev() {
                    args.insert(0, word.into());
                }
            }
            None => self.put_after("command", "args", words(first)),
        }
        // A program that raincheck runs sees only the allowed variables, and the client set these variables
        // for the program.
        let environment = self.environment().into_iter();
        let mut names: Vec<_> = environment.map(|(name, _)| name).collect();
        if !names.is_empty() {
            // The variable replaces the list in raincheck's settings, so it must name these, too.
            for name in &launch.allowed {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
            self.set_variable(ENV_ALLOW, &names.join(","));
        }
        let has_file = member(&self.0, "envFile").is_some();
        has_file
            .then(|| {
                "of what envFile sets, the server sees what RAINCHECK_UPSTREAM__ENV_ALLOW names \
                 (a list with commas, in env)"
                    .to_owned()
            })
            .into_iter()
            .collect()
    }

    fn wrap_address(&self, url: &str, launch: &Launch) -> Result<Vec<String>, String> {
        if let Some(name) = SIGN_IN.iter().find(|name| member(&self.0, name).is_some()) {
            return Err(format!(
                "{name:?} lets the client sign in, which it does for no program that it launches; \
                 put `raincheck run --upstream` in front of the server, and its address here"
            ));
        }
        if self.word("type").is_some_and(|kind| kind == "ws") {
            return Err("speaks over a WebSocket, which raincheck does not".to_owned());
        }
        if url.contains('@') {
            return Err("credentials in a URL are not used; write them as headers".to_owned());
        }
        let headers = self.headers()?;
        let address = self.address_member().unwrap_or_default();
        self.put_after(address, "command", launch.raincheck.as_str().into());
        // A query often carries a key, and every user of the machine can read arguments.
        let has_query = url.contains('?');
        let mut arguments = [&["stdio".to_owned()], launch.options.as_slice()].concat();
        if !has_query {
            arguments.extend(["--upstream".to_owned(), url.to_owned()]);
        }
        self.put_after("command", "args", words(arguments));
        if has_query {
            self.set_variable(URL, url);
        }
        // Removed after the new members, which are put at its place.
        self.remove(address);
        for (name, value) in &headers {
            self.set_variable(&format!("{HEADERS}{}", variable(name)?), value);
        }
        // The headers are variables of raincheck now, and a program has none.
        self.remove("headers");
        if member(&self.0, "type").is_some() {
            self.set("type", "stdio");
        }
        let signs_in = url.starts_with("https:")
            && !headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        let note = "if this server asks for a sign-in (OAuth), it cannot be reached this way";
        Ok(signs_in.then(|| note.to_owned()).into_iter().collect())
    }

    /// Checks the settings as raincheck would when the client starts it.
    pub(super) fn verify(
        &self,
        server: &ServerSpec,
        options: &LaunchOptions,
    ) -> Result<(), String> {
        let (upstream, command) = match server {
            ServerSpec::Program { command, arguments } => {
                let all = [std::slice::from_ref(command), arguments].concat();
                (None, all)
            }
            // Only the client knows the value that it inserts.
            ServerSpec::Address { url } if url.contains("${") => return Ok(()),
            ServerSpec::Address { url } => (Some(url.clone()), Vec::new()),
        };
        let flags = Flags {
            config: options.config.clone(),
            upstream,
            store: options.store.clone(),
            namespace: options.namespace.clone(),
            for_one_client: true,
            command,
            ..Flags::default()
        };
        // The client starts raincheck with the variables of the entry, and not with those of this process.
        load(&flags, &self.environment())
            .map(|_| ())
            .map_err(|e| e.to_string())
    }

    /// The server's address in raincheck's environment.
    fn address(&self) -> Option<ServerSpec> {
        let url = self.variable(URL)?;
        Some(ServerSpec::Address { url })
    }

    /// The name of the member that holds the address.
    pub(super) fn address_member(&self) -> Option<&'static str> {
        ADDRESSES.into_iter().find(|name| self.word(name).is_some())
    }

    /// The value of a variable that configures raincheck's server.
    pub(super) fn variable(&self, setting: &str) -> Option<String> {
        let mut variables = self.environment().into_iter();
        let named = |name: &str| name.strip_prefix(UPSTREAM) == Some(setting);
        variables.find_map(|(name, value)| named(&name).then_some(value))
    }

    pub(super) fn headers(&self) -> Result<Vec<(String, String)>, String> {
        let Some(headers) = member(&self.0, "headers").and_then(|it| it.object_value()) else {
            return Ok(Vec::new());
        };
        let all = headers.properties().into_iter().map(|header| {
            let text = header.value().as_ref().and_then(text);
            header.decoded_name().zip(text).ok_or_else(|| {
                let at = header.decoded_name().unwrap_or_default();
                format!("the header {at:?} has no text as its value")
            })
        });
        all.collect()
    }

    /// The variables whose values are known to be text.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let env = member(&self.0, "env").and_then(|env| env.object_value());
        let variables = env.map(|env| env.properties()).unwrap_or_default();
        variables
            .into_iter()
            .filter_map(|it| {
                let value = it.value()?;
                let value = text(&value).unwrap_or_else(|| value.to_string());
                Some((it.decoded_name()?, value))
            })
            .collect()
    }

    pub(super) fn word(&self, name: &str) -> Option<String> {
        member(&self.0, name)?.value().as_ref().and_then(text)
    }

    /// The arguments. An argument that is no string is returned as its JSON text.
    pub(super) fn arguments(&self) -> Vec<String> {
        let args = member(&self.0, "args").and_then(|args| args.array_value());
        let all = args.map(|args| args.elements()).unwrap_or_default();
        all.iter()
            .map(|word| text(word).unwrap_or_else(|| word.to_string()))
            .collect()
    }

    pub(super) fn set(&self, name: &str, value: &str) {
        if let Some(prop) = member(&self.0, name) {
            prop.set_value(value.into());
        }
    }

    pub(super) fn remove(&self, name: &str) {
        if let Some(prop) = member(&self.0, name) {
            prop.remove();
        }
    }

    /// Puts a member after the member `other`, and removes an existing member of the same name.
    pub(super) fn put_after(&self, other: &str, name: &str, value: CstInputValue) {
        // Removed first, because that may move the place of the other member.
        self.remove(name);
        let at = member(&self.0, other).map_or(0, |prop| prop.property_index() + 1);
        self.0.insert(at, name, value);
    }

    pub(super) fn set_variable(&self, setting: &str, value: &str) {
        let name = format!("{UPSTREAM}{setting}");
        if let Some(env) = member(&self.0, "env").and_then(|env| env.object_value()) {
            match member(&env, &name) {
                Some(old) => old.set_value(value.into()),
                None => {
                    env.append(&name, value.into());
                }
            }
        } else {
            let env = CstInputValue::Object(vec![(name, value.into())]);
            self.put_after("args", "env", env);
        }
    }
}

impl fmt::Display for ServerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program { command, .. } => f.write_str(command),
            Self::Address { url } => {
                let origin = url.find("://").map_or(0, |at| at + 3);
                let (scheme, rest) = url.split_at_checked(origin).unwrap_or_default();
                let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
                let host = host.rsplit('@').next().unwrap_or_default();
                write!(f, "{scheme}{host}")
            }
        }
    }
}

/// The member of this name. Of several members the last counts, as in most parsers.
pub(super) fn member(object: &CstObject, name: &str) -> Option<CstObjectProp> {
    let named = |prop: &CstObjectProp| prop.decoded_name().as_deref() == Some(name);
    object.properties().into_iter().rev().find(named)
}

/// The server in the arguments of `raincheck stdio`.
fn behind(arguments: &[String]) -> Option<ServerSpec> {
    let ours = arguments.iter().position(|word| word == "--");
    // Arguments behind `--` belong to the program, and may look like options of raincheck.
    let (ours, theirs) = arguments.split_at_checked(ours.unwrap_or(arguments.len()))?;
    if let Some((command, arguments)) = theirs.split_first().and_then(|it| it.1.split_first()) {
        let (command, arguments) = (command.clone(), arguments.to_vec());
        return Some(ServerSpec::Program { command, arguments });
    }
    let at = ours.iter().position(|word| word == "--upstream")?;
    let url = ours.get(at + 1)?.clone();
    Some(ServerSpec::Address { url })
}

/// The part of a variable's name that names a header. A dash becomes an underscore.
pub(super) fn variable(header: &str) -> Result<String, String> {
    if header.contains('_') {
        return Err(format!(
            "the header {header:?} has an underscore, which no variable can say: put \
             [upstream.headers] into a file, name it with --config, and take the header out here"
        ));
    }
    Ok(header.to_uppercase().replace('-', "_"))
}

fn text(node: &CstNode) -> Option<String> {
    node.as_string_lit()?.decoded_value().ok()
}

fn words(all: Vec<String>) -> CstInputValue {
    CstInputValue::Array(all.into_iter().map(CstInputValue::from).collect())
}
