//! The contract of [`EphemeralRendezvousStore`] as public tests: one function, one clause of ADR 0004 or of the
//! protocol's rules, quoted in short in its doc comment. They run against every implementation.
//!
//! An implementation provides a [`Harness`] and calls [`store_contract_tests!`](crate::store_contract_tests),
//! which lists every clause, so that none is forgotten. A clause panics when the store breaks it.

pub mod attempts;
pub mod browsing;
pub mod capacity;
pub mod drain;
mod full;
pub mod introduction;
pub mod listings;
pub mod presence;
pub mod reasons;
pub mod reminders;
pub mod reports;
pub mod revocations;
pub mod time;

use core::time::Duration;

use crate::credential::KeyId;
use crate::endpoint::{Endpoint, Mapping};
use crate::id::{AttemptId, ListingId, PrincipalId, SessionId, TenantId};
use crate::limits::{self, Limits};
use crate::outcome::{ConflictReason, Pool, Refusal};
use crate::store::{
    AttemptGrant, AttemptView, Bind, BindAnswer, BrowseListings, Caller, CancelAttempt, Candidates,
    CreateAttempt, DatagramProof, DeleteListing, DescriptionParts, EndPresence, EphemeralRendezvousStore,
    Filter, GetAttempt, GetListing, IdempotencyKey, Introduction, ListingDescription, ListingGrant,
    ListingLocator, ListingView, Quotas, RefreshPresence, RegisterListing, RenewLease, Reply, StoreStats,
    Transition, Visibility,
};
use crate::time::Instant;

/// How the clauses get at a store and at its time.
pub trait Harness {
    /// The implementation under test.
    type Store: EphemeralRendezvousStore;

    /// A new, empty store with these ceilings.
    fn store(&mut self, limits: Limits) -> Self::Store;

    /// The store's present time.
    fn now(&self) -> Instant;

    /// Lets time pass.
    fn advance(&mut self, by: Duration);

    /// Looks at the store after each step; for what only the implementation can see.
    fn check(&mut self, _store: &Self::Store) {}

    /// All that the store holds, as text that differs when anything does; at least its figures.
    fn snapshot(&self, store: &Self::Store) -> String {
        format!("{:?}", store.stats())
    }
}

