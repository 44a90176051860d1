//! How histories are drawn: mostly what clients do, often at an edge, sometimes nonsense.

use core::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;
use rendezvous_shared::endpoint::Mapping;
use rendezvous_shared::id::Role;
use rendezvous_shared::limits::{
    ATTEMPT_MAX, ATTEMPT_MIN, DRAIN_MAX, LEASE_MAX, LEASE_MIN, PRESENCE_LIFETIME, PROOF_AGE_MAX,
    REVOCATION_MAX, REVOCATION_MIN, SEQUENCE_JUMP_MAX,
};
use rendezvous_shared::store::Quotas;
use rendezvous_shared::wire::ReportResult;

use crate::REVOCATIONS;
use crate::scenes;
use crate::steps::{
    Allowed, Arrived, Ask, Bar, Datagram, Filtered, Key, MadeWith, Pick, Published, Sequence, Spot, Step,
    Version, Wait, Who,
};

pub(crate) const NANO: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);
const NO_QUOTA: Quotas =
    Quotas { listings_per_owner: u32::MAX, listings_per_tenant: u32::MAX, attempts_per_tenant: u32::MAX };

/// One of `choices`, as often as its weight says; shrinks towards the first.
pub(crate) fn weighted<T: core::fmt::Debug + 'static>(
    choices: Vec<(u32, BoxedStrategy<T>)>,
) -> BoxedStrategy<T> {
    Union::new_weighted(choices).boxed()
}

pub(crate) fn just<T: Clone + core::fmt::Debug + 'static>(value: T) -> BoxedStrategy<T> {
    Just(value).boxed()
}

/// From under `min` to over `max`; mostly the longest, so that much can happen.
fn span(min: Duration, max: Duration) -> BoxedStrategy<Duration> {
    let edges = vec![
        min,
        max,
        min + NANO,
        min + SECOND - NANO,
        min - NANO,
        max - NANO,
        max + NANO,
        (min + max) / 2 + NANO,
        NANO,
        Duration::ZERO,
        Duration::MAX,
    ];
    let seconds = (min.as_secs()..=max.as_secs()).prop_map(Duration::from_secs);
    weighted(vec![(1, just(min)), (5, just(max)), (1, select(edges).boxed()), (1, seconds.boxed())])
}

pub(crate) fn wait() -> BoxedStrategy<Wait> {
    let moments = select(vec![NANO, Duration::from_millis(1), SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND]);
    let long = select(vec![PRESENCE_LIFETIME, 60 * SECOND, 400 * SECOND, REVOCATION_MIN, REVOCATION_MAX]);
    let deadline =
        (select(vec![0_u8, 0, 0, 1, 5]), -1_i8..=1).prop_map(|(nth, nanos)| Wait::ToDeadline { nth, nanos });
    weighted(vec![
        (200, just(Wait::No)),
        (20, moments.prop_map(Wait::For).boxed()),
        (20, deadline.boxed()),
        (1, long.prop_map(Wait::For).boxed()),
    ])
}

fn pick() -> BoxedStrategy<Pick> {
    weighted(vec![
        (10, just(Pick::Recent(0))),
        (10, (0_u8..3).prop_map(Pick::Recent).boxed()),
        (3, any::<u8>().prop_map(Pick::Recent).boxed()),
        (6, (0_u8..3).prop_map(Pick::OfAttempt).boxed()),
        (1, just(Pick::Unknown)),
    ])
}

fn anyone() -> BoxedStrategy<Who> {
    let of = (select(vec![0_u32, 0, 0, 1]), 0_u32..4, select(vec![false, false, false, false, false, true]));
    of.prop_map(|(tenant, principal, operator)| Who::Of { tenant, principal, operator }).boxed()
}

/// Mostly the one that `usual` is.
fn who(usual: Who) -> BoxedStrategy<Who> {
    weighted(vec![
        (20, just(usual)),
        (2, just(Who::Owner)),
        (2, just(Who::Joiner)),
        (2, just(Who::Operator)),
        (1, just(Who::OwnerAsOperator)),
        (3, anyone()),
    ])
}

