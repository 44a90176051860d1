//! What is asked of a store while a storm is on: in each batch a bit of everything.

use std::collections::BTreeSet;

use rendezvous_shared::counter::Label;
use rendezvous_shared::id::TenantId;
use rendezvous_shared::limits::{Limits, PAGE_LEN_DEFAULT};
use rendezvous_shared::outcome::OutcomeKind;
use rendezvous_shared::store::{
    BrowseListings, EphemeralRendezvousStore, Filter, GetAttempt, Quotas, Reply, Subject, Transition,
};

use crate::fleet::{Attempt, BATCH, Fleet, LISTINGS_PER_OWNER, NO_QUOTA, TENANTS};

/// Makes a transition; says which host it is about, too.
type Make = fn(&mut Clients) -> (usize, Transition);

/// How many of a batch are what.
const SHARES: [(usize, Make); 13] = [
    (21, Clients::refresh),
    (6, Clients::come_back),
    (6, Clients::register),
    (6, Clients::create),
    (4, Clients::bind_joiner),
    (4, Clients::bind_host),
    (4, Clients::renew),
    (3, Clients::cancel),
    (3, Clients::get_attempt),
    (3, Clients::report),
    (1, Clients::browse),
    (1, Clients::ask_for_drain),
    (2, Clients::leave_or_revoke),
];
/// The kinds of transitions that they make.
pub(crate) const KINDS: usize = 12;
const _: () = {
    let (mut kind, mut sum) = (0, 0);
    while kind < SHARES.len() {
        sum += SHARES[kind].0;
        kind += 1;
    }
    assert!(sum == BATCH);
};

/// The quotas that each owner and each tenant just fills with listings in a store at its ceilings.
const FILLED: Quotas = Quotas {
    listings_per_owner: LISTINGS_PER_OWNER / TENANTS,
    listings_per_tenant: Limits::DEFAULT.listings as u32 / TENANTS,
    ..NO_QUOTA
};

/// Everybody who talks to a store, and what they know. Most of it is over when a storm begins, and nobody told them.
pub(crate) struct Clients {
    pub(crate) fleet: Fleet,
    /// Hosts that outlive the storm, or came since.
    pub(crate) live: Vec<usize>,
    /// Those among them that have no presence.
    pub(crate) absent: Vec<usize>,
    pub(crate) attempts: Vec<Attempt>,
    /// Attempts that nobody is bound in, and those in which the joiner is.
    unbound: Vec<Attempt>,
    waiting: Vec<Attempt>,
    /// The quotas of attempts that the tenants just filled before the storm.
    filled: Option<[u32; TENANTS as usize]>,
    /// The host that each transition of the last batch is about.
    about: Vec<usize>,
    /// Kinds of transitions of which one or the other took effect: what is all refused costs too little.
    pub(crate) done: BTreeSet<&'static str>,
    batches: u64,
    random: u64,
}

impl Clients {
    pub(crate) const fn new(fleet: Fleet) -> Self {
        Self {
            fleet,
            live: Vec::new(),
            absent: Vec::new(),
            attempts: Vec::new(),
            unbound: Vec::new(),
            waiting: Vec::new(),
            filled: None,
            about: Vec::new(),
            done: BTreeSet::new(),
            batches: 0,
            random: 1,
        }
    }

    pub(crate) fn batch(&mut self) -> Vec<Transition> {
        self.about.clear();
        self.batches += 1;
        let mut batch = Vec::with_capacity(BATCH);
        for make in SHARES.iter().flat_map(|&(count, make)| std::iter::repeat_n(make, count)) {
            let (host, transition) = make(self);
            self.about.push(host);
            batch.push(transition);
        }
        batch
    }

    /// Applies a batch, and works off first what a round does.
    pub(crate) fn round(&mut self, batch: &[Transition]) {
        let Fleet { store, now, replies, .. } = &mut self.fleet;
        replies.clear();
        store.expire(*now);
        store.apply(*now, batch, replies);
    }

    /// Takes in what the last batch was answered.
    pub(crate) fn learn(&mut self, batch: &[Transition]) {
        let replies = std::mem::take(&mut self.fleet.replies);
        for ((reply, asked), &about) in replies.iter().zip(batch).zip(&self.about) {
            if reply.kind() == OutcomeKind::Applied {
                self.done.insert(asked.kind().name());
            }
            match reply {
                Reply::Registered(grant) => {
                    let (caller, number) = (self.fleet.hosts[about].caller, self.fleet.hosts[about].number);
                    let host = self.fleet.enrol(grant, caller, number);
                    self.live.push(host);
                    self.absent.push(host);
                }
                Reply::Renewed(lease) => self.fleet.hosts[about].version = lease.version,
                Reply::AttemptCreated(_) => {
                    let attempt = self.fleet.granted(reply, about);
                    self.attempts.push(attempt);
                    self.unbound.push(attempt);
                }
                _ => {}
            }
        }
        self.fleet.replies = replies;
    }

