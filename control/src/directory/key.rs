//! API keys: `rvk_<id>_<secret>`, kept as fingerprints only.

use core::fmt;

use data_encoding::{BASE32_NOPAD, HEXLOWER_PERMISSIVE};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

const PREFIX: &str = "rvk_";
const ID_LEN_MAX: usize = 32;
/// A secret shorter than this can be guessed.
const SECRET_LEN_MIN: usize = 16;
const SECRET_LEN_MAX: usize = 128;

pub(super) const ID_RULE: &str = "expected 1 to 32 of the characters a-z, A-Z, 0-9 and -";

pub(super) fn is_id(text: &str) -> bool {
    (1..=ID_LEN_MAX).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
}

/// A text that is no API key. It does not repeat the text, which may be a mistyped secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected rvk_<id>_<secret>, the secret 16 to 128 of the characters a-z, A-Z, 0-9 and -")]
pub struct MalformedKey;

/// An API key with its secret. Never printed, wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct ApiKey {
    #[zeroize(skip)]
    id: String,
    secret: String,
}

impl ApiKey {
    /// A new key made of random bytes: 80 bits of id, 256 bits of secret.
    #[must_use]
    pub fn generate(id: [u8; 10], secret: [u8; 32]) -> Self {
        Self {
            id: BASE32_NOPAD.encode(&id).to_ascii_lowercase(),
            secret: BASE32_NOPAD.encode(&secret).to_ascii_lowercase(),
        }
    }

    /// Reads `rvk_<id>_<secret>`.
    ///
    /// # Errors
    /// When it is not of that form.
    pub fn parse(text: &str) -> Result<Self, MalformedKey> {
        let (id, secret) =
            text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).ok_or(MalformedKey)?;
        let secret_fits = (SECRET_LEN_MIN..=SECRET_LEN_MAX).contains(&secret.len())
            && secret.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-');
        if !is_id(id) || !secret_fits {
            return Err(MalformedKey);
        }
        Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
    }

    /// Its public part.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The whole key, secret included, to hand to its holder once.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, self.secret)
    }

    /// What is kept of its secret.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(*blake3::hash(self.secret.as_bytes()).as_bytes())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// BLAKE3 of a secret's text.
#[derive(Clone, Copy)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Compared with when the id is unknown. Should a secret ever hash to it, it still opens nothing.
    pub(super) const NOBODY: Self = Self([0; 32]);

    /// From 64 hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        Some(Self(bytes.try_into().ok()?))
    }

    /// Its 64 hexadecimal digits, as the configuration holds them.
    #[must_use]
    pub fn to_hex(&self) -> String {
        HEXLOWER_PERMISSIVE.encode(&self.0)
    }

    /// Whether both are the same; takes the same time whatever the answer.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_key_reads_back() {
        let key = ApiKey::generate([7; 10], [9; 32]);
        let again = ApiKey::parse(&key.to_text()).unwrap();
        assert_eq!(again.id(), key.id());
        assert!(again.fingerprint().matches(&key.fingerprint()));
        assert!(Fingerprint::from_hex(&key.fingerprint().to_hex()).unwrap().matches(&key.fingerprint()));
        assert!(!ApiKey::generate([7; 10], [8; 32]).fingerprint().matches(&key.fingerprint()));
        assert_eq!(format!("{key:?}"), format!("ApiKey {{ id: {:?}, .. }}", key.id()));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in [
            "",
            "rvk_",
            "rvk_id",
            "rvk__0123456789abcdef",
            "rvk_id_short",
            "rvk_id_0123456789abcde_",
            "rvx_id_0123456789abcdef",
            "rvk_i d_0123456789abcdef",
        ] {
            assert!(ApiKey::parse(text).is_err(), "{text}");
        }
    }
}
