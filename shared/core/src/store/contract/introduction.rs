//! Binding and the introduction gate.

use core::time::Duration;

use super::{
    Harness, JOINER, LIFETIME, NANO, OWNER, SECOND, World, conflict, introduced, is_waiting, refused,
    replayed, v4, v6,
};
use crate::endpoint::{Endpoint, Mapping};
use crate::id::SessionId;
use crate::limits::{INTRODUCED_LIFETIME_MIN, PROOF_AGE_MAX, SEQUENCE_JUMP_MAX};
use crate::outcome::{AttemptReason, ConflictReason, Refusal};
use crate::store::{
    AttemptGrant, Bind, BindAnswer, Candidates, DatagramProof, ListingGrant, Phase, Reply, Transition,
};

fn pair<H: Harness>(w: &mut World<'_, H>) -> (ListingGrant, AttemptGrant) {
    let host = w.joinable(OWNER);
    let attempt = w.attempt(host.view.id);
    (host, attempt)
}

fn second(second: Endpoint) -> Candidates {
    Candidates { second: Some(second), ..Candidates::default() }
}

/// "The one-time, atomic hand-over of each peer's proved endpoint to the other."
pub fn hands_over_what_each_bound<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = pair(&mut w);
    let first = w.bind(attempt.joiner_key, attempt.id, v4(2, 5000));
    let Reply::Bind(BindAnswer::Waiting { peer_bound: false, remaining, notice: Some(notice) }) = first
    else {
        panic!("the host is to be told: {first:?}")
    };
    assert_eq!((remaining, notice.attempt, notice.endpoint), (LIFETIME, attempt.id, v4(1, 4000)));
    assert_eq!(notice.host_key, host.lease.presence_key);
    let reply = w.bind(host.lease.presence_key, attempt.id, v4(1, 4001));
    let Reply::Bind(BindAnswer::Introduced { own, peer }) = reply else {
        panic!("not introduced: {reply:?}")
    };
    assert_eq!((own.attempt, own.peer, own.peer_second, own.lan), (attempt.id, v4(2, 5000), None, [None; 2]));
    assert_eq!((peer.key_id, peer.endpoint), (attempt.joiner_key, v4(2, 5000)));
    assert_eq!(peer.introduction.peer, v4(1, 4001), "what the host bound, not what it was present at");
}

/// "Introduction is consumed once atomically", whoever binds last.
pub fn happens_once_whoever_comes_last<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    for host_first in [true, false] {
        let (host, attempt) = pair(&mut w);
        let before = w.stats().introductions;
        let mut sides = [(host.lease.presence_key, v4(1, 4000)), (attempt.joiner_key, v4(2, 5000))];
        sides.rotate_left(usize::from(!host_first));
        assert!(is_waiting(&w.bind(sides[0].0, attempt.id, sides[0].1)));
        introduced(&w.bind(sides[1].0, attempt.id, sides[1].1));
        for (key, source) in [sides[0], sides[1], sides[1], sides[0]] {
            replayed(&w.bind(key, attempt.id, source));
        }
        assert_eq!(w.stats().introductions, before + 1);
        let view = w.view(JOINER, attempt.id);
        assert!(view.is_ok_and(|it| it.phase == Phase::Introduced && it.times.introduced == Some(w.now())));
    }
    assert_eq!(w.stats().introductions_replayed, 8);
}

/// "After introduction the stored answer is replayed until the attempt's deadline."
pub fn is_replayed_until_the_deadline<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = pair(&mut w);
    w.bind(attempt.joiner_key, attempt.id, v4(2, 5000));
    let own = introduced(&w.bind(host.lease.presence_key, attempt.id, v4(1, 4000)));
    assert_eq!(replayed(&w.bind(host.lease.presence_key, attempt.id, v4(1, 4000))), own);
    w.bye(host.lease.presence_key, v4(1, 4000));
    w.sleep(LIFETIME - NANO);
    assert_eq!(replayed(&w.bind(host.lease.presence_key, attempt.id, v4(1, 4000))), own);
    w.sleep(NANO);
    assert_eq!(refused(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5000))), Refusal::Expired);
    let view = w.view(JOINER, attempt.id);
    assert!(view.is_ok_and(|it| it.phase == Phase::Ended(AttemptReason::Unreported)));
}