/// Defines one `#[test]` for each clause; `$harness` makes a fresh [`Harness`].
#[macro_export]
macro_rules! store_contract_tests {
    ($harness:expr) => {
        $crate::store_contract_tests! { @ $harness;
            listings: registers_and_reads_back, a_lease_ends_at_its_deadline, renewal_is_compare_and_swap,
                a_deleted_listing_is_absent, a_duplicate_returns_the_live_result,
                a_duplicate_repeats_the_first_answer,
                a_key_reused_otherwise_conflicts, a_record_outlives_its_listing,
                renewal_moves_the_record, keys_are_scoped_to_tenant_and_owner, a_slot_is_taken_over_by_its_owner,
                a_slot_of_another_owner_is_taken, join_codes_find_unlisted_listings,
                another_tenant_finds_nothing, an_operator_deletes_within_its_tenant,
                deleting_removes_attempts_in_the_same_step, a_lease_that_ends_removes_attempts,
                what_is_published_never_changes, renewal_and_removal_come_in_either_order;
            browsing: scoped_by_tenant_and_protocol, unlisted_are_excluded, order_is_stable,
                pages_have_a_ceiling, a_page_examines_a_bounded_number, a_walk_sees_each_exactly_once,
                filters_hold, owned_shows_what_is_not_visible;
            presence: visible_needs_lease_and_presence, replaced_whole_within_a_family,
                families_end_on_their_own, a_host_is_told_in_its_joiners_family,
                a_delayed_datagram_reinstates_nothing, the_newest_session_wins,
                sequences_do_not_jump, bye_ends_presence_only, bye_outlives_what_was_sent_before_it,
                a_repeated_bye_is_acknowledged, a_superseded_key_is_refused,
                a_joiner_key_is_no_presence_key, a_waiting_joiner_is_told;
            attempts: need_a_joinable_listing, a_duplicate_returns_the_live_attempt,
                a_key_reused_otherwise_conflicts, a_record_outlives_its_attempt,
                introduction_moves_the_record, ends_at_its_deadline_with_a_reason, its_reason_is_of_its_end,
                the_joiner_cancels_and_the_host_declines, an_introduced_attempt_is_not_cancelled,
                pending_attempts_are_the_hosts,
                a_page_of_pending_attempts_is_full, strangers_find_no_attempt, results_are_kept_a_while,
                keys_are_scoped_to_tenant_and_owner;
            introduction: hands_over_what_each_bound, happens_once_whoever_comes_last,
                is_replayed_until_the_deadline, the_first_endpoint_wins, identical_binds_are_idempotent,
                needs_fresh_presence, needs_fresh_proofs, a_replayed_bind_proves_nothing_anew,
                the_same_endpoint_ends_it, the_same_second_endpoint_ends_it, no_common_family_ends_it,
                a_second_family_is_common_ground, who_is_nearer_starts_later,
                candidates_only_behind_one_address,
                other_keys_bind_nothing, lives_five_seconds_more, a_delayed_bind_binds_nothing,
                a_voided_session_binds_nothing, a_long_session_binds,
                others_are_told_from_the_address_they_asked;
            reminders: a_host_is_reminded_where_it_is_now, a_host_is_reminded_of_what_waits,
                peers_are_reminded_until_they_report, an_address_no_longer_proved_is_not_reminded,
                they_change_nothing;
            reasons: each_is_reached, the_likeliest_cause_is_told, a_mapping_becomes_known_once;
            reports: the_first_of_each_role_counts, both_finish_the_attempt, come_in_any_order,
                repeated_ones_are_acknowledged, need_an_introduction, a_dead_key_reports_nothing;
            capacity: a_full_pool_of_listings_refuses, a_full_pool_of_listing_records_refuses,
                a_full_pool_of_attempts_refuses, a_full_pool_of_attempt_records_refuses,
                a_full_pool_of_results_keeps_the_old, an_owner_has_a_quota, a_tenant_has_quotas,
                what_is_due_frees_its_place, a_takeover_needs_no_second_place,
                a_tenant_has_a_share_of_the_records, each_full_pool_refuses_exactly_its_operations,
                what_was_refused_is_not_done_later, requests_side_by_side_pass_no_quota, a_peak_stays;
            time: a_batch_is_applied_in_order, nothing_made_in_a_batch_is_due_in_it, leases_are_whole_seconds,
                attempts_are_whole_seconds, each_deadline_is_exact, a_presence_lasts_from_its_arrival,
                a_proof_is_good_for_thirty_seconds, many_due_together_free_their_places_at_once,
                many_revocations_end_together, who_ends_a_listing_comes_after_what_was_over,
                who_waits_longest_comes_first;
            revocations: a_full_pool_deletes_nothing, a_listing_goes_with_presence_and_attempts,
                a_principal_goes_with_all_it_owns_and_joins, an_owner_learns_why_and_nobody_else,
                another_instances_listing_is_not_revoked,
                a_revoked_caller_is_told_so_first, barring_again_prolongs, ends_at_its_deadline,
                lifting_brings_nothing_back, are_listed_in_order, are_for_operators_of_the_tenant,
                grants_whole_seconds, are_possible_while_draining;
            drain: is_idempotent_and_the_earlier_deadline_wins, rejects_what_is_new,
                finishes_what_was_begun, tells_how_many_are_left, clears_everything_at_the_deadline,
                ends_what_is_left_at_its_deadline, has_a_longest_window,
                a_new_store_knows_nothing_of_the_old;
        }
    };
    (@ $harness:expr; $($module:ident: $($clause:ident),+;)+) => {$(
        mod $module {
            use super::*;
            $(
                #[test]
                fn $clause() {
                    $crate::store::contract::$module::$clause(&mut $harness);
                }
            )+
        }
    )+};
}

/// An owner, a joiner and an operator of one tenant; somebody of another.
const OWNER: Caller = caller(1, 1);
const JOINER: Caller = caller(1, 2);
const THIRD: Caller = caller(1, 3);
const STRANGER: Caller = caller(2, 1);
const OPERATOR: Caller = Caller { operator: true, ..caller(1, 9) };

const LEASE: Duration = Duration::from_secs(60);
const LIFETIME: Duration = Duration::from_secs(20);
const SECOND: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);
const NO_QUOTA: Quotas =
    Quotas { listings_per_owner: u32::MAX, listings_per_tenant: u32::MAX, attempts_per_tenant: u32::MAX };

const fn caller(tenant: u32, principal: u32) -> Caller {
    Caller { tenant: TenantId(tenant), principal: PrincipalId(principal), operator: false }
}

fn v4(last: u8, port: u16) -> Endpoint {
    Endpoint::new([9, 9, 9, last].into(), port)
}

fn v6(last: u16, port: u16) -> Endpoint {
    Endpoint::new([0x2600, 0, 0, 0, 0, 0, 0, last].into(), port)
}

