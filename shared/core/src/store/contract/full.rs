//! A small world with one of everything, one of its pools full; and everything that may be asked of it.

use super::{Harness, JOINER, LIFETIME, OPERATOR, OWNER, STRANGER, THIRD, World, description, v4};
use crate::endpoint::Mapping;
use crate::id::{PrincipalId, Role};
use crate::limits::{DRAIN_MAX, Limits, REVOCATION_MIN};
use crate::outcome::Pool;
use crate::store::{
    AttemptGrant, BeginDrain, Bind, BrowseListings, CancelAttempt, Candidates, CreateAttempt, DeleteListing,
    EndPresence, Filter, GetAttempt, GetListing, LiftRevocation, ListPending, ListRevocations, ListingGrant,
    ListingLocator, RefreshPresence, RegisterListing, Remind, RenewLease, Reply, Report, Reporter,
    RevocationView, Revoke, Subject, Transition,
};
use crate::wire::ReportResult;

/// What there is to ask about.
pub(super) struct Scene {
    registration: RegisterListing,
    host: ListingGrant,
    creation: CreateAttempt,
    /// Nobody is bound in it.
    attempt: AttemptGrant,
    /// Its peers are introduced.
    met: AttemptGrant,
    revocation: RevocationView,
}

/// Something to ask, and the pools in which it needs a place.
pub(super) struct Row<H: Harness> {
    pub(super) what: &'static str,
    pub(super) needs: &'static [Pool],
    pub(super) ask: fn(&mut World<'_, H>, &Scene) -> Transition,
}

impl Scene {
    /// A world in which `pool` holds just as much as it may, and every other pool has room.
    pub(super) fn full<H: Harness>(harness: &mut H, pool: Pool) -> (World<'_, H>, Self) {
        let mut limits = Limits {
            listings: 8,
            attempts: 8,
            listing_records: 8,
            attempt_records: 8,
            attempt_results: 8,
            revocations: 8,
            ..Limits::DEFAULT
        };
        match pool {
            Pool::Listings => limits.listings = 1,
            Pool::Attempts => limits.attempts = 2,
            Pool::ListingRecords => limits.listing_records = 1,
            Pool::AttemptRecords => limits.attempt_records = 3,
            Pool::AttemptResults => limits.attempt_results = 1,
            Pool::Revocations => limits.revocations = 1,
        }
        let mut w = World::with_limits(harness, limits);
        let scene = Self::new(&mut w);
        for it in w.stats().pools {
            assert_eq!(it.used == it.limit, it.pool == pool, "{it:?} with {pool:?} full");
        }
        (w, scene)
    }