/// "The first endpoint bound for each role wins ... a different replay is rejected."
pub fn the_first_endpoint_wins<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = pair(&mut w);
    let taken = conflict(ConflictReason::EndpointAlreadyBound);
    w.bind(attempt.joiner_key, attempt.id, v4(2, 5000));
    let others = [v4(2, 5001), v4(3, 5000), v6(2, 5000)];
    for other in others {
        assert_eq!(refused(&w.bind(attempt.joiner_key, attempt.id, other)), taken);
    }
    let more = second(v6(2, 5000));
    assert_eq!(refused(&w.bind_with(attempt.joiner_key, attempt.id, v4(2, 5000), more)), taken);
    let own = introduced(&w.bind(host.lease.presence_key, attempt.id, v4(1, 4000)));
    assert_eq!(own.peer, v4(2, 5000));
    assert_eq!(refused(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5001))), taken);
    assert_eq!(refused(&w.bind(host.lease.presence_key, attempt.id, v4(1, 4001))), taken);
}

/// "An identical datagram is idempotent": no second notice, no second effect, byte-identical ones too.
pub fn identical_binds_are_idempotent<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (_, attempt) = pair(&mut w);
    let proof = w.proof(attempt.joiner_key, v4(2, 5000));
    let round_trip = SECOND;
    let bind = Bind {
        proof,
        attempt: attempt.id,
        candidates: Candidates::default(),
        round_trip,
        mapping: Mapping::Unknown,
    };
    for ordinal in 0..3 {
        let reply = w.apply(Transition::Bind(bind));
        let Reply::Bind(BindAnswer::Waiting { notice, .. }) = reply else { panic!("not bound: {reply:?}") };
        assert_eq!(notice.is_some(), ordinal == 0);
    }
}

/// "Listing lease and presence fresh": the gate stays shut without, and opens with the next BIND.
pub fn needs_fresh_presence<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = pair(&mut w);
    let key = host.lease.presence_key;
    w.bye(key, v4(1, 4000));
    w.bind(attempt.joiner_key, attempt.id, v4(2, 5000));
    let reply = w.bind(key, attempt.id, v4(1, 4000));
    assert!(matches!(reply, Reply::Bind(BindAnswer::Waiting { peer_bound: true, .. })), "{reply:?}");
    assert_eq!(w.stats().introductions, 0);
    w.present(key, v4(1, 4000));
    introduced(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5000)));
}

/// A pair of which the joiner bound 30 s and a nanosecond ago and the host binds now.
fn stale_joiner<H: Harness>(w: &mut World<'_, H>) -> (ListingGrant, AttemptGrant, Bind) {
    let host = w.joinable(OWNER);
    let mut request = w.creation(JOINER, host.view.id);
    request.lifetime = crate::limits::ATTEMPT_MAX;
    let attempt = w.created(&request);
    let proof = w.proof(attempt.joiner_key, v4(2, 5000));
    let candidates = Candidates::default();
    let bind = Bind { proof, attempt: attempt.id, candidates, round_trip: SECOND, mapping: Mapping::Unknown };
    assert!(is_waiting(&w.apply(Transition::Bind(bind))));
    w.sleep(PROOF_AGE_MAX + NANO);
    w.present(host.lease.presence_key, v4(1, 4000));
    assert!(is_waiting(&w.bind(host.lease.presence_key, attempt.id, v4(1, 4000))));
    (host, attempt, bind)
}

/// "Each role's address was proved no more than 30 s ago."
pub fn needs_fresh_proofs<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (_, attempt, _) = stale_joiner(&mut w);
    introduced(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5000)));
}

/// "Proof age counts from the last good datagram": the same bytes again are no new proof.
pub fn a_replayed_bind_proves_nothing_anew<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (_, _, mut bind) = stale_joiner(&mut w);
    bind.proof.arrived = w.now();
    assert!(is_waiting(&w.apply(Transition::Bind(bind))));
    assert_eq!(w.stats().introductions, 0);
}