/// Public, of protocol `game/1`, changed by `change`.
fn description(change: impl FnOnce(&mut DescriptionParts)) -> ListingDescription {
    let mut parts = DescriptionParts {
        protocol: "game/1".to_owned(),
        name: "a session".to_owned(),
        visibility: Visibility::Public,
        player_capacity: 8,
        attributes: Vec::new(),
        slot: None,
    };
    change(&mut parts);
    ListingDescription::new(&parts).unwrap_or_else(|error| panic!("{error}: {parts:?}"))
}

fn refused(reply: &Reply) -> Refusal {
    let Reply::Refused(refusal) = reply else { panic!("should be refused: {reply:?}") };
    *refusal
}

fn conflict(reason: ConflictReason) -> Refusal {
    Refusal::Conflict(reason)
}

fn introduced(reply: &Reply) -> Introduction {
    let Reply::Bind(BindAnswer::Introduced { own, .. }) = reply else {
        panic!("should be introduced: {reply:?}")
    };
    *own
}

fn replayed(reply: &Reply) -> Introduction {
    let Reply::Bind(BindAnswer::Replayed { own }) = reply else { panic!("should be replayed: {reply:?}") };
    *own
}

fn is_waiting(reply: &Reply) -> bool {
    matches!(reply, Reply::Bind(BindAnswer::Waiting { .. }))
}

/// One store, one step at a time.
struct World<'h, H: Harness> {
    harness: &'h mut H,
    store: H::Store,
    counter: u64,
}

impl<'h, H: Harness> World<'h, H> {
    fn new(harness: &'h mut H) -> Self {
        Self::with_limits(harness, Limits::DEFAULT)
    }

    fn with_limits(harness: &'h mut H, limits: Limits) -> Self {
        let store = harness.store(limits);
        Self { harness, store, counter: 0 }
    }

    fn now(&self) -> Instant {
        self.harness.now()
    }

