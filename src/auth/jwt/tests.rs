//! Tokens of every kind, against the keys of an issuer that signs with each algorithm.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use serde_json::{Value, json};

use super::*;
use crate::auth::keys::KeySet;

const NOW_S: u64 = 1_000;
const OURS: &str = "https://tools.example/mcp";
const ISSUER: &str = "https://issuer.example";

/// A key of 1,024 bits, and a token that OpenSSL signed by it.
const SMALL_KEY: &str = "6WCTEy7TLtte6r5aPeYpdt-pHtoMJ0M9jM-qlz6XKHZXro4Gd7-2O0uCddkzz1OLnLVA4zefopyp9B0KHe3xX_WIHb5oW0QRvKWAgcCmhPyw8RMF43VfdrLENAGwJzilCUjQLZ0NdIrZuEji1L8z2rHsIAY3w76N34rfBaPAtwc";
const SMALL_TOKEN: &str = "eyJhbGciOiAiUlMyNTYiLCAia2lkIjogInNtYWxsIn0.eyJpc3MiOiAiaHR0cHM6Ly9pc3N1ZXIuZXhhbXBsZSIsICJhdWQiOiAiaHR0cHM6Ly90b29scy5leGFtcGxlL21jcCIsICJzdWIiOiAiYWxpY2UiLCAiZXhwIjogMjAwMH0.TiRbdGrHFVh4O-wfUeoI59j-tUgzDPstPqrHuN518OBDykiYJbQeZGPbS4S17bRIpHj8fLsLNi6BXI5EqECk5hzNQVNBNzOUSJ0p25wDU__Y3kHGzEtdXnSQG1vKgKHDr77SVXFsXm8rzQ25j5RRifTE-wRRUT6hk0O9JilFkYY";

/// The signer.
struct TestIssuer {
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
    ed: Ed25519KeyPair,
}

fn url(bytes: &[u8]) -> String {
    let mut text = String::new();
    crate::mcp::base64::encode(bytes, &mut text);
    text.trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_")
}

impl TestIssuer {
    fn new() -> Self {
        Self {
            rsa: RsaKeyPair::generate(KeySize::Rsa2048).unwrap(),
            ec: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
            ed: Ed25519KeyPair::generate().unwrap(),
        }
    }

    fn rsa_jwk(&self) -> Value {
        // DER of a modulus of 2,048 bits and the exponent 65537.
        let der = self.rsa.public_key().as_ref();
        let (n, e) = (&der[9..265], &der[267..]);
        json!({"kty": "RSA", "n": url(n), "e": url(e)})
    }

    fn ec_jwk(&self) -> Value {
        let point = self.ec.public_key().as_ref();
        json!({"kty": "EC", "crv": "P-256", "x": url(&point[1..33]), "y": url(&point[33..])})
    }

    fn ed_jwk(&self) -> Value {
        json!({"kty": "OKP", "crv": "Ed25519", "x": url(self.ed.public_key().as_ref())})
    }