    fn new<H: Harness>(w: &mut World<'_, H>) -> Self {
        let mut registration = w.registration(OWNER);
        registration.description = description(|it| it.slot = Some("server-1".to_owned()));
        let host = w.registered(&registration);
        let key = host.lease.presence_key;
        w.present(key, v4(1, 4000));
        let over = w.attempt(host.view.id);
        assert_eq!(w.cancel(JOINER, over.id), Reply::Cancelled);
        let creation = w.creation(JOINER, host.view.id);
        let attempt = w.created(&creation);
        let met = w.attempt(host.view.id);
        w.bind(met.joiner_key, met.id, v4(2, 5000));
        super::introduced(&w.bind(key, met.id, v4(1, 4000)));
        let revoke = revoke(Subject::Principal(PrincipalId(77)));
        let Reply::Revoked(revocation) = w.apply(revoke) else { panic!("not revoked") };
        Self { registration, host, creation, attempt, met, revocation }
    }
}

fn revoke(subject: Subject) -> Transition {
    Transition::Revoke(Revoke { caller: OPERATOR, subject, lifetime: REVOCATION_MIN })
}

fn row<H: Harness>(
    what: &'static str,
    needs: &'static [Pool],
    ask: fn(&mut World<'_, H>, &Scene) -> Transition,
) -> Row<H> {
    Row { what, needs, ask }
}

/// All that may be asked: each kind of transition, the creating ones with and without need of a place.
pub(super) fn rows<H: Harness>() -> Vec<Row<H>> {
    let mut rows = creating();
    rows.extend(of_the_control_plane());
    rows.extend(of_datagrams());
    rows
}

fn creating<H: Harness>() -> Vec<Row<H>> {
    const LISTING: &[Pool] = &[Pool::Listings, Pool::ListingRecords];
    const ATTEMPT: &[Pool] = &[Pool::Attempts, Pool::AttemptRecords];
    vec![
        row("a registration", LISTING, |w, _| Transition::RegisterListing(Box::new(w.registration(OWNER)))),
        row("a registration in a new tenant", LISTING, |w, _| {
            Transition::RegisterListing(Box::new(w.registration(STRANGER)))
        }),
        row("a take-over", &[Pool::ListingRecords], |w, scene| {
            let description = scene.registration.description.clone();
            Transition::RegisterListing(Box::new(RegisterListing { description, ..w.registration(OWNER) }))
        }),
        row("a repeated registration", &[], |_, scene| {
            Transition::RegisterListing(Box::new(scene.registration.clone()))
        }),
        row("a creation", ATTEMPT, |w, scene| {
            Transition::CreateAttempt(Box::new(w.creation(JOINER, scene.host.view.id)))
        }),
        row("a creation by somebody new", ATTEMPT, |w, scene| {
            Transition::CreateAttempt(Box::new(w.creation(THIRD, scene.host.view.id)))
        }),
        row("a repeated creation", &[], |_, scene| {
            Transition::CreateAttempt(Box::new(scene.creation.clone()))
        }),
        row("a revocation of a listing", &[Pool::Revocations], |_, scene| {
            revoke(Subject::Listing(scene.host.view.id))
        }),
        row("a revocation of a principal", &[Pool::Revocations], |_, _| {
            revoke(Subject::Principal(JOINER.principal))
        }),
        row("a repeated revocation", &[], |_, scene| revoke(scene.revocation.subject)),
    ]
}

fn of_the_control_plane<H: Harness>() -> Vec<Row<H>> {
    vec![
        row("a renewal", &[], |_, scene| {
            let listing = scene.host.view.id;
            Transition::RenewLease(RenewLease { caller: OWNER, listing, version: 1, lease: None })
        }),
        row("a removal", &[], |_, scene| {
            Transition::DeleteListing(DeleteListing { caller: OWNER, listing: scene.host.view.id })
        }),
        row("a look at a listing", &[], |_, scene| {
            let locator = ListingLocator::Id(scene.host.view.id);
            Transition::GetListing(GetListing { caller: JOINER, locator })
        }),
        row("a look at all listings", &[], |_, _| {
            let (protocol, filter) = (Some("game/1".into()), Filter::default());
            let browse =
                BrowseListings { caller: JOINER, protocol, owned: false, filter, after: None, limit: 9 };
            Transition::BrowseListings(Box::new(browse))
        }),
        row("a look at an attempt", &[], |_, scene| {
            Transition::GetAttempt(GetAttempt { caller: JOINER, attempt: scene.attempt.id })
        }),
        row("a look at pending attempts", &[], |_, scene| {
            Transition::ListPending(ListPending { caller: OWNER, listing: scene.host.view.id })
        }),
        row("a cancellation", &[], |_, scene| {
            Transition::CancelAttempt(CancelAttempt { caller: JOINER, attempt: scene.attempt.id })
        }),
        row("a look at revocations", &[], |_, _| {
            Transition::ListRevocations(ListRevocations { caller: OPERATOR, after: None, limit: 9 })
        }),
        row("a lifted revocation", &[], |_, scene| {
            let revocation = scene.revocation.id;
            Transition::LiftRevocation(LiftRevocation { caller: OPERATOR, revocation })
        }),
        row("a drain", &[], |_, _| Transition::BeginDrain(BeginDrain { window: DRAIN_MAX })),
        row("a look at the drain", &[], |_, _| Transition::GetDrain),
    ]
}

fn of_datagrams<H: Harness>() -> Vec<Row<H>> {
    vec![
        row("a presence", &[], |w, scene| {
            let proof = w.proof(scene.host.lease.presence_key, v4(1, 4000));
            Transition::RefreshPresence(RefreshPresence { proof })
        }),
        row("a farewell", &[], |w, scene| {
            let proof = w.proof(scene.host.lease.presence_key, v4(1, 4000));
            Transition::EndPresence(EndPresence { proof })
        }),
        row("a bound role", &[], |w, scene| {
            let proof = w.proof(scene.attempt.joiner_key, v4(2, 5000));
            let (attempt, candidates) = (scene.attempt.id, Candidates::default());
            Transition::Bind(Bind {
                proof,
                attempt,
                candidates,
                round_trip: LIFETIME / 100,
                mapping: Mapping::Unknown,
            })
        }),
        row("a reminder", &[], |_, scene| {
            Transition::Remind(Remind { attempt: scene.met.id, role: Role::Host })
        }),
        row("a report", &[], |w, scene| {
            let reporter = Reporter::Datagram(w.proof(scene.met.joiner_key, v4(2, 5000)));
            Transition::Report(Report { reporter, attempt: scene.met.id, result: ReportResult::Connected })
        }),
    ]
}