    fn sleep(&mut self, by: Duration) {
        self.harness.advance(by);
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn apply(&mut self, transition: Transition) -> Reply {
        let mut replies = Vec::new();
        self.store.apply(self.harness.now(), &[transition], &mut replies);
        self.harness.check(&self.store);
        let count = replies.len();
        let (Some(reply), 1) = (replies.pop(), count) else { panic!("{count} replies to one transition") };
        reply
    }

    /// How the store stands once everything that is over was given back.
    fn stats(&mut self) -> StoreStats {
        let now = self.harness.now();
        loop {
            self.store.expire(now);
            self.harness.check(&self.store);
            if self.store.next_deadline().is_none_or(|at| at > now) {
                break;
            }
        }
        self.store.stats()
    }

    fn used(&mut self, pool: Pool) -> usize {
        self.stats().pools.iter().find(|it| it.pool == pool).map_or(0, |it| it.used)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.store.next_deadline()
    }

    // ---- Listings

    fn registration(&mut self, caller: Caller) -> RegisterListing {
        let number = self.next();
        RegisterListing {
            caller,
            quotas: NO_QUOTA,
            idempotency: IdempotencyKey { key: u128::from(number).to_be_bytes(), fingerprint: [1; 16] },
            description: description(|_| ()),
            lease: LEASE,
        }
    }

    fn submit(&mut self, request: &RegisterListing) -> Reply {
        self.apply(Transition::RegisterListing(Box::new(request.clone())))
    }

    fn registered(&mut self, request: &RegisterListing) -> ListingGrant {
        match self.submit(request) {
            Reply::Registered(grant) => *grant,
            other => panic!("should be registered: {other:?}"),
        }
    }

    fn register(&mut self, caller: Caller) -> ListingGrant {
        let request = self.registration(caller);
        self.registered(&request)
    }

    /// Registered, with a fresh presence at `v4(1, 4000)`.
    fn joinable(&mut self, caller: Caller) -> ListingGrant {
        let grant = self.register(caller);
        self.present(grant.lease.presence_key, v4(1, 4000));
        grant
    }

    fn renew(&mut self, caller: Caller, listing: ListingId, version: u64) -> Reply {
        self.apply(Transition::RenewLease(RenewLease { caller, listing, version, lease: None }))
    }

    fn delete(&mut self, caller: Caller, listing: ListingId) -> Reply {
        self.apply(Transition::DeleteListing(DeleteListing { caller, listing }))
    }

    fn get(&mut self, caller: Caller, locator: ListingLocator) -> Result<ListingView, Refusal> {
        match self.apply(Transition::GetListing(GetListing { caller, locator })) {
            Reply::Listing(view) => Ok(*view),
            Reply::Refused(refusal) => Err(refusal),
            other => panic!("no answer to a read: {other:?}"),
        }
    }

    fn get_id(&mut self, caller: Caller, listing: ListingId) -> Result<ListingView, Refusal> {
        self.get(caller, ListingLocator::Id(listing))
    }

    fn browse(&mut self, caller: Caller, change: impl FnOnce(&mut BrowseListings)) -> crate::store::Page {
        let mut request = BrowseListings {
            caller,
            protocol: Some("game/1".into()),
            owned: false,
            filter: Filter::default(),
            after: None,
            limit: limits::PAGE_LEN_DEFAULT,
        };
        change(&mut request);
        match self.apply(Transition::BrowseListings(Box::new(request))) {
            Reply::Page(page) => page,
            other => panic!("no page: {other:?}"),
        }
    }

    // ---- Datagrams

    /// A proof with the next sequence of session 1 and a cookie issued just now.
    fn proof(&mut self, key_id: KeyId, source: Endpoint) -> DatagramProof {
        let (sequence, now) = (self.next(), self.now());
        let session = SessionId(1);
        DatagramProof { key_id, source, local: None, arrived: now, cookie_issued: now, session, sequence }
    }

    fn refresh(&mut self, proof: DatagramProof) -> Reply {
        self.apply(Transition::RefreshPresence(RefreshPresence { proof }))
    }

    fn present(&mut self, key_id: KeyId, source: Endpoint) {
        let proof = self.proof(key_id, source);
        let reply = self.refresh(proof);
        assert!(matches!(reply, Reply::Presence(_)), "presence should be accepted: {reply:?}");
    }

    fn bye(&mut self, key_id: KeyId, source: Endpoint) -> Reply {
        let proof = self.proof(key_id, source);
        self.apply(Transition::EndPresence(EndPresence { proof }))
    }

    fn bind(&mut self, key_id: KeyId, attempt: AttemptId, source: Endpoint) -> Reply {
        self.bind_with(key_id, attempt, source, Candidates::default())
    }

    fn bind_with(
        &mut self,
        key_id: KeyId,
        attempt: AttemptId,
        source: Endpoint,
        candidates: Candidates,
    ) -> Reply {
        let proof = self.proof(key_id, source);
        self.apply(Transition::Bind(Bind {
            proof,
            attempt,
            candidates,
            round_trip: Duration::ZERO,
            mapping: Mapping::Unknown,
        }))
    }

    // ---- Attempts

    fn creation(&mut self, caller: Caller, listing: ListingId) -> CreateAttempt {
        let number = self.next();
        CreateAttempt {
            caller,
            quotas: NO_QUOTA,
            idempotency: IdempotencyKey { key: u128::from(number).to_be_bytes(), fingerprint: [2; 16] },
            listing,
            note: None,
            lifetime: LIFETIME,
        }
    }

    fn create(&mut self, request: &CreateAttempt) -> Reply {
        self.apply(Transition::CreateAttempt(Box::new(request.clone())))
    }

    fn created(&mut self, request: &CreateAttempt) -> AttemptGrant {
        match self.create(request) {
            Reply::AttemptCreated(grant) => *grant,
            other => panic!("should be created: {other:?}"),
        }
    }

    fn attempt(&mut self, listing: ListingId) -> AttemptGrant {
        let request = self.creation(JOINER, listing);
        self.created(&request)
    }

    fn view(&mut self, caller: Caller, attempt: AttemptId) -> Result<AttemptView, Refusal> {
        match self.apply(Transition::GetAttempt(GetAttempt { caller, attempt })) {
            Reply::Attempt(view) => Ok(*view),
            Reply::Refused(refusal) => Err(refusal),
            other => panic!("no answer to a read: {other:?}"),
        }
    }

    fn cancel(&mut self, caller: Caller, attempt: AttemptId) -> Reply {
        self.apply(Transition::CancelAttempt(CancelAttempt { caller, attempt }))
    }

    /// A joinable listing and an attempt at it, both roles bound and introduced.
    fn introduced_pair(&mut self) -> (ListingGrant, AttemptGrant) {
        let host = self.joinable(OWNER);
        let attempt = self.attempt(host.view.id);
        assert!(is_waiting(&self.bind(attempt.joiner_key, attempt.id, v4(2, 5000))));
        introduced(&self.bind(host.lease.presence_key, attempt.id, v4(1, 4000)));
        (host, attempt)
    }
}
