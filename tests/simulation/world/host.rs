//! A host: the real machine, and what `rendezvous host` does around it: register, renew, register again.

use core::time::Duration;

use rand::{Rng, RngExt};
use rendezvous_client::host::Host;
use rendezvous_client::{HostCredentials, Machine, RoleKey};
use rendezvous_shared::id::{ListingId, PrincipalId, TenantId};
use rendezvous_shared::limits::PRESENCE_REFRESH;
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{
    Caller, CancelAttempt, DeleteListing, DescriptionParts, IdempotencyKey, ListPending, ListingDescription,
    ListingGrant, PendingAttempt, RegisterListing, RenewLease, Reply, Transition, Visibility,
};
use rendezvous_shared::time::Instant;

use super::control::{Asker, PATIENCE};
use super::net::NodeId;
use super::server::{SERVER_V4, SERVER_V6};
use super::{PROTOCOL, World, fingerprint};
use crate::reached::Fault;

/// Least distance between two registrations, and between two renewals that a datagram brought about.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// What is being asked of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    Register,
    Renew,
    Pending,
    Delete,
}

/// A host and what it knows.
pub(crate) struct HostAgent {
    /// Its socket.
    pub(crate) node: NodeId,
    /// Itself.
    pub(crate) caller: Caller,
    /// The machine, while the process runs.
    pub(crate) machine: Option<Host>,
    /// Its socket in the other family, and the machine there, in some.
    pub(super) twin: Option<(NodeId, Option<Host>)>,
    /// Its listing and the lease's version.
    pub(crate) listing: Option<(ListingId, u64)>,
    /// It stands still until then.
    pub(crate) frozen_until: Instant,
    /// The process is gone until then.
    pub(crate) down_until: Instant,
    /// It said goodbye for good.
    pub(crate) closed: bool,
    /// The key in use; a process that starts again may have it still.
    pub(super) key: Option<RoleKey>,
    /// Whether it goes on with that key and its listing, in a new session, when it is back.
    pub(super) resumes: bool,
    /// It says goodbye.
    pub(super) leaving: bool,
    pub(super) clock_ahead: Duration,
    pub(super) slot: Option<String>,
    pub(super) visibility: Visibility,
    pub(super) lease: Duration,
    pub(super) renew_at: Instant,
    pub(super) renew_earliest: Instant,
    pub(super) register_at: Instant,
    /// When it registers again once it is gone.
    pub(super) returns_at: Instant,
    /// Kept until a registration is known to be done.
    pub(super) register_key: Option<[u8; 16]>,
    pub(super) pending_wanted: bool,
    pub(super) job: Option<(Job, u64, Instant)>,
}

impl HostAgent {
    /// Whether request `id` is the one it waits for.
    pub(crate) fn awaits(&self, id: u64) -> bool {
        self.job.is_some_and(|(_, call, _)| call == id)
    }

    /// Its own clock at `world`.
    pub(super) fn clock(&self, world: Instant) -> Instant {
        world.after(self.clock_ahead)
    }

    /// When it next has something to do, on the world's clock.
    pub(crate) fn next(&self) -> Instant {
        let machine = self.machines().map(Machine::next_timeout).min().unwrap_or(Instant::MAX);
        let machine = if machine == Instant::MAX {
            machine
        } else {
            Instant::ZERO.after(machine.since(Instant::ZERO.after(self.clock_ahead)))
        };
        let job = match self.job {
            Some((_, _, until)) => until,
            None if self.leaving => Instant::MAX,
            None if self.pending_wanted => Instant::ZERO,
            None => self.register_at.min(self.renew_at),
        };
        machine.min(job).max(self.frozen_until).max(self.down_until)
    }

    fn machines(&self) -> impl Iterator<Item = &Host> {
        self.machine.iter().chain(self.twin.iter().filter_map(|(_, twin)| twin.as_ref()))
    }

    pub(super) fn stop(&mut self) {
        self.machine = None;
        self.stop_twin();
        self.listing = None;
        self.job = None;
        self.renew_at = Instant::MAX;
        self.register_at = self.returns_at;
        self.register_key = None;
        self.pending_wanted = false;
        self.leaving = false;
    }
}

impl World {
    /// Adds a host.
    pub(crate) fn add_host(&mut self, number: usize) {
        let site = self.net.add_site(&mut self.rng);
        let v6 = self.rng.random_bool(0.3);
        let both = self.rng.random_bool(0.3);
        let tenant = TenantId(1 + (number as u32 % 2));
        self.hosts.push(HostAgent {
            node: self.net.add_node(site, v6),
            caller: Caller { tenant, principal: PrincipalId(number as u32 + 1), operator: false },
            machine: None,
            twin: both.then(|| (self.net.add_node(site, !v6), None)),
            listing: None,
            frozen_until: Instant::ZERO,
            down_until: Instant::ZERO,
            closed: false,
            key: None,
            resumes: false,
            leaving: false,
            clock_ahead: Duration::from_millis(self.rng.random_range(0..1_000_000)),
            slot: self.rng.random_bool(0.7).then(|| format!("slot {number}")),
            visibility: if self.rng.random_bool(0.8) { Visibility::Public } else { Visibility::Unlisted },
            lease: Duration::from_millis(self.rng.random_range(self.plan.leases.0..=self.plan.leases.1)),
            renew_at: Instant::MAX,
            renew_earliest: Instant::ZERO,
            register_at: self.now,
            returns_at: self.now,
            register_key: None,
            pending_wanted: false,
            job: None,
        });
    }