fn quotas() -> BoxedStrategy<Allowed> {
    let one = || select(vec![u32::MAX, 0, 1, 2, 3]);
    let tight =
        (one(), one(), one()).prop_map(|(listings_per_owner, listings_per_tenant, attempts_per_tenant)| {
            Quotas { listings_per_owner, listings_per_tenant, attempts_per_tenant }
        });
    weighted(vec![(5, just(Allowed(NO_QUOTA))), (1, tight.prop_map(Allowed).boxed())])
}

fn key() -> BoxedStrategy<Key> {
    weighted(vec![
        (16, just(Key::New)),
        (3, (0_u8..6).prop_map(|ago| Key::Again { ago, other_request: false }).boxed()),
        (1, (0_u8..6).prop_map(|ago| Key::Again { ago, other_request: true }).boxed()),
        (1, (0_u8..6).prop_map(|ago| Key::Borrowed { ago }).boxed()),
    ])
}

fn datagram() -> BoxedStrategy<Datagram> {
    let from = weighted(vec![
        (30, just(Spot::Usual)),
        (2, just(Spot::OtherPort)),
        (2, just(Spot::PeersNeighbour)),
        (1, just(Spot::Peers)),
    ]);
    let exactly = vec![0, 1, 2, SEQUENCE_JUMP_MAX, SEQUENCE_JUMP_MAX + 1, u64::MAX - 1, u64::MAX];
    let sequence = weighted(vec![
        (30, just(Sequence::Next)),
        (2, just(Sequence::Same)),
        (1, just(Sequence::Before)),
        (2, (0_u64..2).prop_map(|beyond| Sequence::Jump { beyond }).boxed()),
        (1, select(exactly).prop_map(Sequence::Exactly).boxed()),
    ]);
    let ages = vec![NANO, SECOND, 10 * SECOND, PROOF_AGE_MAX - NANO, PROOF_AGE_MAX, PROOF_AGE_MAX + NANO];
    // Mostly by as little as a batch takes; by so much that nothing proved then would end in a history, too.
    let ahead = vec![NANO, Duration::from_millis(1), SECOND, 20 * SECOND, PROOF_AGE_MAX, LEASE_MAX];
    let arrived = weighted(vec![
        (30, just(Arrived::NOW)),
        (4, just(Arrived::Ago(NANO))),
        (3, select(ages).prop_map(Arrived::Ago).boxed()),
        (3, select(ahead).prop_map(Arrived::Ahead).boxed()),
    ]);
    let cookie_age = select(vec![Duration::ZERO, NANO, SECOND, 29 * SECOND]);
    let session = weighted(vec![(20, just(0)), (2, (1_u8..4).boxed())]);
    let local = weighted(vec![(3, just(None)), (1, (1_u8..3).prop_map(Some).boxed())]);
    let v6 = weighted(vec![(6, just(false)), (1, just(true))]);
    (from, v6, session, sequence, arrived, cookie_age, local)
        .prop_map(|(from, v6, session, sequence, arrived, cookie_age, local)| Datagram {
            from,
            v6,
            session,
            sequence,
            arrived,
            cookie_age,
            local,
        })
        .boxed()
}

fn made_with() -> BoxedStrategy<MadeWith> {
    weighted(vec![
        (30, just(MadeWith::Right)),
        (1, just(MadeWith::First)),
        (1, just(MadeWith::Neighbours)),
        (1, just(MadeWith::OtherRoles)),
    ])
}

fn published() -> BoxedStrategy<Published> {
    let slot = weighted(vec![(3, just(None)), (1, (0_u8..2).prop_map(Some).boxed())]);
    (select(vec![false, false, true]), 1_u8..3, slot, 0_u32..4, any::<bool>())
        .prop_map(|(unlisted, protocol, slot, players, attribute)| Published {
            unlisted,
            protocol,
            slot,
            players,
            attribute,
        })
        .boxed()
}

fn role() -> BoxedStrategy<Role> {
    select(vec![Role::Joiner, Role::Host]).boxed()
}

fn result() -> BoxedStrategy<ReportResult> {
    select(vec![ReportResult::Connected, ReportResult::PeerSilent, ReportResult::Aborted]).boxed()
}

