//! A typed refusal as it comes over UDP.

use core::fmt;

use rendezvous_shared::counter::Label;
use rendezvous_shared::outcome::{ConflictReason, Pool, QuotaScope};
use rendezvous_shared::wire::Code;

/// Why the server refused, from ACK or BOUND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What it came to; never [`Code::Ok`].
    pub code: Code,
    /// As on the wire: index of the conflict reason, pool or quota scope plus one; 0 for none.
    pub detail: u8,
}

impl Refused {
    /// The refusal `code` stands for; `None` for ok. A code this version does not know counts as
    /// `service_unavailable`: something was refused and nobody may assume more.
    pub(crate) fn from_wire(code: u8, detail: u8) -> Option<Self> {
        match Code::ALL.get(usize::from(code)) {
            Some(Code::Ok) => None,
            Some(&code) => Some(Self { code, detail }),
            None => Some(Self { code: Code::ServiceUnavailable, detail: 0 }),
        }
    }

    /// The name of the detail, such as `endpoint_already_bound`.
    #[must_use]
    pub fn detail_name(self) -> Option<&'static str> {
        let index = usize::from(self.detail.checked_sub(1)?);
        match self.code {
            Code::Conflict => ConflictReason::ALL.get(index).map(|it| it.name()),
            Code::CapacityExceeded => Pool::ALL.get(index).map(|it| it.name()),
            Code::QuotaExceeded => QuotaScope::ALL.get(index).map(|it| it.name()),
            _ => None,
        }
    }

    /// Whether the credential is of no more use and only registering again helps.
    #[must_use]
    pub const fn is_gone(self) -> bool {
        matches!(self.code, Code::NotFound | Code::Expired)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.name())?;
        self.detail_name().map_or(Ok(()), |detail| write!(f, "/{detail}"))
    }
}