    /// Does what host `at` has to do.
    pub(crate) fn poll_host(&mut self, at: usize) {
        let now = self.now;
        let host = &mut self.hosts[at];
        if host.closed && host.job.is_none() && host.machine.is_none() && !host.leaving {
            host.register_at = Instant::MAX;
            return;
        }
        if now >= host.down_until && core::mem::take(&mut host.resumes) {
            self.resume(at);
        }
        let host = &mut self.hosts[at];
        if let Some(machine) = &mut host.machine {
            machine.handle_timeout(now.after(host.clock_ahead));
        }
        if let Some((_, Some(twin))) = &mut host.twin {
            twin.handle_timeout(now.after(host.clock_ahead));
        }
        if let Some((job, call, until)) = host.job
            && now >= until
        {
            host.job = None;
            self.host_unanswered(at, job, call);
        }
        let host = &self.hosts[at];
        if host.job.is_none() && !host.leaving {
            if now >= host.register_at {
                self.register(at);
            } else if now >= host.renew_at {
                self.renew(at);
            } else if host.pending_wanted {
                self.hosts[at].pending_wanted = false;
                self.host_asks(at, Job::Pending);
            }
        }
        self.drain_host(at);
    }

    /// No answer, or one that says to come back: the same again after a pause.
    fn host_unanswered(&mut self, at: usize, job: Job, call: u64) {
        self.log.line(self.now, format_args!("host{at} gives up {job:?} #{call}"));
        let pause = Duration::from_millis(self.rng.random_range(500..1_000));
        let host = &mut self.hosts[at];
        match job {
            Job::Register => host.register_at = self.now.after(pause),
            Job::Renew => host.renew_at = self.now.after(pause),
            Job::Pending => {}
            Job::Delete => self.hosts[at].stop(),
        }
    }

    pub(super) fn host_asks(&mut self, at: usize, job: Job) {
        let host = &self.hosts[at];
        let caller = host.caller;
        let transition = match (job, host.listing) {
            (Job::Register, _) => self.registration(at),
            (Job::Renew, Some((listing, version))) => {
                let lease = self.rng.random_bool(0.3).then_some(host.lease);
                Transition::RenewLease(RenewLease { caller, listing, version, lease })
            }
            (Job::Pending, Some((listing, _))) => Transition::ListPending(ListPending { caller, listing }),
            (Job::Delete, Some((listing, _))) => Transition::DeleteListing(DeleteListing { caller, listing }),
            (_, None) => return,
        };
        let call = self.ask(Asker::Host(at), transition);
        self.hosts[at].job = Some((job, call, self.now.after(PATIENCE)));
    }

    fn register(&mut self, at: usize) {
        self.hosts[at].register_at = Instant::MAX;
        if self.hosts[at].closed {
            return;
        }
        if self.hosts[at].register_key.is_none() {
            let mut key = [0; 16];
            self.rng.fill_bytes(&mut key);
            self.hosts[at].register_key = Some(key);
        }
        self.host_asks(at, Job::Register);
    }

    fn registration(&self, at: usize) -> Transition {
        let host = &self.hosts[at];
        let description = describe(at, host.visibility, host.slot.clone());
        let key = host.register_key.unwrap_or_default();
        Transition::RegisterListing(Box::new(RegisterListing {
            caller: host.caller,
            quotas: self.plan.quotas,
            idempotency: IdempotencyKey { key, fingerprint: fingerprint(at as u64) },
            description,
            lease: host.lease,
        }))
    }

    fn renew(&mut self, at: usize) {
        self.hosts[at].renew_earliest = self.now.after(ASK_INTERVAL);
        self.hosts[at].renew_at = Instant::MAX;
        self.host_asks(at, Job::Renew);
    }