fn filter() -> BoxedStrategy<Filtered> {
    weighted(vec![
        (4, just(Filtered::Nothing)),
        (1, just(Filtered::Name)),
        (1, just(Filtered::Attribute)),
        (1, (0_u32..5).prop_map(Filtered::AtLeast).boxed()),
        (1, (0_u32..5).prop_map(Filtered::AtMost).boxed()),
    ])
}

fn protocol() -> BoxedStrategy<Option<u8>> {
    weighted(vec![(5, just(Some(1))), (2, just(Some(2))), (1, just(None))])
}

pub(crate) fn register() -> BoxedStrategy<Ask> {
    (anyone(), quotas(), key(), published(), span(LEASE_MIN, LEASE_MAX))
        .prop_map(|(who, quotas, key, published, lease)| Ask::Register { who, quotas, key, published, lease })
        .boxed()
}

pub(crate) fn refresh() -> BoxedStrategy<Ask> {
    (pick(), made_with(), datagram())
        .prop_map(|(listing, with, datagram)| Ask::Refresh { listing, with, datagram })
        .boxed()
}

pub(crate) fn create() -> BoxedStrategy<Ask> {
    let fellow = (0_u32..4).prop_map(Who::Fellow).boxed();
    let who = weighted(vec![(16, fellow), (1, anyone()), (1, just(Who::Owner)), (1, just(Who::Operator))]);
    (who, pick(), quotas(), key(), span(ATTEMPT_MIN, ATTEMPT_MAX), any::<bool>())
        .prop_map(|(who, listing, quotas, key, lifetime, note)| Ask::Create {
            who,
            listing,
            quotas,
            key,
            lifetime,
            note,
        })
        .boxed()
}

pub(crate) fn bind() -> BoxedStrategy<Ask> {
    let seconds = vec![Spot::Usual, Spot::Usual, Spot::PeersNeighbour, Spot::Peers];
    let second = weighted(vec![(8, just(None)), (3, select(seconds).prop_map(Some).boxed())]);
    let lan = select(vec![false, false, false, true]);
    let round_trips = vec![Duration::ZERO, Duration::from_millis(30), SECOND, 3 * SECOND, Duration::MAX];
    let mapping =
        weighted(vec![(6, just(Mapping::Unknown)), (1, just(Mapping::Stable)), (1, just(Mapping::Varies))]);
    (pick(), role(), made_with(), datagram(), second, lan, select(round_trips), mapping)
        .prop_map(|(attempt, role, with, datagram, second, lan, round_trip, mapping)| Ask::Bind {
            attempt,
            role,
            with,
            datagram,
            second,
            lan,
            round_trip,
            mapping,
        })
        .boxed()
}

/// Reads and ends of listings.
fn of_listings() -> Vec<(u32, BoxedStrategy<Ask>)> {
    let versions = vec![
        (12, just(Version::Current)),
        (1, just(Version::Previous)),
        (1, just(Version::Next)),
        (1, just(Version::Zero)),
        (1, just(Version::Max)),
    ];
    let lease = weighted(vec![(1, just(None)), (1, span(LEASE_MIN, LEASE_MAX).prop_map(Some).boxed())]);
    let renew = (who(Who::Owner), pick(), weighted(versions), lease)
        .prop_map(|(who, listing, version, lease)| Ask::Renew { who, listing, version, lease });
    let bye = (pick(), made_with(), datagram()).prop_map(|(listing, with, datagram)| Ask::Bye {
        listing,
        with,
        datagram,
    });
    let delete = (who(Who::Owner), pick()).prop_map(|(who, listing)| Ask::Delete { who, listing });
    let get = (who(Who::Owner), pick(), any::<bool>()).prop_map(|(who, listing, by_code)| Ask::Get {
        who,
        listing,
        by_code,
    });
    let browse = (who(Who::Joiner), any::<bool>(), protocol(), filter())
        .prop_map(|(who, owned, protocol, filter)| Ask::Browse { who, owned, protocol, filter });
    let pending = (who(Who::Owner), pick()).prop_map(|(who, listing)| Ask::Pending { who, listing });
    vec![
        (8, renew.boxed()),
        (2, bye.boxed()),
        (3, delete.boxed()),
        (5, get.boxed()),
        (4, browse.boxed()),
        (5, pending.boxed()),
    ]
}

