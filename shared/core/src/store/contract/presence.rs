//! Presence.

use super::{Harness, JOINER, LEASE, LIFETIME, NANO, OWNER, SECOND, World, refused, v4, v6};
use crate::id::SessionId;
use crate::limits::{GAUGE_LAG_MAX, PRESENCE_KEY_LIFETIME, PRESENCE_LIFETIME, SEQUENCE_JUMP_MAX};
use crate::outcome::Refusal;
use crate::store::{BindAnswer, DatagramProof, EndPresence, Notice, Reply, Transition};
use crate::time::Instant;

/// "A listing is visible or joinable only when its lease and authenticated UDP host presence are both fresh."
pub fn visible_needs_lease_and_presence<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let grant = w.register(OWNER);
    let id = grant.view.id;
    assert_eq!(w.get_id(JOINER, id), Err(Refusal::NotFound));
    w.present(grant.lease.presence_key, v4(1, 4000));
    assert!(w.get_id(JOINER, id).is_ok_and(|it| it.visible && !it.owned));
    assert_eq!(w.stats().listings_visible, 1);
    w.sleep(PRESENCE_LIFETIME - NANO);
    assert_eq!(w.browse(JOINER, |_| ()).listings.len(), 1);
    w.sleep(NANO);
    assert!(w.browse(JOINER, |_| ()).listings.is_empty());
    assert_eq!(w.get_id(JOINER, id), Err(Refusal::NotFound));
    assert!(w.get_id(OWNER, id).is_ok_and(|it| !it.visible));
    w.sleep(GAUGE_LAG_MAX);
    assert_eq!((w.stats().listings_visible, w.stats().presence_fresh), (0, 0));
    w.present(grant.lease.presence_key, v4(1, 4000));
    w.sleep(20 * SECOND);
    w.present(grant.lease.presence_key, v4(1, 4000));
    w.sleep(LEASE - PRESENCE_LIFETIME - 20 * SECOND);
    // Its presence would be good for another twenty seconds.
    assert!(w.browse(JOINER, |_| ()).listings.is_empty(), "fresh presence does not outlive the lease");
    assert_eq!(w.get_id(JOINER, id), Err(Refusal::NotFound));
}

/// The host's endpoint as a joiner's first BIND would have it told.
fn notice_of<H: Harness>(w: &mut World<'_, H>, listing: crate::id::ListingId) -> Option<Notice> {
    let attempt = w.attempt(listing);
    match w.bind(attempt.joiner_key, attempt.id, v4(2, 5000)) {
        Reply::Bind(BindAnswer::Waiting { notice, .. }) => notice,
        other => panic!("should wait: {other:?}"),
    }
}

/// "Host presence refresh is an atomic whole-endpoint replacement": the newest proved endpoint is told, the old
/// one gets nothing more.
pub fn replaced_whole_within_a_family<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let grant = w.joinable(OWNER);
    w.present(grant.lease.presence_key, v4(7, 7000));
    let notice = notice_of(&mut w, grant.view.id);
    assert_eq!(notice.map(|it| it.endpoint), Some(v4(7, 7000)));
    w.sleep(PRESENCE_LIFETIME - NANO);
    let view = w.get_id(OWNER, grant.view.id);
    assert!(view.is_ok_and(|it| it.presence_deadlines.iter().flatten().count() == 1));
}

/// "Per address family, each with its own deadline."
pub fn families_end_on_their_own<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let grant = w.joinable(OWNER);
    let first = w.now();
    w.sleep(10 * SECOND);
    w.present(grant.lease.presence_key, v6(1, 4000));
    let second = w.now();
    let deadlines = |w: &mut World<'_, H>| w.get_id(OWNER, grant.view.id).map(|it| it.presence_deadlines);
    let (first, second) = (first.after(PRESENCE_LIFETIME), second.after(PRESENCE_LIFETIME));
    assert_eq!(deadlines(&mut w), Ok([Some(first), Some(second)]));
    w.sleep(20 * SECOND);
    assert_eq!(deadlines(&mut w), Ok([None, Some(second)]));
    assert!(w.get_id(JOINER, grant.view.id).is_ok());
    assert_eq!(notice_of(&mut w, grant.view.id).map(|it| it.endpoint), Some(v6(1, 4000)));
    w.sleep(10 * SECOND);
    assert_eq!(deadlines(&mut w), Ok([None, None]));
    w.sleep(GAUGE_LAG_MAX);
    assert_eq!(w.stats().presence_fresh, 0);
}

