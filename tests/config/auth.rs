//! Who may call.

use super::*;

#[test]
fn anybody_and_nobody_but_some_are_no_setting() {
    assert_eq!(
        refusal("[auth]\nallow_anonymous = true\ntokens_file = 'tokens'"),
        "config.toml: auth.allow_anonymous: is true, but auth.tokens_file is set, so that every \
         client must say who it is; take one of the two out"
    );
    assert!(from_file("[auth]\ntokens_file = 'tokens'").auth.asks());
    assert!(!from_file("[auth]\nallow_anonymous = true").auth.asks());
    assert!(!from_file("").auth.asks());
}
