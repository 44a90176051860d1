//! Stores in which much is about to end, each kind in its own way.
//!
//! All begin alike: at the start 25,000 hosts register for a minute, and attempts are made for a minute; forty seconds
//! later the hosts refresh, and a few renew as well and outlive the storm, half of them without presence.

use std::time::Duration;

use rendezvous_shared::id::TenantId;
use rendezvous_shared::limits::{ATTEMPT_MAX, LEASE_DEFAULT, Limits, RECORD_GRACE, RESULT_LIFETIME};
use rendezvous_shared::outcome::Pool;
use rendezvous_shared::store::{BeginDrain, Quotas, Reply, Subject, Transition};

use crate::clients::Clients;
use crate::fleet::{Fleet, Lifetimes, NO_QUOTA};
use crate::rounds::shuffled;

const LIMITS: Limits = Limits::DEFAULT;
const SECOND: Duration = Duration::from_secs(1);
/// What ends together was made together, and lives equally long.
const LIFE: Duration = LEASE_DEFAULT;
const _: () =
    assert!(LIFE.as_secs() == ATTEMPT_MAX.as_secs() && RECORD_GRACE.as_secs() == RESULT_LIFETIME.as_secs());
/// When hosts refresh, after the start.
const REFRESHED: Duration = Duration::from_secs(40);
/// One host in so many outlives the storm.
const SURVIVES: usize = 25;
/// Attempts that are made when the hosts have refreshed, at those that outlive the storm.
const LATE_ATTEMPTS: usize = 400;
/// As many attempts as one tenant may have, where they are all at one host.
const CROWD: usize = LIMITS.attempts_per_tenant as usize;
/// The host that registered first, whose turn it is first when all end; and one that outlives the storm absent.
const OLDEST: usize = 0;
const ABSENT: usize = 1;

/// A store at the moment of its storm.
pub(crate) struct Stage {
    pub(crate) clients: Clients,
    /// What comes first, alone.
    pub(crate) first: Option<Transition>,
}

