//! Listings: registration, lease, slot, join code, removal.

use super::{
    Harness, JOINER, LEASE, NANO, OPERATOR, OWNER, SECOND, STRANGER, THIRD, World, conflict, description,
    refused,
};
use crate::limits::RECORD_GRACE;
use crate::outcome::{AttemptReason, ConflictReason, Refusal};
use crate::store::{
    DeleteListing, ListingGrant, ListingLocator, Phase, RenewLease, Reply, Transition, Visibility,
};

/// "Each transition returns its result": what was registered is what its owner reads.
pub fn registers_and_reads_back<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let grant = w.register(OWNER);
    assert_eq!((grant.lease.version, grant.lease.lifetime, grant.replayed), (1, LEASE, false));
    assert_eq!(grant.lease.deadline, w.now().after(LEASE));
    let view = w.get_id(OWNER, grant.view.id);
    assert_eq!(view.as_ref(), Ok(&grant.view));
    assert!(view.is_ok_and(|it| it.owned && !it.visible && it.join_code.is_none()));
}

/// "Expiry uses an injected monotonic clock": present one nanosecond before the deadline, absent at it.
pub fn a_lease_ends_at_its_deadline<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let id = w.register(OWNER).view.id;
    w.sleep(LEASE - NANO);
    assert!(w.get_id(OWNER, id).is_ok());
    w.sleep(NANO);
    assert_eq!(w.get_id(OWNER, id), Err(Refusal::NotFound));
    assert_eq!(refused(&w.renew(OWNER, id, 1)), Refusal::NotFound);
    assert_eq!(refused(&w.delete(OWNER, id)), Refusal::NotFound);
}

/// "Lease renewal is compare-and-swap by version. A stale renewal returns the latest version."
pub fn renewal_is_compare_and_swap<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let id = w.register(OWNER).view.id;
    w.sleep(30 * SECOND);
    let Reply::Renewed(lease) = w.renew(OWNER, id, 1) else { panic!("not renewed") };
    assert_eq!((lease.version, lease.deadline), (2, w.now().after(LEASE)));
    for stale in [0, 1, 3, u64::MAX] {
        assert_eq!(refused(&w.renew(OWNER, id, stale)), Refusal::StaleVersion { latest: 2 });
    }
    w.sleep(LEASE - NANO);
    assert!(matches!(w.renew(OWNER, id, 2), Reply::Renewed(_)), "a stale renewal moved the lease");
    assert_eq!(refused(&w.renew(THIRD, id, 3)), Refusal::NotFound, "only its owner renews");
}

/// "Renewal either commits before deletion or observes the listing as absent."
pub fn a_deleted_listing_is_absent<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let grant = w.joinable(OWNER);
    let id = grant.view.id;
    assert_eq!(refused(&w.delete(JOINER, id)), Refusal::NotFound);
    assert_eq!(w.delete(OWNER, id), Reply::Deleted);
    assert_eq!(refused(&w.renew(OWNER, id, 1)), Refusal::NotFound);
    assert_eq!(refused(&w.delete(OWNER, id)), Refusal::NotFound);
    assert!(w.browse(JOINER, |_| ()).listings.is_empty());
    let proof = w.proof(grant.lease.presence_key, super::v4(1, 4000));
    assert_eq!(refused(&w.refresh(proof)), Refusal::NotFound, "its presence key died with it");
}

/// "An exact duplicate returns the original live result."
pub fn a_duplicate_returns_the_live_result<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let request = w.registration(OWNER);
    let first = w.registered(&request);
    let again = w.registered(&request);
    assert!(again.replayed && again.view == first.view && again.lease == first.lease);
    assert_eq!(w.browse(OWNER, |it| it.owned = true).listings.len(), 1);
}

/// "The same object comes back, in the same bytes", whatever became of it in between.
pub fn a_duplicate_repeats_the_first_answer<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    for visibility in [Visibility::Public, Visibility::Unlisted] {
        let mut request = w.registration(OWNER);
        request.description = description(|it| it.visibility = visibility);
        let first = w.registered(&request);
        w.present(first.lease.presence_key, super::v4(1, 4000));
        w.sleep(20 * SECOND);
        let (caller, listing) = (OWNER, first.view.id);
        let lease = Some(2 * LEASE);
        let reply = w.apply(Transition::RenewLease(RenewLease { caller, listing, version: 1, lease }));
        assert!(matches!(reply, Reply::Renewed(_)), "{reply:?}");
        let again = w.registered(&request);
        assert!(again.replayed);
        assert_eq!(ListingGrant { replayed: false, ..again }, first);
        // The registration's deadline is over; the listing is not.
        w.sleep(LEASE);
        let again = w.registered(&request);
        assert_eq!(ListingGrant { replayed: false, ..again }, first);
        assert!(w.get_id(OWNER, listing).is_ok_and(|it| it.lease.version == 2));
    }
}