/// "Both addresses differ from each other"; otherwise the attempt is over.
pub fn the_same_endpoint_ends_it<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = pair(&mut w);
    w.bind(attempt.joiner_key, attempt.id, v4(1, 4000));
    let reply = w.bind(host.lease.presence_key, attempt.id, v4(1, 4000));
    assert_eq!(refused(&reply), conflict(ConflictReason::SameEndpoint));
    let view = w.view(JOINER, attempt.id);
    assert_eq!(view.map(|it| it.phase), Ok(Phase::Ended(AttemptReason::SameEndpoint)));
}

/// The same when only the endpoints handed over coincide, not those bound first.
pub fn the_same_second_endpoint_ends_it<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = pair(&mut w);
    w.bind_with(attempt.joiner_key, attempt.id, v6(1, 4000), second(v4(2, 5000)));
    let key = host.lease.presence_key;
    let reply = w.bind_with(key, attempt.id, v4(1, 4000), second(v6(1, 4000)));
    assert_eq!(refused(&reply), conflict(ConflictReason::SameEndpoint));
}

/// "A common address family exists (else outcome `no_common_family`)."
pub fn no_common_family_ends_it<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = pair(&mut w);
    w.bind(attempt.joiner_key, attempt.id, v6(2, 5000));
    let reply = w.bind(host.lease.presence_key, attempt.id, v4(1, 4000));
    assert_eq!(refused(&reply), conflict(ConflictReason::NoCommonFamily));
    let view = w.view(JOINER, attempt.id);
    assert!(view.is_ok_and(|it| {
        it.phase == Phase::Ended(AttemptReason::NoCommonFamily)
            && (it.host_families, it.joiner_families) == ([true, false], [false, true])
    }));
    assert_eq!(refused(&w.bind(attempt.joiner_key, attempt.id, v6(2, 5000))), Refusal::Expired);
    assert_eq!(w.stats().introductions, 0);
}

/// "One host on IPv4 and IPv6: one listing, two endpoints", each in the receiver's family first.
pub fn a_second_family_is_common_ground<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = pair(&mut w);
    w.bind(attempt.joiner_key, attempt.id, v6(2, 5000));
    let key = host.lease.presence_key;
    let reply = w.bind_with(key, attempt.id, v4(1, 4000), second(v6(1, 4000)));
    let Reply::Bind(BindAnswer::Introduced { own, peer }) = reply else {
        panic!("not introduced: {reply:?}")
    };
    assert_eq!((own.peer, own.peer_second), (v6(2, 5000), None));
    assert_eq!((peer.introduction.peer, peer.introduction.peer_second), (v6(1, 4000), None));
    let attempt = w.attempt(host.view.id);
    w.bind_with(attempt.joiner_key, attempt.id, v6(2, 5000), second(v4(2, 5000)));
    let reply = w.bind_with(key, attempt.id, v4(1, 4000), second(v6(1, 4000)));
    let Reply::Bind(BindAnswer::Introduced { own, peer }) = reply else {
        panic!("not introduced: {reply:?}")
    };
    assert_eq!((own.peer, own.peer_second), (v4(2, 5000), Some(v6(2, 5000))));
    let view = w.view(JOINER, attempt.id);
    assert!(view.is_ok_and(|it| (it.host_families, it.joiner_families) == ([true; 2], [true; 2])));
    let told = peer.introduction;
    assert_eq!((told.peer, told.peer_second), (v6(1, 4000), Some(v4(1, 4000))));
}

/// "`start_in_ms` lets both start at one moment": who is nearer waits half the difference, and a second at most.
pub fn who_is_nearer_starts_later<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (none, near, far) = (Duration::ZERO, SECOND / 100, SECOND / 10);
    let cases = [
        (near, far, (far - near) / 2, none),
        (far, near, none, (far - near) / 2),
        (far, far, none, none),
        (none, Duration::MAX, SECOND, none),
    ];
    for (host_trip, joiner_trip, host_waits, joiner_waits) in cases {
        let (host, attempt) = pair(&mut w);
        let bind = |proof, round_trip| {
            Transition::Bind(Bind {
                proof,
                attempt: attempt.id,
                candidates: Candidates::default(),
                round_trip,
                mapping: Mapping::Unknown,
            })
        };
        let joiner = w.proof(attempt.joiner_key, v4(2, 5000));
        assert!(is_waiting(&w.apply(bind(joiner, joiner_trip))));
        let host = w.proof(host.lease.presence_key, v4(1, 4000));
        let reply = w.apply(bind(host, host_trip));
        let Reply::Bind(BindAnswer::Introduced { own, peer }) = reply else { panic!("{reply:?}") };
        assert_eq!((own.start_in, peer.introduction.start_in), (host_waits, joiner_waits));
    }
}

