//! The endpoint in the other address family that a BIND names, and whether to wait for its proof.

use core::time::Duration;

use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::Cookie;
use zerocopy::FromZeros;

/// How long the first BIND waits for the other family's cookie: most round trips are shorter, and a family that is
/// configured and does not work must not cost a player more.
const WAIT_MAX: Duration = Duration::from_millis(250);
/// How soon a BIND whose second endpoint has no cookie is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// BINDs without an answer before the second endpoint is left out: the server may see it elsewhere, behind a
/// translator that nobody knows of, and is silent then. About 3 s; at 30 % loss one in 200 leaves it out in vain.
const UNANSWERED_MAX: u32 = 8;

/// This side's endpoint in the family that a BIND does not come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OtherFamily {
    /// As the server sees it.
    pub(crate) own: Endpoint,
    /// What proves it; `None` while it is being proved.
    pub(crate) cookie: Option<Cookie>,
}

/// What the BINDs of one attempt say of the other family: decided with the first, and then kept, since a BIND that
/// differs is refused.
#[derive(Debug, Default)]
pub(crate) struct Second {
    wait_until: Option<Instant>,
    decided: Option<Option<Endpoint>>,
    unanswered: u32,
    held: bool,
}

impl Second {
    /// The server holds what was decided.
    pub(crate) const fn keep(&mut self) {
        self.held = true;
    }

    /// What the BIND that goes out now says.
    ///
    /// # Errors
    /// When to ask again: the other family's proof is awaited.
    pub(crate) fn decide(
        &mut self,
        now: Instant,
        other: Option<OtherFamily>,
        own_proof: Option<Cookie>,
    ) -> Result<(Option<Endpoint>, Cookie), Instant> {
        let none = (None, Cookie::new_zeroed());
        if own_proof.is_none() {
            // Nothing goes out now.
            return Ok(none);
        }
        let proved = other.and_then(|other| Some((other.own, other.cookie?)));
        let Some(decided) = self.decided else {
            let wait_until = *self.wait_until.get_or_insert(now.after(WAIT_MAX));
            if proved.is_none() && other.is_some() && now < wait_until {
                return Err(wait_until);
            }
            self.decided = Some(proved.map(|(own, _)| own));
            self.unanswered = 1;
            return Ok(proved.map_or(none, |(own, cookie)| (Some(own), cookie)));
        };
        let Some(endpoint) = decided else { return Ok(none) };
        if self.unanswered >= UNANSWERED_MAX && !self.held {
            self.decided = Some(None);
            return Ok(none);
        }
        let (own, cookie) = proved.filter(|(own, _)| *own == endpoint).ok_or(now.after(LOOK_AGAIN))?;
        self.unanswered += 1;
        Ok((Some(own), cookie))
    }
}