fn of_attempts() -> Vec<(u32, BoxedStrategy<Ask>)> {
    let get = (who(Who::Joiner), pick()).prop_map(|(who, attempt)| Ask::GetAttempt { who, attempt });
    let cancel = (who(Who::Joiner), pick()).prop_map(|(who, attempt)| Ask::Cancel { who, attempt });
    let report = (pick(), role(), made_with(), datagram(), result()).prop_map(
        |(attempt, role, with, datagram, result)| Ask::Report { attempt, role, with, datagram, result },
    );
    let tell = (who(Who::Joiner), pick(), result()).prop_map(|(who, attempt, result)| Ask::Tell {
        who,
        attempt,
        result,
    });
    let remind = (pick(), role()).prop_map(|(attempt, role)| Ask::Remind { attempt, role });
    vec![(7, get.boxed()), (4, cancel.boxed()), (7, report.boxed()), (5, tell.boxed()), (7, remind.boxed())]
}

fn of_revocations() -> Vec<(u32, BoxedStrategy<Ask>)> {
    let bar = weighted(vec![
        (3, pick().prop_map(Bar::Listing).boxed()),
        (1, pick().prop_map(Bar::OwnerOf).boxed()),
        (1, pick().prop_map(Bar::JoinerOf).boxed()),
    ]);
    let revoke = (who(Who::Operator), bar, span(REVOCATION_MIN, REVOCATION_MAX))
        .prop_map(|(who, bar, lifetime)| Ask::Revoke { who, bar, lifetime });
    let list = who(Who::Operator).prop_map(|who| Ask::Revocations { who });
    let lift = (who(Who::Operator), pick()).prop_map(|(who, revocation)| Ask::Lift { who, revocation });
    vec![(4, revoke.boxed()), (1, list.boxed()), (3, lift.boxed())]
}

fn ask() -> BoxedStrategy<Ask> {
    let window = weighted(vec![(2, just(DRAIN_MAX)), (1, span(SECOND, DRAIN_MAX))]);
    let drain = window.prop_map(|window| Ask::BeginDrain { window });
    let mut all =
        vec![(1, just(Ask::GetDrain)), (14, register()), (16, refresh()), (14, create()), (24, bind())];
    all.extend(of_listings());
    all.extend(of_attempts());
    if REVOCATIONS {
        all.extend(of_revocations());
    }
    // So rare that most histories never drain: nothing much happens after it.
    weighted(vec![(1_000, weighted(all)), (1, drain.boxed())])
}

/// Any step.
pub(crate) fn step() -> BoxedStrategy<Step> {
    let one = ask().prop_map(|it| vec![it]);
    let many = proptest::collection::vec(ask(), 2..6);
    let asks = weighted(vec![
        (120, one.boxed()),
        (20, many.boxed()),
        (40, scenes::join()),
        (40, scenes::meet()),
        (2, scenes::flood()),
    ]);
    let asks = (wait(), asks).prop_map(|(wait, asks)| Step::Ask(wait, asks));
    let walk =
        (anyone(), any::<bool>(), protocol(), filter(), select(vec![0_usize, 1, 2, 3, 100, usize::MAX]))
            .prop_map(|(who, owned, protocol, filter, limit)| Step::Walk {
                who,
                owned,
                protocol,
                filter,
                limit,
            });
    let revocations = (who(Who::Operator), select(vec![0_usize, 1, 2, 100, usize::MAX]))
        .prop_map(|(who, limit)| Step::WalkRevocations { who, limit });
    let keep_alive = (0_u8..3).prop_map(|ago| Step::KeepAlive { listing: Pick::Recent(ago) });
    let expire = (wait(), 1_u8..4).prop_map(|(wait, times)| Step::Expire { wait, times });
    let mut all = vec![(300, asks.boxed()), (12, expire.boxed()), (8, just(Step::Settle)), (8, walk.boxed())];
    all.push((1, keep_alive.boxed()));
    all.push((12, scenes::meet_late()));
    if REVOCATIONS {
        all.push((4, revocations.boxed()));
    }
    weighted(all)
}