    /// The control plane answered host `at`.
    pub(crate) fn host_answered(&mut self, at: usize, reply: Reply) {
        let Some((job, call, _)) = self.hosts[at].job.take() else { return };
        match (job, reply) {
            (Job::Register, Reply::Registered(grant)) => self.host_registered(at, &grant),
            (Job::Renew, Reply::Renewed(grant)) => {
                let now = self.now;
                let key = self.role_key(grant.presence_key);
                let host = &mut self.hosts[at];
                host.listing = host.listing.map(|(id, _)| (id, grant.version));
                host.renew_at = now.after(grant.lifetime / 3);
                host.key = key.clone().or(host.key.take());
                let own = host.clock(now);
                if let (Some((_, Some(twin))), Some(key)) = (&mut host.twin, &key) {
                    twin.update_key(own, key.clone());
                }
                let halted = host.machine.as_mut().is_some_and(|machine| {
                    if let Some(key) = key {
                        machine.update_key(own, key);
                    }
                    machine.is_halted()
                });
                if halted {
                    self.register_again(at);
                }
            }
            (Job::Renew, Reply::Refused(Refusal::StaleVersion { latest })) => {
                let host = &mut self.hosts[at];
                host.listing = host.listing.map(|(id, _)| (id, latest));
                host.renew_at = self.now;
            }
            (Job::Renew, Reply::Refused(Refusal::NotFound | Refusal::Expired)) => self.register_again(at),
            (Job::Register, Reply::Refused(Refusal::Expired | Refusal::Conflict(_))) => {
                // The key's listing is over, or the key was used by another: a new one.
                self.hosts[at].register_key = None;
                self.host_unanswered(at, job, call);
            }
            (Job::Pending, Reply::Pending(pending)) => self.host_pending(at, &pending),
            (Job::Delete, _) => self.hosts[at].stop(),
            (_, reply) => {
                self.log.line(self.now, format_args!("host{at} {job:?} {reply:?}"));
                self.host_unanswered(at, job, call);
            }
        }
        self.drain_host(at);
    }

    fn host_registered(&mut self, at: usize, grant: &ListingGrant) {
        // Another instance may answer by now; then this key opens nothing, and the host finds out.
        let now = self.now;
        let Some(key) = self.role_key(grant.lease.presence_key) else { return self.register_again(at) };
        let host = &mut self.hosts[at];
        host.key = Some(key.clone());
        host.register_key = None;
        host.pending_wanted = false;
        host.listing = Some((grant.view.id, grant.lease.version));
        host.renew_at = now.after(grant.lease.lifetime / 3);
        self.log.line(now, format_args!("host{at} registered {}", grant.view.id));
        self.start_machine(at, key);
    }

    /// Goes on with `key`, in the machine there is or in a new one.
    fn start_machine(&mut self, at: usize, key: RoleKey) {
        let now = self.now;
        let node = self.hosts[at].node;
        let server = if self.net.is_v6(node) { SERVER_V6 } else { SERVER_V4 };
        let credentials =
            HostCredentials { instance: key.id.instance(), key, server, refresh: PRESENCE_REFRESH };
        let seed: u64 = self.rng.random();
        let lan = self.net.lan_of(node);
        let host = &mut self.hosts[at];
        let own = host.clock(now);
        if let Some((node, twin)) = &mut host.twin {
            let server = if self.net.is_v6(*node) { SERVER_V6 } else { SERVER_V4 };
            *twin = Some(Host::new(HostCredentials { server, ..credentials.clone() }, !seed, own));
        }
        match &mut host.machine {
            Some(machine) => machine.replace(own, credentials),
            None => {
                let mut machine = Host::new(credentials, seed, own);
                machine.set_lan([lan, None]);
                host.machine = Some(machine);
            }
        }
    }

    /// The process is back and has its key and its listing still.
    fn resume(&mut self, at: usize) {
        self.log.line(self.now, format_args!("host{at} resumes"));
        let Some(key) = self.hosts[at].key.clone() else { return self.register_again(at) };
        self.hosts[at].renew_at = self.now;
        self.start_machine(at, key);
    }

    /// The secret of a key, as HTTP hands it out with the key: only the instance that runs can.
    pub(crate) fn role_key(&self, id: rendezvous_shared::credential::KeyId) -> Option<RoleKey> {
        let server = self.server.as_ref().filter(|server| server.instance == id.instance())?;
        Some(RoleKey { id, secret: server.master.secret(&id) })
    }

    fn register_again(&mut self, at: usize) {
        let pause = Duration::from_millis(self.rng.random_range(0..250));
        let host = &mut self.hosts[at];
        host.listing = None;
        host.renew_at = Instant::MAX;
        host.register_at = self.now.after(pause);
    }

    fn host_pending(&mut self, at: usize, pending: &[PendingAttempt]) {
        let now = self.now;
        let eager = self.chance(Fault::EagerHost);
        let decline = !pending.is_empty() && self.chance(Fault::Decline);
        let host = &mut self.hosts[at];
        let own = host.clock(now);
        for it in pending.iter().filter(|it| it.joiner_bound || eager) {
            if let Some(machine) = &mut host.machine {
                machine.bind(own, it.id, Duration::from_secs(20));
                machine.handle_timeout(own);
            }
        }
        let caller = host.caller;
        if decline {
            self.ask(
                Asker::Nobody,
                Transition::CancelAttempt(CancelAttempt { caller, attempt: pending[0].id }),
            );
        }
    }

    /// Asks for pending attempts now and then, as a host that long-polls does.
    pub(crate) fn host_looks(&mut self, at: usize) {
        self.hosts[at].pending_wanted |= self.hosts[at].listing.is_some();
    }
}

/// What host `at` publishes.
pub(crate) fn describe(at: usize, visibility: Visibility, slot: Option<String>) -> ListingDescription {
    let parts = DescriptionParts {
        protocol: PROTOCOL.to_owned(),
        name: format!("host {at}"),
        visibility,
        player_capacity: 4,
        attributes: Vec::new(),
        slot,
    };
    ListingDescription::new(&parts).unwrap_or_else(|error| panic!("{error}"))
}