/// "LAN candidates only when both were observed behind the same public address, always in addition."
pub fn candidates_only_behind_one_address<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let lan = |last| [Some(Endpoint::new([192, 168, 0, last].into(), 6000)), None];
    let with = |last, second| Candidates { second, lan: lan(last) };
    let cases = [
        (v4(1, 4000), None, v4(1, 5000), None, true),
        (v4(1, 4000), None, v4(2, 5000), None, false),
        // Different first families, one public IPv4 address.
        (v4(1, 4000), Some(v6(1, 4000)), v6(2, 5000), Some(v4(1, 5000)), true),
        (v4(1, 4000), Some(v6(1, 4000)), v6(2, 5000), Some(v4(2, 5000)), false),
    ];
    for (host_at, host_second, joiner_at, joiner_second, shared) in cases {
        let (host, attempt) = pair(&mut w);
        w.bind_with(attempt.joiner_key, attempt.id, joiner_at, with(2, joiner_second));
        let key = host.lease.presence_key;
        let reply = w.bind_with(key, attempt.id, host_at, with(1, host_second));
        let Reply::Bind(BindAnswer::Introduced { own, peer }) = reply else { panic!("{reply:?}") };
        let expected = |last| if shared { lan(last) } else { [None; 2] };
        assert_eq!((own.lan, peer.introduction.lan), (expected(2), expected(1)));
        assert_eq!(own.peer.family(), host_at.family(), "the public endpoint stays");
    }
}

/// "Each role is bound by its own right": no other key of either kind binds it.
pub fn other_keys_bind_nothing<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (_, attempt) = pair(&mut w);
    let (other_host, other_attempt) = pair(&mut w);
    for key in [other_host.lease.presence_key, other_attempt.joiner_key] {
        assert_eq!(refused(&w.bind(key, attempt.id, v4(5, 5000))), Refusal::NotFound);
    }
    let view = w.view(JOINER, attempt.id);
    assert_eq!(view.map(|it| it.phase), Ok(Phase::Created));
    let unknown = crate::id::AttemptId::new(1, attempt.id.handle());
    assert_eq!(refused(&w.bind(attempt.joiner_key, unknown, v4(2, 5000))), Refusal::NotFound);
}

/// "An introduced attempt lives at least 5 s more."
pub fn lives_five_seconds_more<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = pair(&mut w);
    w.sleep(LIFETIME - NANO);
    w.bind(attempt.joiner_key, attempt.id, v4(2, 5000));
    introduced(&w.bind(host.lease.presence_key, attempt.id, v4(1, 4000)));
    assert!(attempt.joiner_key.expires() >= w.now().after(INTRODUCED_LIFETIME_MIN));
    w.sleep(INTRODUCED_LIFETIME_MIN - NANO);
    replayed(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5000)));
    w.sleep(NANO);
    assert_eq!(refused(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5000))), Refusal::Expired);
}

/// `proof` as the BIND that it makes in `attempt`.
fn bind_of(proof: DatagramProof, attempt: &AttemptGrant) -> Transition {
    let candidates = Candidates::default();
    Transition::Bind(Bind {
        proof,
        attempt: attempt.id,
        candidates,
        round_trip: SECOND,
        mapping: Mapping::Unknown,
    })
}

/// "A delayed datagram from an old port never reinstates a dead endpoint": nor does it bind a role. What binds the
/// host counts with its presence: nothing older is accepted after it.
pub fn a_delayed_bind_binds_nothing<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = pair(&mut w);
    let key = host.lease.presence_key;
    w.bind(attempt.joiner_key, attempt.id, v4(2, 5000));
    let delayed = w.proof(key, v4(1, 4000));
    w.present(key, v4(1, 4001));
    assert_eq!(refused(&w.apply(bind_of(delayed, &attempt))), Refusal::StaleSequence);
    assert!(w.view(OWNER, attempt.id).is_ok_and(|it| it.times.host_bound.is_none()));
    let overtaken = w.proof(key, v4(1, 4000));
    let Reply::Bind(BindAnswer::Introduced { peer, .. }) = w.bind(key, attempt.id, v4(1, 4001)) else {
        panic!("the new port binds")
    };
    assert_eq!(peer.introduction.peer, v4(1, 4001));
    assert_eq!(refused(&w.refresh(overtaken)), Refusal::StaleSequence, "a BIND moves the host's sequence");
    replayed(&w.apply(bind_of(DatagramProof { source: v4(1, 4001), ..overtaken }, &attempt)));
}