/// "The host's endpoint in the joiner's family, or else in the other."
pub fn a_host_is_told_in_its_joiners_family<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    for both in [true, false] {
        let grant = w.joinable(OWNER);
        let (id, key) = (grant.view.id, grant.lease.presence_key);
        if both {
            w.present(key, v6(1, 4000));
        }
        let expected = if both { v6(1, 4000) } else { v4(1, 4000) };
        let attempt = w.attempt(id);
        let reply = w.bind(attempt.joiner_key, attempt.id, v6(2, 5000));
        let told = |notice: Option<Notice>| notice.map(|it| it.endpoint);
        let Reply::Bind(BindAnswer::Waiting { notice, .. }) = reply else { panic!("{reply:?}") };
        assert_eq!(told(notice), Some(expected));
        let proof = w.proof(key, v4(1, 4000));
        let Reply::Presence(answer) = w.refresh(proof) else { panic!("no presence") };
        assert_eq!(told(answer.pending), Some(expected));
    }
}

/// "A delayed datagram from an old port never reinstates a dead endpoint."
pub fn a_delayed_datagram_reinstates_nothing<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let grant = w.register(OWNER);
    let delayed = w.proof(grant.lease.presence_key, v4(1, 4000));
    w.sleep(SECOND);
    let current = w.proof(grant.lease.presence_key, v4(1, 4001));
    assert!(matches!(w.refresh(current), Reply::Presence(_)));
    assert_eq!(refused(&w.refresh(delayed)), Refusal::StaleSequence);
    assert_eq!(refused(&w.refresh(current)), Refusal::StaleSequence, "nor does it count twice");
    assert_eq!(notice_of(&mut w, grant.view.id).map(|it| it.endpoint), Some(v4(1, 4001)));
    assert!(matches!(w.bye(grant.lease.presence_key, v4(1, 4001)), Reply::Presence(_)));
    assert_eq!(
        refused(&w.refresh(current)),
        Refusal::StaleSequence,
        "a BYE is not undone by what came before"
    );
    assert_eq!(w.get_id(JOINER, grant.view.id), Err(Refusal::NotFound));
}

/// "A new session is accepted only with a cookie issued later than the one that opened the current session."
pub fn the_newest_session_wins<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    // A session's number is its client's to choose: 0 is one like any other.
    for first in [SessionId(0), SessionId(1)] {
        newest_session_after(&mut w, first);
    }
}

fn newest_session_after<H: Harness>(w: &mut World<'_, H>, first: SessionId) {
    let grant = w.register(OWNER);
    w.sleep(SECOND);
    let old = DatagramProof { session: first, ..w.proof(grant.lease.presence_key, v4(1, 4000)) };
    assert!(matches!(w.refresh(old), Reply::Presence(_)));
    let mut other = w.proof(grant.lease.presence_key, v4(1, 4001));
    other.session = SessionId(2);
    assert_eq!(refused(&w.refresh(other)), Refusal::StaleSequence, "the cookie is as old as the session");
    w.sleep(SECOND);
    let mut new = w.proof(grant.lease.presence_key, v4(1, 4002));
    (new.session, new.sequence) = (SessionId(3), 1);
    assert!(matches!(w.refresh(new), Reply::Presence(_)), "it counts from the start again");
    let mut back = old;
    back.sequence += 100;
    assert_eq!(refused(&w.refresh(back)), Refusal::StaleSequence);
    assert_eq!(notice_of(w, grant.view.id).map(|it| it.endpoint), Some(v4(1, 4002)));
}