    fn jwks(&self) -> String {
        let with = |mut key: Value, more: Value| {
            let members = key.as_object_mut().unwrap();
            members.extend(more.as_object().unwrap().clone());
            key
        };
        let key =
            json!({"kty": "RSA", "kid": "small", "alg": "RS256", "n": SMALL_KEY, "e": "AQAB"});
        let secret = json!({"kty": "oct", "kid": "secret", "alg": "HS256", "k": "c2VjcmV0"});
        let keys = [
            with(
                self.rsa_jwk(),
                json!({"kid": "rsa", "alg": "RS256", "use": "sig"}),
            ),
            with(
                self.rsa_jwk(),
                json!({"kid": "pss", "alg": "PS256", "key_ops": ["verify"]}),
            ),
            with(self.rsa_jwk(), json!({"kid": "bare"})),
            with(self.rsa_jwk(), json!({"kid": "enc", "use": "enc"})),
            with(
                self.rsa_jwk(),
                json!({"kid": "wrap", "key_ops": ["wrapKey"]}),
            ),
            with(self.rsa_jwk(), json!({"kid": "odd", "alg": "RS512"})),
            with(self.ec_jwk(), json!({"kid": "ec"})),
            with(self.ed_jwk(), json!({"kid": "ed", "alg": "Ed25519"})),
            with(self.rsa_jwk(), json!({"kid": "twice"})),
            with(self.ec_jwk(), json!({"kid": "twice"})),
            key,
            secret,
        ];
        json!({"keys": keys}).to_string()
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = format!(
            "{}.{}",
            url(header.to_string().as_bytes()),
            url(claims.to_string().as_bytes())
        );
        let random = SystemRandom::new();
        let rsa = |encoding: &'static dyn RsaEncoding| {
            let mut signature = vec![0; self.rsa.public_modulus_len()];
            self.rsa
                .sign(encoding, &random, message.as_bytes(), &mut signature)
                .unwrap();
            signature
        };
        let signature = match header["alg"].as_str().unwrap_or("RS256") {
            "PS256" => rsa(&RSA_PSS_SHA256),
            "ES256" => self
                .ec
                .sign(&random, message.as_bytes())
                .unwrap()
                .as_ref()
                .to_vec(),
            "EdDSA" => self.ed.sign(message.as_bytes()).as_ref().to_vec(),
            // By the public key, as if it were a secret.
            "HS256" => {
                use aws_lc_rs::hmac;
                let key = hmac::Key::new(hmac::HMAC_SHA256, self.rsa.public_key().as_ref());
                hmac::sign(&key, message.as_bytes()).as_ref().to_vec()
            }
            "none" => Vec::new(),
            _ => rsa(&RSA_PKCS1_SHA256),
        };
        format!("{message}.{}", url(&signature))
    }
}

const ALLOWED: [Algorithm; 4] = [
    Algorithm::Rs256,
    Algorithm::Ps256,
    Algorithm::Es256,
    Algorithm::EdDsa,
];

/// Returns the judgement of a token at `NOW_S`.
fn judged(jwks: &str, token: &str) -> Result<Verified, TokenFault> {
    let audience = [OURS.into()];
    let caller_claims = ["tenant".into()];
    let expected = Expected {
        audience: &audience,
        caller_claims: &caller_claims,
        label_claim: Some("email"),
    };
    let keys = KeySet::parse(jwks, &ALLOWED).unwrap();
    let token = Unverified::read(token)?;
    let signer = keys
        .signer(token.key_id.as_deref())
        .ok_or(TokenFault("no key"))?;
    token.verify(signer, &expected, NOW_S * 1_000)
}

fn claims(change: &Value) -> Value {
    let mut claims = json!({
        "iss": ISSUER, "aud": OURS, "sub": "alice", "exp": NOW_S + 60, "tenant": 7,
        "scope": "read run", "email": "alice@example.com",
    });
    let members = claims.as_object_mut().unwrap();
    for (name, value) in change.as_object().unwrap() {
        members.insert(name.clone(), value.clone());
        if value.is_null() {
            members.remove(name);
        }
    }
    claims
}

#[test]
fn a_good_token_says_whose_it_is() {
    let issuer = TestIssuer::new();
    let jwks = issuer.jwks();
    for (algorithm, key) in [
        ("RS256", "rsa"),
        ("RS256", "bare"),
        ("PS256", "pss"),
        ("ES256", "ec"),
        ("EdDSA", "ed"),
    ] {
        let token = issuer.sign(&json!({"alg": algorithm, "kid": key}), &claims(&json!({})));
        let verified = judged(&jwks, &token).unwrap_or_else(|fault| panic!("{key}: {fault:?}"));
        assert_eq!(verified.subject, "alice");
        assert_eq!(verified.caller_claims, ["tenant", "7"]);
        assert_eq!(verified.label.as_deref(), Some("alice@example.com"));
        assert_eq!(verified.scopes, ["read", "run"]);
        assert_eq!(verified.ends_at_ms, (NOW_S + 60) * 1_000 + LEEWAY_MS);
    }
}

