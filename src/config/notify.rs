//! Turns each `[[notify]]` into a receiver of webhooks.

use std::time::Duration;

use hyper::Uri;

use super::file_notify::Notify;
use super::otel::uri;
use super::problem::Problem;
use super::secret::Secret;
use super::settings::NotifySettings;
use crate::notify::destination::{self, DestinationError};
use crate::notify::signature::WebhookSecret;
use crate::task::glob::Glob;
use crate::task::notices::{NoticeState, ReceiverId};

/// Each receiver has a job and connections of its own, and a place in the record of each task.
const RECEIVERS_MAX: usize = 16;

/// A shorter time leaves no second attempt, and a longer one keeps notices that no operator waits for.
const RETRY_MIN: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_hours(24);

/// The secret of the example and of the specification, which everybody knows.
const PUBLISHED: [&str; 2] = [
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
];

pub(super) fn receivers(written: Vec<Notify>) -> Result<Vec<NotifySettings>, Problem> {
    if written.len() > RECEIVERS_MAX {
        let text = format!("{} receivers; the most are {RECEIVERS_MAX}", written.len());
        return Err(Problem::new("notify", text));
    }
    let mut checked: Vec<NotifySettings> = Vec::with_capacity(written.len());
    for (place, receiver) in written.into_iter().enumerate() {
        let key = format!("notify.{place}");
        let receiver = one(receiver, &key)?;
        // The address identifies a receiver in the records of tasks, so two entries with it would be one there.
        if checked.iter().any(|other| other.url == receiver.url) {
            let text = "is the address of another [[notify]]; write each receiver once";
            return Err(Problem::new(format!("{key}.url"), text));
        }
        checked.push(receiver);
    }
    Ok(checked)
}

fn one(written: Notify, key: &str) -> Result<NotifySettings, Problem> {
    let refused = |setting: &str, text: String| Problem::new(format!("{key}.{setting}"), text);
    let url = written.url.unwrap_or_default();
    let url = address(&url, written.allow_private).map_err(|text| refused("url", text))?;
    let newest = written.secret.ok_or_else(|| {
        let text = "not set; write \"whsec_\" and the base64 of 32 random bytes, such as \
                    `echo whsec_$(openssl rand -base64 32)` makes, or set secret_file";
        refused("secret", text.into())
    })?;
    let newest = secret(&newest).map_err(|text| refused("secret", text))?;
    let previous = written.secret_previous.as_ref().map(secret).transpose();
    let previous = previous.map_err(|text| refused("secret_previous", text))?;
    let states = written.states.iter().map(|word| {
        let known = NoticeState::ALL.into_iter().find(|it| it.word() == word);
        known.ok_or_else(|| {
            let known = NoticeState::ALL.map(|it| format!("{:?}", it.word()));
            refused(
                "states",
                format!("{word:?} is not one of {}", known.join(", ")),
            )
        })
    });
    let states = states.collect::<Result<Vec<_>, _>>()?;
    if states.is_empty() {
        return Err(refused("states", "is empty: nothing would be told".into()));
    }
    let tools = written.tools.iter().map(|glob| {
        let parsed = Glob::parse(glob);
        parsed.map_err(|error| refused("tools", format!("{glob:?} is not a glob: {error}")))
    });
    let tools = tools.collect::<Result<Vec<_>, _>>()?;
    if tools.is_empty() {
        return Err(refused("tools", "is empty: nothing would be told".into()));
    }
    if !(RETRY_MIN..=RETRY_MAX).contains(&written.retry_for) {
        return Err(refused(
            "retry_for",
            "must be from \"5s\" to \"24h\"".into(),
        ));
    }
    Ok(NotifySettings {
        receiver: ReceiverId::of(&url.to_string()),
        url,
        secrets: std::iter::once(newest).chain(previous).collect(),
        states,
        tools,
        retry_for: written.retry_for,
        allow_private: written.allow_private,
    })
}

/// The texts of secrets are not quoted.
fn secret(written: &Secret) -> Result<WebhookSecret, String> {
    if PUBLISHED.contains(&written.expose().trim()) {
        return Err(
            "is an example, which everybody knows; write your own, such as \
                    `echo whsec_$(openssl rand -base64 32)` makes"
                .into(),
        );
    }
    WebhookSecret::parse(written.expose())
        .ok_or_else(|| "is not \"whsec_\" and the base64 of 24 to 64 bytes".into())
}

/// The address of a receiver. What it leads to is checked again at each attempt.
fn address(text: &str, allow_private: bool) -> Result<Uri, String> {
    if text.is_empty() {
        return Err(
            "not set; write where webhooks go: \"https://hooks.example.com/raincheck\"".into(),
        );
    }
    // Not quoted: a part of it may be secret.
    let url = uri(text).filter(|url| url.host().is_some_and(|host| !host.is_empty()));
    let url = url.ok_or("is not an address; write \"https://hooks.example.com/raincheck\"")?;
    match destination::check(&url, allow_private) {
        Ok(()) => Ok(url),
        Err(DestinationError::Unusual) => {
            Err("is an address in an unusual form; write it as \"203.0.113.7\"".into())
        }
        Err(DestinationError::Private) => Err(
            "is an address of this machine or its network; set allow_private = true if it is meant"
                .into(),
        ),
        Err(DestinationError::Unencrypted) if allow_private => {
            Err("must begin with \"https\": it is not in your own network".into())
        }
        Err(DestinationError::Unencrypted) => Err("must begin with \"https\"; http is for receivers in your own network, with allow_private = true".into()),
    }
}
