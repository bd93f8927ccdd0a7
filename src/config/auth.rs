//! Turns `[auth]` into the settings of authentication.

use super::file;
use super::problem::Problem;
use super::settings::AuthSettings;

pub(super) fn auth(written: file::Auth) -> Result<AuthSettings, Problem> {
    let auth = AuthSettings {
        allow_anonymous: written.allow_anonymous,
        tokens_file: written.tokens_file.map(Into::into),
    };
    if auth.allow_anonymous && auth.asks() {
        return Err(Problem::new(
            "auth.allow_anonymous",
            "is true, but auth.tokens_file is set, so that every client must say who it is; take one \
             of the two out",
        ));
    }
    Ok(auth)
}
