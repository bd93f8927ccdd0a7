//! The signature algorithms of tokens (RFC 7518, 8037): asymmetric ones only, so that a public key is never a secret. Pure.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
    RsaPublicKeyComponents, VerificationAlgorithm,
};

/// The signature algorithm of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

/// The shortest RSA key that counts.
const RSA_BITS_MIN: usize = 2048;

impl Algorithm {
    pub const ALL: [Self; 9] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];

    /// Its name in a token and in a key.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// `None`: there is none of that name here, as `none` and all of shared secrets.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    pub(super) fn is_rsa(self) -> bool {
        self.rsa().is_some()
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &RSA_PSS_2048_8192_SHA512,
            Self::Es256 | Self::Es384 | Self::EdDsa => return None,
        })
    }

    /// A public key of modulus and exponent. `None`: it is too short, or no key for this algorithm.
    pub(super) fn rsa_key(self, n: &[u8], e: &[u8]) -> Option<ParsedPublicKey> {
        let (n, e) = (without_zeros(n), without_zeros(e));
        let unused = n.first()?.leading_zeros() as usize;
        if n.len() * 8 - unused < RSA_BITS_MIN {
            return None;
        }
        let key = RsaPublicKeyComponents { n, e };
        key.to_parsed_public_key(self.rsa()?).ok()
    }

    /// A public key of bytes. `None`: it is no key for this algorithm.
    pub(super) fn key(self, bytes: &[u8]) -> Option<ParsedPublicKey> {
        let algorithm: &'static dyn VerificationAlgorithm = match self {
            Self::Es256 => &ECDSA_P256_SHA256_FIXED,
            Self::Es384 => &ECDSA_P384_SHA384_FIXED,
            Self::EdDsa => &ED25519,
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512 => {
                return None;
            }
        };
        ParsedPublicKey::new(algorithm, bytes).ok()
    }
}

/// Some issuers write a zero before the first bit.
fn without_zeros(number: &[u8]) -> &[u8] {
    let first = number.iter().position(|byte| *byte != 0);
    first
        .and_then(|first| number.get(first..))
        .unwrap_or_default()
}
