//! Identifiers. Each is a newtype; none is ever used where another is meant.
//!
//! [`ListingId`], [`AttemptId`] and [`RevocationId`] are 128 bits: an unguessable 64-bit tag, then the 64-bit [`Handle`] by
//! which the store finds the object without hashing anything a stranger chose. To everybody outside the store
//! they are opaque. In text they are a prefix and 26 digits of Crockford's base 32.

use core::fmt;
use core::str::FromStr;
use std::sync::LazyLock;

use data_encoding::{Encoding, Specification};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A tenant: a game or a studio. Everything is scoped by it. Numbered by the configuration's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

/// A principal, that is an authenticated caller within a tenant; the owner of what it creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalId(pub u32);

/// Where the store keeps an object: slot and generation. A handle whose generation passed finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// Random for each start of a server; part of every credential it issues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u64);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A sender's session: 64 random bits it chose when it last started counting its datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SessionId(pub u64);

/// The two sides of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Role {
    /// The publisher of the listing.
    Host = 1,
    /// The one who asked to join it.
    Joiner = 2,
}

impl Role {
    /// The role written as `byte` on the wire.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Host),
            2 => Some(Self::Joiner),
            _ => None,
        }
    }

    /// The opposite side.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Host => Self::Joiner,
            Self::Joiner => Self::Host,
        }
    }
}

/// Crockford's alphabet: no I, L, O or U; read without regard to case.
const CROCKFORD: &str = "0123456789abcdefghjkmnpqrstvwxyz";

static BASE32: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = Specification::new();
    specification.symbols.push_str(CROCKFORD);
    specification.translate.from.push_str("ABCDEFGHJKMNPQRSTVWXYZ");
    specification.translate.to.push_str("abcdefghjkmnpqrstvwxyz");
    #[expect(clippy::expect_used, reason = "the alphabet above is a constant; a test encodes with it")]
    specification.encoding().expect("Crockford's alphabet is a valid specification")
});

/// A text that is not an identifier of the kind asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `{prefix}` and 26 characters of Crockford base 32")]
pub struct MalformedId {
    prefix: &'static str,
}

macro_rules! public_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// Joins an unguessable tag and the handle of the object.
            #[must_use]
            pub const fn new(tag: u64, handle: Handle) -> Self {
                Self(((tag as u128) << 64) | handle.0 as u128)
            }

            /// Where the store keeps the object.
            #[must_use]
            pub const fn handle(self) -> Handle {
                Handle((self.0 & u64::MAX as u128) as u64)
            }

            /// The unguessable half; ids are in its order.
            #[must_use]
            pub const fn tag(self) -> u64 {
                (self.0 >> 64) as u64
            }

            /// The 16 bytes that stand for it on the wire, big-endian.
            #[must_use]
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.to_be_bytes()
            }

            /// The identifier that those 16 bytes stand for.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(u128::from_be_bytes(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                f.write_str(&BASE32.encode(&self.to_bytes()))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = MalformedId;

            fn from_str(text: &str) -> Result<Self, MalformedId> {
                let malformed = MalformedId { prefix: $prefix };
                let digits = text.strip_prefix($prefix).ok_or(malformed)?;
                let bytes = BASE32.decode(digits.as_bytes()).map_err(|_| malformed)?;
                Ok(Self::from_bytes(bytes.try_into().map_err(|_| malformed)?))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

public_id!(
    /// A listing. Listings are browsed in the order of their ids, which is no order of age.
    ListingId,
    "lst_"
);
public_id!(
    /// An attempt of one joiner at one listing.
    AttemptId,
    "att_"
);

public_id!(
    /// A revocation.
    RevocationId,
    "rev_"
);

/// The short code of an unlisted listing: 40 bits, 8 characters of Crockford's base 32, upper case in text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JoinCode([u8; 5]);

impl JoinCode {
    /// The code made of the low 40 bits of `random`.
    #[must_use]
    pub const fn from_random(random: u64) -> Self {
        let [_, _, _, a, b, c, d, e] = random.to_be_bytes();
        Self([a, b, c, d, e])
    }
}

impl fmt::Display for JoinCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE32.encode(&self.0).to_ascii_uppercase())
    }
}

impl fmt::Debug for JoinCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinCode(..)")
    }
}

/// A text that is not a join code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 8 characters of Crockford base 32")]
pub struct MalformedJoinCode;

impl FromStr for JoinCode {
    type Err = MalformedJoinCode;

    fn from_str(text: &str) -> Result<Self, MalformedJoinCode> {
        let bytes = BASE32.decode(text.as_bytes()).map_err(|_| MalformedJoinCode)?;
        Ok(Self(bytes.try_into().map_err(|_| MalformedJoinCode)?))
    }
}

impl Serialize for JoinCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text_in_either_case() {
        let id = ListingId::new(0x0123_4567_89ab_cdef, Handle(0xfedc_ba98_7654_3210));
        let text = id.to_string();
        assert_eq!(text.len(), 30);
        assert_eq!(text.parse(), Ok(id));
        let shouted = format!("lst_{}", text[4..].to_ascii_uppercase());
        assert_eq!(shouted.parse(), Ok(id));
        assert_eq!(id.handle(), Handle(0xfedc_ba98_7654_3210));
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        let attempt = AttemptId::new(1, Handle(2)).to_string();
        for text in ["", "lst_", "lst_0", attempt.as_str(), "lst_0000000000000000000000000u"] {
            assert!(text.parse::<ListingId>().is_err(), "{text}");
        }
        // 26 digits are 130 bits: the two spare ones must be zero, or one id would have four texts.
        assert!("lst_00000000000000000000000001".parse::<ListingId>().is_err());
    }

    #[test]
    fn a_join_code_has_eight_characters() {
        let code = JoinCode::from_random(0xffff_ff12_3456_789a);
        assert_eq!(code.to_string().len(), 8);
        assert_eq!(code.to_string().to_ascii_lowercase().parse(), Ok(code));
        assert_eq!("123".parse::<JoinCode>(), Err(MalformedJoinCode));
    }
}
