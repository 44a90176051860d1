//! What a history is made of. Things are named by how long ago they were granted, so that each store finds its own, and a
//! step means something whatever is left out before it.

use core::fmt;
use core::time::Duration;

use rendezvous_shared::endpoint::Mapping;
use rendezvous_shared::id::Role;
use rendezvous_shared::limits::Limits;
use rendezvous_shared::store::Quotas;
use rendezvous_shared::wire::ReportResult;

/// What a history starts from.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    /// How late in the life of the instance, in nanoseconds.
    pub(crate) start: u64,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { listings, attempts, listing_records, attempt_records, .. } = self.limits;
        let Limits { attempt_results, revocations, .. } = self.limits;
        write!(f, "at {} ns: {listings} listings, {attempts} attempts, ", self.start)?;
        write!(f, "{listing_records} and {attempt_records} records, ")?;
        write!(f, "{attempt_results} results, {revocations} revocations")
    }
}

/// One step of a history.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Waits, then asks for all of it at once, in one batch.
    Ask(Wait, Vec<Ask>),
    /// Waits and asks for one thing, and so on: what is asked knows what was answered before.
    Scene(Vec<(Duration, Ask)>),
    /// Browses page by page to the end.
    Walk { who: Who, owned: bool, protocol: Option<u8>, filter: Filtered, limit: usize },
    /// Lists revocations page by page to the end.
    WalkRevocations { who: Who, limit: usize },
    /// Renews a lease for so long that its presence key is replaced.
    KeepAlive { listing: Pick },
    /// Lets the real store give back what is due, so many times, and nothing else.
    Expire { wait: Wait, times: u8 },
    /// Lets the real store give back all that is due, and compares what the two hold.
    Settle,
}

/// How much time passes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    No,
    For(Duration),
    /// To a nanosecond before, to, or to a nanosecond after the deadline so many after the next.
    ToDeadline {
        nth: u8,
        nanos: i8,
    },
}

/// Something that was granted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pick {
    /// The newest, the one before it, and so on.
    Recent(u8),
    /// The listing of that attempt; among attempts, that attempt.
    OfAttempt(u8),
    /// What never was.
    Unknown,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    /// The owner of what is spoken of.
    Owner,
    /// The one who made the attempt that is spoken of.
    Joiner,
    /// An operator of its tenant.
    Operator,
    /// A certain one of its tenant.
    Fellow(u32),
    /// Its owner, being an operator too.
    OwnerAsOperator,
    /// A certain one.
    Of { tenant: u32, principal: u32, operator: bool },
}

/// What a policy allows.
#[derive(Clone, Copy)]
pub(crate) struct Allowed(pub(crate) Quotas);

impl fmt::Debug for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quotas { listings_per_owner, listings_per_tenant, attempts_per_tenant } = self.0;
        let all = [listings_per_owner, listings_per_tenant, attempts_per_tenant];
        if all == [u32::MAX; 3] { f.write_str("all") } else { write!(f, "{all:?}") }
    }
}

/// Which idempotency key a create goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key {
    /// One that was never used.
    New,
    /// An earlier one with the caller that used it.
    Again { ago: u8, other_request: bool },
    /// An earlier one, whoever used it.
    Borrowed { ago: u8 },
}

/// Which version a renewal names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Version {
    Current,
    Previous,
    Next,
    Zero,
    Max,
}

/// Which key a datagram was made with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MadeWith {
    /// The one it should be.
    Right,
    /// The first that the listing had.
    First,
    /// That of the thing granted before.
    Neighbours,
    /// The right key of the other role.
    OtherRoles,
}

/// Which sequence a datagram has, seen from the highest that was accepted in its session.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sequence {
    Next,
    Same,
    Before,
    /// By as much as allowed, and so much more.
    Jump {
        beyond: u64,
    },
    Exactly(u64),
}