/// "Refuse jumps over 2^20 and `u64::MAX`", per credential and family.
pub fn sequences_do_not_jump<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let grant = w.register(OWNER);
    let proof = w.proof(grant.lease.presence_key, v4(1, 4000));
    let mut with = |sequence| w.refresh(DatagramProof { sequence, ..proof });
    for bad in [0, SEQUENCE_JUMP_MAX + 1, u64::MAX] {
        assert_eq!(refused(&with(bad)), Refusal::StaleSequence);
    }
    assert!(matches!(with(10), Reply::Presence(_)));
    for bad in [0, 9, 10, 11 + SEQUENCE_JUMP_MAX, u64::MAX] {
        assert_eq!(refused(&with(bad)), Refusal::StaleSequence, "{bad}");
    }
    assert!(matches!(with(10 + SEQUENCE_JUMP_MAX), Reply::Presence(_)));
    let other_family = DatagramProof { sequence: 1, source: v6(1, 4000), ..proof };
    assert!(matches!(w.refresh(other_family), Reply::Presence(_)));
}

/// "BYE ends presence only, never the lease."
pub fn bye_ends_presence_only<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let grant = w.joinable(OWNER);
    w.present(grant.lease.presence_key, v6(1, 4000));
    let Reply::Presence(answer) = w.bye(grant.lease.presence_key, v4(1, 4000)) else { panic!("no BYE") };
    assert!(answer.presence_remaining.is_zero() && answer.lease_remaining == LEASE);
    assert!(w.get_id(OWNER, grant.view.id).is_ok_and(|it| it.presence_deadlines == [None, None]));
    assert_eq!(w.get_id(JOINER, grant.view.id), Err(Refusal::NotFound));
    w.present(grant.lease.presence_key, v4(1, 4000));
    assert!(w.get_id(JOINER, grant.view.id).is_ok());
}

/// "BYE ends the presence in all families": what was sent before it and comes after it, in whichever family and session,
/// brings nothing back. A cookie issued since does, that of its own ACK first of all.
pub fn bye_outlives_what_was_sent_before_it<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    for v6_before in [true, false] {
        let grant = w.joinable(OWNER);
        let (id, key) = (grant.view.id, grant.lease.presence_key);
        if v6_before {
            w.present(key, v6(1, 4000));
        }
        let late = [v4(1, 4000), v6(1, 4000)].map(|source| w.proof(key, source));
        w.sleep(SECOND);
        assert!(matches!(w.bye(key, v4(1, 4000)), Reply::Presence(_)));
        for proof in late {
            let (far, session) = (proof.sequence + 100, SessionId(2));
            for sequence in [proof.sequence, far] {
                let same = DatagramProof { sequence, ..proof };
                assert_eq!(refused(&w.refresh(same)), Refusal::StaleSequence, "{same:?}");
                let other = DatagramProof { session, ..same };
                assert_eq!(refused(&w.refresh(other)), Refusal::StaleSequence, "{other:?}");
            }
        }
        assert_eq!(w.get_id(JOINER, id), Err(Refusal::NotFound));
        let back = w.proof(key, v6(1, 4000));
        // Cookies tell whole milliseconds.
        let cookie_issued = Instant::from_millis(back.cookie_issued.as_millis());
        assert!(matches!(w.refresh(DatagramProof { cookie_issued, ..back }), Reply::Presence(_)));
        assert!(w.get_id(JOINER, id).is_ok());
        let back = DatagramProof { session: SessionId(2), sequence: 1, ..w.proof(key, v4(1, 4000)) };
        assert!(matches!(w.refresh(DatagramProof { cookie_issued, ..back }), Reply::Presence(_)));
        assert_eq!(w.delete(OWNER, id), Reply::Deleted);
    }
}

