//! Replies and figures to script with.

use std::time::Duration;

use hdrhistogram::Histogram;
use rendezvous_shared::counter::Counters;
use rendezvous_shared::credential::KeyId;
use rendezvous_shared::endpoint::Mapping;
use rendezvous_shared::id::{AttemptId, Handle, InstanceId, JoinCode, ListingId, Role, TenantId};
use rendezvous_shared::outcome::{DatagramOutcome, OutcomeKind, Pool};
use rendezvous_shared::store::{
    AttemptGrant, AttemptView, DescriptionParts, DrainView, LeaseGrant, ListingDescription, ListingGrant,
    ListingView, PendingAttempt, Phase, PhaseTimes, PoolUsage, StoreStats, TransitionKind, Visibility,
};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::ReportResult;

use crate::snapshot::{DatagramFigures, EngineInfo, Snapshot, TransitionFigures};

pub(super) const REGISTER: &str = r#"{"protocol":"game","name":"Room","player_capacity":4}"#;

pub(super) fn listing_id() -> ListingId {
    ListingId::new(1, Handle(2))
}

pub(super) fn attempt_id() -> AttemptId {
    AttemptId::new(3, Handle(4))
}

pub(super) fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn key_id(role: Role) -> KeyId {
    KeyId::new(role, TenantId(0), InstanceId(0xabc), Handle(2), at(86_401_000))
}

pub(super) fn lease() -> LeaseGrant {
    LeaseGrant {
        version: 7,
        lifetime: Duration::from_secs(60),
        deadline: at(61_250),
        presence_key: key_id(Role::Host),
    }
}

pub(super) fn listing(owned: bool) -> ListingView {
    ListingView {
        id: listing_id(),
        description: ListingDescription::new(&DescriptionParts {
            protocol: "game".into(),
            name: "Room".to_owned(),
            visibility: Visibility::Unlisted,
            player_capacity: 4,
            attributes: vec![("map".to_owned(), "dust".to_owned())],
            slot: Some("one".to_owned()),
        })
        .unwrap(),
        join_code: Some(JoinCode::from_random(5)),
        visible: true,
        owned,
        lease: lease(),
        presence_deadlines: [Some(at(11_000)), Some(at(21_000))],
    }
}

pub(super) fn grant(replayed: bool) -> ListingGrant {
    ListingGrant { view: listing(true), lease: lease(), replayed }
}

pub(super) fn attempt_grant(replayed: bool) -> AttemptGrant {
    AttemptGrant {
        id: attempt_id(),
        listing: listing_id(),
        joiner_key: key_id(Role::Joiner),
        lifetime: Duration::from_secs(20),
        deadline: at(21_000),
        replayed,
    }
}

pub(super) fn attempt(phase: Phase) -> AttemptView {
    AttemptView {
        id: attempt_id(),
        listing: listing_id(),
        phase,
        times: PhaseTimes {
            created: at(400),
            host_bound: Some(at(500)),
            joiner_bound: None,
            introduced: None,
            reported: None,
            ended: None,
        },
        deadline: at(20_400),
        host_families: [true, true],
        joiner_families: [false, false],
        host_mapping: Mapping::Varies,
        joiner_mapping: Mapping::Unknown,
        host_report: Some(ReportResult::PeerSilent),
        joiner_report: None,
    }
}

pub(super) fn pending() -> PendingAttempt {
    PendingAttempt { id: attempt_id(), note: Some("hi".into()), joiner_bound: true, deadline: at(5_000) }
}

fn stats() -> StoreStats {
    let pool = |pool| PoolUsage { pool, used: 1, limit: 10, high_water: 2 };
    StoreStats {
        pools: [
            pool(Pool::Listings),
            pool(Pool::Attempts),
            pool(Pool::ListingRecords),
            pool(Pool::AttemptRecords),
            pool(Pool::AttemptResults),
            pool(Pool::Revocations),
        ],
        presence_fresh: 3,
        listings_visible: 2,
        drain: DrainView::Draining { deadline: at(9_000), attempts: 4 },
        attempt_reasons: Counters::new(),
        introductions: 11,
        introductions_replayed: 5,
        results_dropped: 0,
    }
}

pub(super) fn snapshot() -> Snapshot {
    let mut outcomes = Counters::new();
    for _ in 0..3 {
        outcomes.count(DatagramOutcome::Challenged);
    }
    outcomes.count(DatagramOutcome::BadMac);
    let histogram = |values: &[u64]| {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 2).unwrap();
        values.iter().for_each(|&value| histogram.record(value).unwrap());
        histogram
    };
    Snapshot {
        datagrams: DatagramFigures { received: 6, outcomes, in_flight: 2 },
        kernel_drops: 1,
        receive_buffer_len: 8 << 20,
        self_probes: [("heard", 21), ("silent", 22)],
        send_errors: vec![("ENOBUFS", 2)],
        receive_errors: vec![("econnrefused", 1)],
        unasked_dropped: 0,
        engine: EngineInfo { engine: "recvmmsg", reason: "configured" },
        engine_rearms: vec![("no_buffer", 4)],
        datagram_ns: histogram(&[900, 2_000, 7_000_000]),
        transitions: vec![TransitionFigures {
            kind: TransitionKind::Bind,
            outcomes: vec![
                (OutcomeKind::Applied, 16),
                (OutcomeKind::Conflict, 2),
                (OutcomeKind::NotFound, 1),
            ],
            duration_ns: histogram(&[400]),
        }],
        store_queue_depth: 8,
        store_batch_len: histogram(&[1, 64]),
        store: Some(stats()),
    }
}