/// Where a datagram comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spot {
    /// Where its role always sits.
    Usual,
    /// Another port there.
    OtherPort,
    /// Another port at the peer's address.
    PeersNeighbour,
    /// Exactly where the peer sits.
    Peers,
}

/// When a datagram arrived, seen from the time of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    Ago(Duration),
    /// It was stamped after the clock was read for the batch.
    Ahead(Duration),
}

impl Arrived {
    pub(crate) const NOW: Self = Self::Ago(Duration::ZERO);
}

/// What is particular to a datagram.
#[derive(Clone, Copy)]
pub(crate) struct Datagram {
    pub(crate) from: Spot,
    pub(crate) v6: bool,
    /// Its session; 0 for the one that its key used last.
    pub(crate) session: u8,
    pub(crate) sequence: Sequence,
    pub(crate) arrived: Arrived,
    /// How long before that its cookie was issued.
    pub(crate) cookie_age: Duration,
    /// The last byte of the local address that it asked, if it is told.
    pub(crate) local: Option<u8>,
}

impl fmt::Debug for Datagram {
    /// What is unusual of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, v6, session, sequence, arrived, cookie_age, local } = self;
        let family = if *v6 { "v6" } else { "v4" };
        write!(f, "({family}, {from:?}, {sequence:?}")?;
        if *session != 0 {
            write!(f, ", session {session}")?;
        }
        if *arrived != Arrived::NOW || !cookie_age.is_zero() {
            write!(f, ", arrived {arrived:?}, cookie {cookie_age:?} older")?;
        }
        local.map_or(Ok(()), |local| write!(f, ", at {local}"))?;
        f.write_str(")")
    }
}

/// What browsing leaves out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Filtered {
    Nothing,
    Name,
    Attribute,
    AtLeast(u32),
    AtMost(u32),
}

/// What is published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published {
    pub(crate) unlisted: bool,
    pub(crate) protocol: u8,
    pub(crate) slot: Option<u8>,
    pub(crate) players: u32,
    pub(crate) attribute: bool,
}

/// What is barred.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bar {
    Listing(Pick),
    OwnerOf(Pick),
    JoinerOf(Pick),
}

/// One transition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Register {
        who: Who,
        quotas: Allowed,
        key: Key,
        published: Published,
        lease: Duration,
    },
    Renew {
        who: Who,
        listing: Pick,
        version: Version,
        lease: Option<Duration>,
    },
    Delete {
        who: Who,
        listing: Pick,
    },
    Get {
        who: Who,
        listing: Pick,
        by_code: bool,
    },
    Browse {
        who: Who,
        owned: bool,
        protocol: Option<u8>,
        filter: Filtered,
    },
    Refresh {
        listing: Pick,
        with: MadeWith,
        datagram: Datagram,
    },
    Bye {
        listing: Pick,
        with: MadeWith,
        datagram: Datagram,
    },
    Create {
        who: Who,
        listing: Pick,
        quotas: Allowed,
        key: Key,
        lifetime: Duration,
        note: bool,
    },
    GetAttempt {
        who: Who,
        attempt: Pick,
    },
    Pending {
        who: Who,
        listing: Pick,
    },
    Cancel {
        who: Who,
        attempt: Pick,
    },
    Bind {
        attempt: Pick,
        role: Role,
        with: MadeWith,
        datagram: Datagram,
        second: Option<Spot>,
        lan: bool,
        round_trip: Duration,
        mapping: Mapping,
    },
    Remind {
        attempt: Pick,
        role: Role,
    },
    Report {
        attempt: Pick,
        role: Role,
        with: MadeWith,
        datagram: Datagram,
        result: ReportResult,
    },
    Tell {
        who: Who,
        attempt: Pick,
        result: ReportResult,
    },
    Revoke {
        who: Who,
        bar: Bar,
        lifetime: Duration,
    },
    Revocations {
        who: Who,
    },
    Lift {
        who: Who,
        revocation: Pick,
    },
    BeginDrain {
        window: Duration,
    },
    GetDrain,
}