/// "Reuse with different input returns Conflict."
pub fn a_key_reused_otherwise_conflicts<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let mut request = w.registration(OWNER);
    let id = w.registered(&request).view.id;
    request.idempotency.fingerprint = [7; 16];
    assert_eq!(refused(&w.submit(&request)), conflict(ConflictReason::IdempotencyKeyReused));
    assert_eq!(w.delete(OWNER, id), Reply::Deleted);
    assert_eq!(refused(&w.submit(&request)), conflict(ConflictReason::IdempotencyKeyReused));
}

/// "Replay after the resource has expired returns Expired until the bounded record itself expires."
pub fn a_record_outlives_its_listing<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let request = w.registration(OWNER);
    let first = w.registered(&request).view.id;
    w.sleep(LEASE);
    assert_eq!(refused(&w.submit(&request)), Refusal::Expired);
    w.sleep(RECORD_GRACE - NANO);
    assert_eq!(refused(&w.submit(&request)), Refusal::Expired);
    w.sleep(NANO);
    let second = w.registered(&request);
    assert!(!second.replayed && second.view.id != first);
}

/// "Retention covers every listing lifetime": the record moves with each renewal.
pub fn renewal_moves_the_record<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let request = w.registration(OWNER);
    let id = w.registered(&request).view.id;
    for version in 1..=4 {
        w.sleep(50 * SECOND);
        assert!(matches!(w.renew(OWNER, id, version), Reply::Renewed(_)));
        let replay = w.registered(&request);
        assert!(replay.replayed && replay.view.id == id, "a live duplicate after 60 s");
    }
    w.sleep(LEASE + RECORD_GRACE - NANO);
    assert_eq!(refused(&w.submit(&request)), Refusal::Expired);
    w.sleep(NANO);
    assert!(!w.registered(&request).replayed);
}

/// "A tenant-and-owner-scoped idempotency key."
pub fn keys_are_scoped_to_tenant_and_owner<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let mut request = w.registration(OWNER);
    w.registered(&request);
    for other in [THIRD, STRANGER] {
        request.caller = other;
        request.idempotency.fingerprint = [9; 16];
        assert!(!w.registered(&request).replayed);
    }
}

/// "A crashed host takes over its own ghost" in one transition.
pub fn a_slot_is_taken_over_by_its_owner<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let mut request = w.registration(OWNER);
    request.description = description(|it| it.slot = Some("server-1".to_owned()));
    let old = w.registered(&request);
    w.present(old.lease.presence_key, super::v4(1, 4000));
    let attempt = w.attempt(old.view.id);
    let replay = request.clone();
    request.idempotency.key = [0xee; 16];
    let new = w.registered(&request);
    assert_ne!(new.view.id, old.view.id);
    assert_eq!(w.get_id(OWNER, old.view.id), Err(Refusal::NotFound));
    assert!(!new.view.visible, "a ghost's presence is not inherited");
    let ended = w.view(JOINER, attempt.id).map(|it| it.phase);
    assert_eq!(ended, Ok(Phase::Ended(AttemptReason::ListingGone)));
    assert_eq!(refused(&w.submit(&replay)), Refusal::Expired);
    assert_eq!(w.browse(OWNER, |it| it.owned = true).listings.len(), 1);
}

/// "Another owner gets slot_taken", another tenant has slots of its own, a free slot is free.
pub fn a_slot_of_another_owner_is_taken<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let slotted = description(|it| it.slot = Some("server-1".to_owned()));
    let mut request = w.registration(OWNER);
    request.description = slotted.clone();
    let id = w.registered(&request).view.id;
    let mut other = w.registration(THIRD);
    other.description = slotted.clone();
    assert_eq!(refused(&w.submit(&other)), conflict(ConflictReason::SlotTaken));
    let mut stranger = w.registration(STRANGER);
    stranger.description = slotted;
    w.registered(&stranger);
    assert_eq!(w.delete(OWNER, id), Reply::Deleted);
    w.registered(&other);
}

/// "Unlisted: exact look-up by id or join code", while visible; only its owner is shown the code unasked.
pub fn join_codes_find_unlisted_listings<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let mut request = w.registration(OWNER);
    request.description = description(|it| it.visibility = Visibility::Unlisted);
    let grant = w.registered(&request);
    let Some(code) = grant.view.join_code else { panic!("an unlisted listing without join code") };
    let locator = ListingLocator::JoinCode(code);
    assert_eq!(w.get(JOINER, locator), Err(Refusal::NotFound), "it is not visible yet");
    w.present(grant.lease.presence_key, super::v4(1, 4000));
    let found = w.get(JOINER, locator);
    assert!(found.is_ok_and(|it| it.id == grant.view.id && it.join_code == Some(code) && !it.owned));
    assert!(w.get_id(JOINER, grant.view.id).is_ok_and(|it| it.join_code.is_none()));
    assert_eq!(w.get(STRANGER, locator), Err(Refusal::NotFound));
    assert_eq!(w.delete(OWNER, grant.view.id), Reply::Deleted);
    assert_eq!(w.get(OWNER, locator), Err(Refusal::NotFound));
}