/// What ends, and how that comes about.
type Kind = (&'static str, fn() -> Stage);

/// The kinds of storm.
pub(crate) const STAGES: [Kind; 11] = [
    ("nothing; all pools but that of revocations are full", calm),
    ("all: listings, attempts, results of earlier ones", everything),
    ("a minute later: their records, their results", records),
    ("all, while the server drains", everything_while_draining),
    ("a drain at its deadline", drain),
    ("all, then a registration", registration),
    (
        "all, then a registration; a tenant's quota of attempts was at the oldest listing",
        registration_at_crowd,
    ),
    ("all, then PRESENCE of a lapsed host; a tenant's quota of attempts was at it", presence_at_crowd),
    ("listings only, then a creation; the pool of attempts is full of live ones", creation),
    ("a tenant's records, then a registration of another that used up its share", share),
    ("a tenant's quota of attempts, by the revocation of their joiner", revocation),
];

fn survives(host: usize) -> bool {
    host % SURVIVES == ABSENT
}

fn lapses(host: usize) -> bool {
    host % (2 * SURVIVES) == ABSENT
}

/// Twenty seconds before the storm: with all pools full, and all of a tenant's attempts at `crowded`.
fn full(crowded: Option<usize>) -> Clients {
    let mut clients = registered();
    let order = shuffled(LIMITS.listings);
    for &host in order.iter().cycle().take(LIMITS.attempt_results) {
        cancelled(&mut clients.fleet, host);
    }
    let crowd = crowded.into_iter().flat_map(|host| std::iter::repeat_n(host, CROWD));
    for host in crowd.chain(order).take(LIMITS.attempts - LATE_ATTEMPTS) {
        join(&mut clients, host);
    }
    refreshed(&mut clients);
    for at in 0..LATE_ATTEMPTS {
        // Those with a presence stand at every second place.
        let host = clients.live[2 * at + 1];
        join(&mut clients, host);
    }
    clients
}

/// All hosts are there; nobody joins them yet.
fn registered() -> Clients {
    let mut fleet = Fleet::new(LIMITS, Lifetimes::One { lease: LIFE, attempt: LIFE });
    fleet.register(LIMITS.listings);
    let mut clients = Clients::new(fleet);
    clients.live = (0..LIMITS.listings).filter(|&host| survives(host)).collect();
    clients.absent = (0..LIMITS.listings).filter(|&host| lapses(host)).collect();
    clients
}

fn refreshed(clients: &mut Clients) {
    pass(clients, REFRESHED);
    for host in 0..clients.fleet.hosts.len() {
        if survives(host) {
            keep(&mut clients.fleet, host);
        } else {
            let refresh = clients.fleet.refresh(host);
            assert!(matches!(clients.fleet.one(refresh), Reply::Presence(_)));
        }
    }
}

/// A host renews its lease, and its presence unless that is to lapse.
fn keep(fleet: &mut Fleet, host: usize) {
    if !lapses(host) {
        return fleet.keep(host);
    }
    let renewal = fleet.renewal(host);
    assert!(matches!(fleet.one(renewal), Reply::Renewed(_)));
    fleet.hosts[host].version += 1;
}

/// An attempt of which the result is left, and the record.
fn cancelled(fleet: &mut Fleet, host: usize) {
    let attempt = fleet.join(host);
    let cancel = fleet.cancellation(&attempt);
    assert!(matches!(fleet.one(cancel), Reply::Cancelled));
}

/// A new attempt: its joiner is bound, and every second time the host, too.
fn join(clients: &mut Clients, host: usize) {
    let fleet = &mut clients.fleet;
    let attempt = fleet.join(host);
    let bind = fleet.bind_joiner(&attempt);
    fleet.one(bind);
    if attempt.number.is_multiple_of(2) {
        let bind = fleet.bind_host(&attempt);
        fleet.one(bind);
    }
    clients.attempts.push(attempt);
}

fn pass(clients: &mut Clients, time: Duration) {
    clients.fleet.now = clients.fleet.now.after(time);
}

fn calm() -> Stage {
    let mut clients = full(None);
    pass(&mut clients, SECOND);
    Stage { clients, first: None }
}

fn everything() -> Stage {
    let mut clients = full(None);
    pass(&mut clients, LIFE - REFRESHED);
    Stage { clients, first: None }
}

/// Others registered and made attempts since, so that the pools of records are full.
fn records() -> Stage {
    let Stage { mut clients, .. } = everything();
    clients.fleet.settle();
    pass(&mut clients, SECOND);
    let gone = clients.fleet.hosts.len();
    let spare = clients.live.len();
    let (used, limit) = clients.fleet.pool(Pool::ListingRecords);
    clients.fleet.register(limit - used - spare);
    // Some delete theirs, and some attempts are cancelled, so that there is room for others.
    for host in gone..gone + spare {
        let delete = clients.fleet.deletion(host);
        clients.fleet.one(delete);
    }
    clients.fleet.register(spare);
    clients.live.extend(gone + spare..clients.fleet.hosts.len());
    let (used, limit) = clients.fleet.pool(Pool::AttemptRecords);
    for at in 0..limit - used {
        let host = gone + spare + at;
        if at < spare {
            cancelled(&mut clients.fleet, host);
        } else {
            join(&mut clients, host);
        }
    }
    let rest = RECORD_GRACE - SECOND;
    pass(&mut clients, rest / 2);
    clients.live.iter().for_each(|&host| keep(&mut clients.fleet, host));
    clients.absent = clients.live.iter().copied().filter(|&host| lapses(host)).collect();
    pass(&mut clients, rest / 2);
    Stage { clients, first: None }
}

fn everything_while_draining() -> Stage {
    let mut clients = full(None);
    clients.fleet.one(Transition::BeginDrain(BeginDrain { window: LIFE }));
    pass(&mut clients, LIFE - REFRESHED);
    Stage { clients, first: None }
}

fn drain() -> Stage {
    let mut clients = full(None);
    let window = (LIFE - REFRESHED) / 2;
    clients.fleet.one(Transition::BeginDrain(BeginDrain { window }));
    pass(&mut clients, window);
    Stage { clients, first: None }
}

fn registration() -> Stage {
    let Stage { mut clients, .. } = everything();
    let number = clients.fleet.hosts.len() as u32;
    let request = clients.fleet.registration(number);
    Stage { clients, first: Some(Transition::RegisterListing(Box::new(request))) }
}

fn registration_at_crowd() -> Stage {
    let mut clients = full(Some(OLDEST));
    pass(&mut clients, LIFE - REFRESHED);
    let request = clients.fleet.registration(OLDEST as u32);
    Stage { clients, first: Some(Transition::RegisterListing(Box::new(request))) }
}

fn presence_at_crowd() -> Stage {
    let mut clients = full(Some(ABSENT));
    pass(&mut clients, LIFE - REFRESHED);
    let refresh = clients.fleet.refresh(ABSENT);
    Stage { clients, first: Some(refresh) }
}

fn creation() -> Stage {
    let mut clients = registered();
    refreshed(&mut clients);
    for at in 0..LIMITS.attempts {
        let host = clients.live[(2 * at + 1) % clients.live.len()];
        join(&mut clients, host);
    }
    pass(&mut clients, LIFE - REFRESHED);
    let creation = clients.fleet.creation(clients.live[1]);
    Stage { clients, first: Some(creation) }
}

fn share() -> Stage {
    let mut fleet = Fleet::new(LIMITS, Lifetimes::One { lease: LIFE, attempt: LIFE });
    for number in 0..LIMITS.listings as u32 {
        let mut request = fleet.registration(number);
        request.caller.tenant = TenantId(u32::MAX);
        fleet.registered(request, number);
    }
    pass_and_settle(&mut fleet, LIFE);
    pass_and_settle(&mut fleet, RECORD_GRACE - SECOND);
    fleet.hosts.clear();
    fleet.register(LIMITS.listings / SURVIVES);
    let mut clients = Clients::new(fleet);
    clients.live = (0..clients.fleet.hosts.len()).collect();
    (0..clients.fleet.hosts.len()).for_each(|host| join(&mut clients, host));
    let quota = 2 * LIMITS.listings as u32 / SURVIVES as u32;
    // Registered and deleted in a loop, until there are no more records for it.
    let last = loop {
        let mut request = clients.fleet.registration(0);
        request.quotas = Quotas { listings_per_tenant: quota, ..NO_QUOTA };
        let caller = request.caller;
        let request = Transition::RegisterListing(Box::new(request));
        let Reply::Registered(grant) = clients.fleet.one(request.clone()) else { break request };
        let host = clients.fleet.enrol(&grant, caller, 0);
        let delete = clients.fleet.deletion(host);
        clients.fleet.one(delete);
    };
    pass(&mut clients, SECOND);
    Stage { clients, first: Some(last) }
}

fn pass_and_settle(fleet: &mut Fleet, time: Duration) {
    fleet.now = fleet.now.after(time);
    fleet.settle();
}

fn revocation() -> Stage {
    let mut clients = full(Some(ABSENT));
    pass(&mut clients, SECOND);
    let joiner = clients.fleet.joiner(ABSENT);
    let revoke = clients.fleet.revocation(joiner.tenant, Subject::Principal(joiner.principal));
    Stage { clients, first: Some(revoke) }
}