/// "BYE until ACK": one whose ACK was lost is acknowledged again, and none of them takes anything from a host that came
/// back meanwhile.
pub fn a_repeated_bye_is_acknowledged<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let grant = w.joinable(OWNER);
    let (id, key) = (grant.view.id, grant.lease.presence_key);
    let mut byes = [(); 3].map(|()| w.proof(key, v4(1, 4000))).into_iter();
    let mut bye = |w: &mut World<'_, H>| {
        let proof = byes.next().unwrap_or_else(|| panic!("as many as there are"));
        w.apply(Transition::EndPresence(EndPresence { proof }))
    };
    w.sleep(SECOND);
    let first = bye(&mut w);
    assert!(matches!(first, Reply::Presence(_)), "{first:?}");
    assert_eq!(bye(&mut w), first, "the same again");
    w.sleep(SECOND);
    w.present(key, v4(1, 4000));
    assert_eq!(refused(&bye(&mut w)), Refusal::StaleSequence);
    assert!(w.get_id(JOINER, id).is_ok(), "it came back");
}

/// "A superseded, deleted or revoked credential dies at once."
pub fn a_superseded_key_is_refused<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let grant = w.joinable(OWNER);
    let old = grant.lease.presence_key;
    let (mut version, mut key) = (1, old);
    while key == old {
        w.sleep(LEASE - NANO);
        let Reply::Renewed(lease) = w.renew(OWNER, grant.view.id, version) else { panic!("not renewed") };
        (version, key) = (lease.version, lease.presence_key);
        assert!(lease.presence_key.expires() > lease.deadline, "a key ends within its lease");
    }
    assert!(w.now().since(old.expires()).is_zero(), "reissued only after its end");
    assert!(key.expires().since(w.now()) >= PRESENCE_KEY_LIFETIME - SECOND);
    let dead = w.proof(old, v4(1, 4000));
    assert_eq!(refused(&w.refresh(dead)), Refusal::NotFound);
    assert_eq!(refused(&w.bye(old, v4(1, 4000))), Refusal::NotFound);
    w.present(key, v4(1, 4000));
    let attempt = w.attempt(grant.view.id);
    assert_eq!(refused(&w.bind(old, attempt.id, v4(1, 4000))), Refusal::NotFound);
    assert!(super::is_waiting(&w.bind(key, attempt.id, v4(1, 4000))));
}

/// "Possession of the role's right": a joiner's key keeps no host present.
pub fn a_joiner_key_is_no_presence_key<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let grant = w.joinable(OWNER);
    let attempt = w.attempt(grant.view.id);
    let proof = w.proof(attempt.joiner_key, v4(2, 5000));
    assert_eq!(refused(&w.refresh(proof)), Refusal::NotFound);
    assert_eq!(refused(&w.bye(attempt.joiner_key, v4(2, 5000))), Refusal::NotFound);
    assert!(w.get_id(JOINER, grant.view.id).is_ok());
}

/// "Pending-attempt flag": a host's next presence tells of a bound joiner until the host binds.
pub fn a_waiting_joiner_is_told<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let grant = w.joinable(OWNER);
    let key = grant.lease.presence_key;
    let attempt = w.attempt(grant.view.id);
    let pending = |w: &mut World<'_, H>| {
        let proof = w.proof(key, v4(1, 4000));
        let Reply::Presence(grant) = w.refresh(proof) else { panic!("no presence") };
        grant.pending.map(|it| it.attempt)
    };
    assert_eq!(pending(&mut w), None, "its joiner is not bound");
    w.bind(attempt.joiner_key, attempt.id, v4(2, 5000));
    assert_eq!(pending(&mut w), Some(attempt.id));
    w.bind(key, attempt.id, v4(1, 4000));
    assert_eq!(pending(&mut w), None);
    let attempt = w.attempt(grant.view.id);
    w.bind(attempt.joiner_key, attempt.id, v4(2, 5000));
    w.sleep(LIFETIME);
    assert_eq!(pending(&mut w), None, "nor does one wait whose time is over");
}