/// "Another tenant's things look like not found", everywhere.
pub fn another_tenant_finds_nothing<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let id = w.joinable(OWNER).view.id;
    let attempt = w.attempt(id);
    let operator = crate::store::Caller { operator: true, ..STRANGER };
    for stranger in [STRANGER, operator] {
        assert_eq!(w.get_id(stranger, id), Err(Refusal::NotFound));
        assert_eq!(refused(&w.renew(stranger, id, 1)), Refusal::NotFound);
        assert_eq!(refused(&w.delete(stranger, id)), Refusal::NotFound);
        let creation = w.creation(stranger, id);
        assert_eq!(refused(&w.create(&creation)), Refusal::NotFound);
        assert_eq!(w.view(stranger, attempt.id), Err(Refusal::NotFound));
        assert_eq!(refused(&w.cancel(stranger, attempt.id)), Refusal::NotFound);
        assert!(w.browse(stranger, |_| ()).listings.is_empty());
        let pending = crate::store::ListPending { caller: stranger, listing: id };
        let reply = w.apply(crate::store::Transition::ListPending(pending));
        assert_eq!(refused(&reply), Refusal::NotFound);
    }
}

/// "Operators see and end what others of their tenant own."
pub fn an_operator_deletes_within_its_tenant<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let id = w.register(OWNER).view.id;
    assert_eq!(w.get_id(THIRD, id), Err(Refusal::NotFound));
    assert!(w.get_id(OPERATOR, id).is_ok());
    assert_eq!(w.delete(OPERATOR, id), Reply::Deleted);
}

/// "Removal of a listing also removes its presence handle and every linked attempt before another caller can
/// observe the store."
pub fn deleting_removes_attempts_in_the_same_step<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let other = w.joinable(OWNER);
    let mine: Vec<_> = (0..5).map(|_| w.attempt(host.view.id)).collect();
    let kept = w.attempt(other.view.id);
    assert_eq!(w.delete(OWNER, host.view.id), Reply::Deleted);
    for attempt in mine {
        let reply = w.bind(attempt.joiner_key, attempt.id, super::v4(2, 5000));
        assert_eq!(refused(&reply), Refusal::Expired);
        let phase = w.view(JOINER, attempt.id).map(|it| it.phase);
        assert_eq!(phase, Ok(Phase::Ended(AttemptReason::ListingGone)));
    }
    assert!(super::is_waiting(&w.bind(kept.joiner_key, kept.id, super::v4(2, 5000))));
    assert_eq!(w.used(crate::outcome::Pool::Attempts), 1);
    assert_eq!(w.stats().presence_fresh, 1);
}

/// The same when its lease ends.
pub fn a_lease_that_ends_removes_attempts<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    w.sleep(LEASE - 5 * SECOND);
    w.present(host.lease.presence_key, super::v4(1, 4000));
    let attempt = w.attempt(host.view.id);
    w.sleep(5 * SECOND);
    let view = w.view(JOINER, attempt.id);
    assert_eq!(view.map(|it| it.phase), Ok(Phase::Ended(AttemptReason::ListingGone)));
    assert_eq!(w.used(crate::outcome::Pool::Attempts), 0);
}

/// "It retains only immutable listing data": no transition changes what was published, a retry that says otherwise
/// least of all.
pub fn what_is_published_never_changes<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let mut request = w.registration(OWNER);
    let published = request.description.clone();
    let host = w.registered(&request);
    let id = host.view.id;
    w.present(host.lease.presence_key, super::v4(1, 4000));
    assert!(matches!(w.renew(OWNER, id, 1), Reply::Renewed(_)));
    let attempt = w.attempt(id);
    assert_eq!(w.cancel(OWNER, attempt.id), Reply::Cancelled);
    // The same fingerprint says that it is the same request.
    request.description = description(|it| it.name = "another name".to_owned());
    assert_eq!(w.registered(&request).view.description, published);
    assert!(w.get_id(OWNER, id).is_ok_and(|it| it.description == published));
    assert!(w.browse(JOINER, |_| ()).listings.iter().all(|it| it.description == published));
}

/// "Renew/delete races are serialized": whichever comes first is done, and the other one sees it done.
pub fn renewal_and_removal_come_in_either_order<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    for renewal_first in [true, false] {
        let listing = w.register(OWNER).view.id;
        let mut asked = [
            Transition::RenewLease(RenewLease { caller: OWNER, listing, version: 1, lease: None }),
            Transition::DeleteListing(DeleteListing { caller: OWNER, listing }),
        ];
        asked.rotate_left(usize::from(!renewal_first));
        let replies = super::time::batch(&mut w, &asked);
        if renewal_first {
            assert!(matches!(replies[0], Reply::Renewed(lease) if lease.version == 2), "{replies:?}");
            assert_eq!(replies[1], Reply::Deleted);
        } else {
            assert_eq!((&replies[0], refused(&replies[1])), (&Reply::Deleted, Refusal::NotFound));
        }
        assert_eq!(w.get_id(OWNER, listing), Err(Refusal::NotFound));
        assert_eq!(w.used(crate::outcome::Pool::Listings), 0, "nothing is left of it");
    }
}
