//! Signs messages as Standard Webhooks requires: HMAC-SHA256 over the id, the time and the body. Pure.

use std::fmt;

use aws_lc_rs::hmac;

use crate::mcp::base64;

/// The beginning of the text of a secret.
const PREFIX: &str = "whsec_";

/// The secret that a receiver shares with raincheck.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(Box<[u8]>);

impl WebhookSecret {
    /// Reads `whsec_` and the base64 of 24 to 64 bytes.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = base64::decode(text.trim().strip_prefix(PREFIX)?)?;
        let is_long_enough = (24..=64).contains(&bytes.len());
        is_long_enough.then(|| Self(bytes.into()))
    }

    /// One signature of the header `webhook-signature`. `at_s` is the value of `webhook-timestamp`.
    fn sign(&self, id: &str, at_s: u64, body: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let signed = hmac::sign(&key, format!("{id}.{at_s}.{body}").as_bytes());
        let mut text = "v1,".to_owned();
        base64::encode(signed.as_ref(), &mut text);
        text
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// The header `webhook-signature`: a signature under each secret, so that a receiver that knows one of them can verify.
pub fn signatures(secrets: &[WebhookSecret], id: &str, at_s: u64, body: &str) -> String {
    let all: Vec<String> = secrets.iter().map(|it| it.sign(id, at_s, body)).collect();
    all.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &str = r#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn a_signature_is_as_the_reference_libraries_make_it() {
        let secret = WebhookSecret::parse(SECRET).unwrap();
        assert_eq!(signatures(&[secret], ID, 1_614_265_330, BODY), SIGNATURE);
    }

    #[test]
    fn while_a_secret_is_replaced_both_sign() {
        let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let secrets = [other, SECRET].map(|text| WebhookSecret::parse(text).unwrap());
        let both = signatures(&secrets, ID, 1_614_265_330, BODY);
        let (first, second) = both.split_once(' ').unwrap();
        assert_eq!(second, SIGNATURE);
        assert!(first.starts_with("v1,") && first != second);
    }

    #[test]
    fn a_secret_is_of_24_to_64_bytes_and_never_printed() {
        let of = |length: usize| {
            let mut text = PREFIX.to_owned();
            base64::encode(&vec![7; length], &mut text);
            WebhookSecret::parse(&text)
        };
        assert!(of(23).is_none() && of(65).is_none());
        assert_eq!(format!("{:?}", of(24).unwrap()), "[secret]");
        assert!(of(64).is_some());
        for wrong in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_no"] {
            assert!(WebhookSecret::parse(wrong).is_none(), "{wrong}");
        }
    }
}