#[test]
fn what_a_token_may_say_in_two_ways_is_read_in_both() {
    let issuer = TestIssuer::new();
    let jwks = issuer.jwks();
    for (header, change) in [
        (json!({"typ": "JWT"}), json!({})),
        (json!({"typ": "at+jwt"}), json!({})),
        (json!({"typ": "application/AT+JWT"}), json!({})),
        (json!({}), json!({"aud": ["https://other.example", OURS]})),
        (json!({}), json!({"scope": null, "scp": ["read", "run"]})),
        (json!({}), json!({"scope": null, "scp": "read run"})),
        (json!({}), json!({"exp": 970.5, "nbf": 1_030})),
    ] {
        let mut whole = json!({"alg": "ES256", "kid": "ec"});
        whole
            .as_object_mut()
            .unwrap()
            .extend(header.as_object().unwrap().clone());
        let verified = judged(&jwks, &issuer.sign(&whole, &claims(&change)));
        assert_eq!(
            verified.unwrap().scopes,
            ["read", "run"],
            "{header} {change}"
        );
    }
}

#[test]
fn each_claim_is_checked() {
    let issuer = TestIssuer::new();
    let jwks = issuer.jwks();
    for (change, fault) in [
        (json!({"aud": "https://other.example"}), AUDIENCE),
        (json!({"aud": format!("{OURS}/")}), AUDIENCE),
        (json!({"aud": []}), AUDIENCE),
        (json!({"aud": {"0": OURS}}), AUDIENCE),
        (json!({"aud": null}), AUDIENCE),
        (json!({"exp": null}), NO_END),
        (json!({"exp": "1060"}), NO_END),
        (json!({"exp": -1}), NO_END),
        (json!({"exp": 1e300}), NO_END),
        (json!({"exp": NOW_S - 30}), EXPIRED),
        (json!({"exp": 0}), EXPIRED),
        (json!({"nbf": NOW_S + 31}), NOT_YET),
        (json!({"nbf": "soon"}), NOT_YET),
        (json!({"sub": null}), NO_SUBJECT),
        (json!({"sub": ""}), NO_SUBJECT),
        (json!({"sub": 7}), NO_SUBJECT),
        (json!({"tenant": null}), NO_SUBJECT),
        (json!({"tenant": ["a"]}), NO_SUBJECT),
        (json!({"iss": null}), UNREADABLE),
    ] {
        let token = issuer.sign(&json!({"alg": "RS256", "kid": "rsa"}), &claims(&change));
        assert_eq!(judged(&jwks, &token), Err(fault), "{change}");
    }
}

#[test]
fn no_key_signs_for_another_and_no_token_chooses_its_algorithm() {
    let issuer = TestIssuer::new();
    let jwks = issuer.jwks();
    let no_key = TokenFault("no key");
    for (header, fault) in [
        (json!({"alg": "none"}), ALGORITHM),
        (json!({"alg": "None", "kid": "rsa"}), ALGORITHM),
        (json!({"alg": "none", "kid": "rsa"}), ALGORITHM),
        (json!({"alg": "HS256", "kid": "rsa"}), ALGORITHM),
        (json!({"alg": "HS256", "kid": "secret"}), ALGORITHM),
        (json!({"alg": "rs256", "kid": "rsa"}), ALGORITHM),
        (json!({"alg": 7, "kid": "rsa"}), ALGORITHM),
        (json!({"alg": "PS256", "kid": "rsa"}), ALGORITHM),
        (json!({"alg": "RS256", "kid": "pss"}), ALGORITHM),
        (json!({"alg": "PS256", "kid": "bare"}), ALGORITHM),
        (json!({"alg": "ES256", "kid": "rsa"}), ALGORITHM),
        (json!({"alg": "RS384", "kid": "rsa"}), ALGORITHM),
        (json!({"alg": "RS512", "kid": "odd"}), no_key),
        (json!({"alg": "RS256", "kid": "enc"}), no_key),
        (json!({"alg": "RS256", "kid": "wrap"}), no_key),
        (json!({"alg": "RS256", "kid": "twice"}), no_key),
        (json!({"alg": "RS256", "kid": "other"}), no_key),
        (json!({"alg": "RS256"}), no_key),
        (json!({"alg": "RS256", "kid": 7}), UNREADABLE),
        (json!({"alg": "RS256", "kid": "rsa", "crit": []}), CRITICAL),
        (
            json!({"alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": false}),
            CRITICAL,
        ),
        (
            json!({"alg": "RS256", "kid": "rsa", "typ": "logout+jwt"}),
            TYPE,
        ),
        (json!({"alg": "RS256", "kid": "rsa", "typ": 1}), TYPE),
    ] {
        let signed = issuer.sign(&header, &claims(&json!({})));
        assert_eq!(judged(&jwks, &signed), Err(fault), "{header}");
    }
}