/// "The old session is void": it binds no more roles, the new one does.
pub fn a_voided_session_binds_nothing<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = pair(&mut w);
    let key = host.lease.presence_key;
    let mut void = w.proof(key, v4(1, 4000));
    void.sequence += 100;
    w.sleep(SECOND);
    let new = DatagramProof { session: SessionId(2), sequence: 1, ..w.proof(key, v4(1, 4001)) };
    assert!(matches!(w.refresh(new), Reply::Presence(_)));
    assert_eq!(refused(&w.apply(bind_of(void, &attempt))), Refusal::StaleSequence);
    assert!(is_waiting(&w.apply(bind_of(DatagramProof { sequence: 2, ..new }, &attempt))));
}

/// "One counter for PRESENCE, BYE, BIND and REPORT together": a host that counted far binds still, and one without
/// presence in its family counts from 0. A joiner's key is new with its attempt and counts from 0 too.
pub fn a_long_session_binds<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.register(OWNER);
    let proof = w.proof(host.lease.presence_key, v4(1, 4000));
    let at = |sequence| DatagramProof { sequence, ..proof };
    assert!(matches!(w.refresh(at(SEQUENCE_JUMP_MAX)), Reply::Presence(_)));
    let attempts: Vec<_> = (0..2).map(|_| w.attempt(host.view.id)).collect();
    assert!(is_waiting(&w.apply(bind_of(at(SEQUENCE_JUMP_MAX + 5), &attempts[0]))));
    let jump = at(2 * SEQUENCE_JUMP_MAX + 6);
    assert_eq!(refused(&w.apply(bind_of(jump, &attempts[1]))), Refusal::StaleSequence);
    let other_family = DatagramProof { source: v6(1, 4000), ..jump };
    assert_eq!(refused(&w.apply(bind_of(other_family, &attempts[1]))), Refusal::StaleSequence);
    assert!(is_waiting(&w.apply(bind_of(DatagramProof { sequence: 1, ..other_family }, &attempts[1]))));
    let joiner = DatagramProof { key_id: attempts[0].joiner_key, source: v4(2, 5000), ..jump };
    assert_eq!(refused(&w.apply(bind_of(joiner, &attempts[0]))), Refusal::StaleSequence);
}

/// "They leave from the address that the receiver itself last used."
pub fn others_are_told_from_the_address_they_asked<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let local = |last: u8| Some([10, 0, 0, last].into());
    let host = w.register(OWNER);
    let key = host.lease.presence_key;
    let at = |proof, last| DatagramProof { local: local(last), ..proof };
    for last in [7, 8] {
        let proof = w.proof(key, v4(1, 4000));
        assert!(matches!(w.refresh(at(proof, last)), Reply::Presence(_)));
    }
    let attempt = w.attempt(host.view.id);
    let first = w.proof(attempt.joiner_key, v4(2, 5000));
    let reply = w.apply(bind_of(at(first, 3), &attempt));
    let Reply::Bind(BindAnswer::Waiting { notice: Some(notice), .. }) = reply else { panic!("{reply:?}") };
    assert_eq!((notice.endpoint, notice.local), (v4(1, 4000), local(8)));
    let again = w.proof(attempt.joiner_key, v4(2, 5000));
    assert!(is_waiting(&w.apply(bind_of(at(again, 4), &attempt))));
    assert!(is_waiting(&w.apply(bind_of(at(first, 3), &attempt))), "an old one changes nothing");
    let proof = w.proof(key, v4(1, 4000));
    let reply = w.apply(bind_of(at(proof, 7), &attempt));
    let Reply::Bind(BindAnswer::Introduced { peer, .. }) = reply else { panic!("{reply:?}") };
    assert_eq!((peer.endpoint, peer.local), (v4(2, 5000), local(4)));
}