    fn random(&mut self, len: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % len
    }

    fn any_host(&mut self) -> usize {
        self.random(self.fleet.hosts.len())
    }

    fn live_host(&mut self) -> usize {
        let at = self.random(self.live.len());
        self.live[at]
    }

    fn any_attempt(&mut self) -> Attempt {
        let at = self.random(self.attempts.len());
        self.attempts[at]
    }

    fn refresh(&mut self) -> (usize, Transition) {
        let host = self.any_host();
        (host, self.fleet.refresh(host))
    }

    /// PRESENCE of a host whose own had lapsed, or that never had one.
    fn come_back(&mut self) -> (usize, Transition) {
        let host = self.absent.pop().unwrap_or_else(|| self.live_host());
        (host, self.fleet.refresh(host))
    }

    /// In turn into an owner's quota, a tenant's quota, and a pool that look full.
    fn register(&mut self) -> (usize, Transition) {
        let host = self.any_host();
        let mut request = self.fleet.registration(self.fleet.hosts[host].number);
        request.caller = self.fleet.hosts[host].caller;
        request.quotas = match self.batches % 3 {
            0 => Quotas { listings_per_owner: FILLED.listings_per_owner, ..NO_QUOTA },
            1 => Quotas { listings_per_tenant: FILLED.listings_per_tenant, ..NO_QUOTA },
            _ => NO_QUOTA,
        };
        (host, Transition::RegisterListing(Box::new(request)))
    }

    /// In turn into a tenant's quota and a pool that look full.
    fn create(&mut self) -> (usize, Transition) {
        let host = self.live_host();
        let mut creation = self.fleet.creation(host);
        let filled = *self.filled.get_or_insert_with(|| {
            let mut filled = [0; TENANTS as usize];
            let tenants = self.attempts.iter().map(|it| self.fleet.hosts[it.host].caller.tenant);
            tenants.for_each(|TenantId(it)| filled[it as usize] += 1);
            filled
        });
        if let Transition::CreateAttempt(request) = &mut creation
            && self.batches.is_multiple_of(2)
        {
            let attempts_per_tenant = filled[request.caller.tenant.0 as usize];
            request.quotas = Quotas { attempts_per_tenant, ..NO_QUOTA };
        }
        (host, creation)
    }

    fn bind_joiner(&mut self) -> (usize, Transition) {
        let attempt = self.unbound.pop().inspect(|it| self.waiting.push(*it));
        let attempt = attempt.unwrap_or_else(|| self.any_attempt());
        (attempt.host, self.fleet.bind_joiner(&attempt))
    }

    fn bind_host(&mut self) -> (usize, Transition) {
        let attempt = self.waiting.pop().unwrap_or_else(|| self.any_attempt());
        (attempt.host, self.fleet.bind_host(&attempt))
    }

    fn renew(&mut self) -> (usize, Transition) {
        let host = if self.batches.is_multiple_of(2) { self.any_host() } else { self.live_host() };
        (host, self.fleet.renewal(host))
    }

    fn cancel(&mut self) -> (usize, Transition) {
        let attempt = self.any_attempt();
        (attempt.host, self.fleet.cancellation(&attempt))
    }

    fn get_attempt(&mut self) -> (usize, Transition) {
        let attempt = self.any_attempt();
        let caller = self.fleet.joiner(attempt.host);
        (attempt.host, Transition::GetAttempt(GetAttempt { caller, attempt: attempt.id }))
    }

    fn report(&mut self) -> (usize, Transition) {
        let attempt = self.any_attempt();
        (attempt.host, self.fleet.report(&attempt, self.batches.is_multiple_of(2)))
    }

    /// A page from anywhere.
    fn browse(&mut self) -> (usize, Transition) {
        let host = self.any_host();
        let browse = BrowseListings {
            caller: self.fleet.joiner(host),
            protocol: Some("game/1".into()),
            owned: false,
            filter: Filter::default(),
            after: Some(self.fleet.hosts[host].listing),
            limit: PAGE_LEN_DEFAULT,
        };
        (host, Transition::BrowseListings(Box::new(browse)))
    }

    /// How the drain stands.
    const fn ask_for_drain(&mut self) -> (usize, Transition) {
        (0, Transition::GetDrain)
    }

    /// Mostly a BYE; in every fourth batch a listing is revoked, in every sixteenth an owner.
    fn leave_or_revoke(&mut self) -> (usize, Transition) {
        let host = self.live_host();
        let caller = self.fleet.hosts[host].caller;
        let subject = match self.batches % 16 {
            0 => Subject::Principal(caller.principal),
            4 | 8 | 12 => Subject::Listing(self.fleet.hosts[host].listing),
            _ => {
                self.absent.push(host);
                return (host, self.fleet.bye(host));
            }
        };
        (host, self.fleet.revocation(caller.tenant, subject))
    }
}