#[test]
fn a_token_that_was_changed_does_not_count() {
    let (issuer, stranger) = (TestIssuer::new(), TestIssuer::new());
    let jwks = issuer.jwks();
    let header = json!({"alg": "RS256", "kid": "rsa"});
    let forged = stranger.sign(&header, &claims(&json!({})));
    assert_eq!(judged(&jwks, &forged), Err(SIGNATURE));
    let good = issuer.sign(&header, &claims(&json!({})));
    assert!(judged(&jwks, &good).is_ok());
    let (message, signature) = good.rsplit_once('.').unwrap();
    let (head, _) = message.split_once('.').unwrap();
    let others = url(claims(&json!({"sub": "bob"})).to_string().as_bytes());
    assert_eq!(
        judged(&jwks, &format!("{head}.{others}.{signature}")),
        Err(SIGNATURE)
    );
    assert_eq!(judged(&jwks, &format!("{message}.")), Err(SIGNATURE));
    let twice = r#"{"iss":"https://issuer.example","iss":"https://issuer.example"}"#;
    for (text, fault) in [
        (format!("{message}.{signature}="), UNREADABLE),
        (format!("{message}.{signature}.{signature}"), UNREADABLE),
        (format!("{head}.{}.{signature}", url(b"[]")), UNREADABLE),
        (
            format!("{head}.{}.{signature}", url(twice.as_bytes())),
            UNREADABLE,
        ),
        (format!("{}.{others}.{signature}", url(b"{")), UNREADABLE),
        ("opaque".to_owned(), NO_TOKEN),
        (message.to_owned(), NO_TOKEN),
        ("..".to_owned(), UNREADABLE),
        (String::new(), NO_TOKEN),
    ] {
        assert_eq!(judged(&jwks, &text), Err(fault), "{text}");
    }
}

#[test]
fn a_short_rsa_key_is_no_key() {
    let issuer = TestIssuer::new();
    assert_eq!(
        judged(&issuer.jwks(), SMALL_TOKEN),
        Err(TokenFault("no key"))
    );
    let only = json!({"keys": [{"kty": "RSA", "kid": "small", "n": SMALL_KEY, "e": "AQAB"}]});
    assert!(KeySet::parse(&only.to_string(), &ALLOWED).is_none());
}

#[test]
fn a_set_without_a_key_of_use_is_none() {
    for text in [
        "",
        "{}",
        "[]",
        r#"{"keys":{}}"#,
        r#"{"keys":[]}"#,
        r#"{"keys":[{"kty":"oct","k":"YQ"}]}"#,
    ] {
        assert!(KeySet::parse(text, &ALLOWED).is_none(), "{text}");
    }
    let issuer = TestIssuer::new();
    let one = json!({"keys": [issuer.ec_jwk()]}).to_string();
    assert!(KeySet::parse(&one, &[Algorithm::Rs256]).is_none());
    // The only key needs no name.
    let token = issuer.sign(&json!({"alg": "ES256"}), &claims(&json!({})));
    assert!(judged(&one, &token).is_ok());
    assert_eq!(
        judged(
            &one,
            &issuer.sign(&json!({"alg": "ES256", "kid": "x"}), &claims(&json!({})))
        ),
        Err(TokenFault("no key"))
    );
}
