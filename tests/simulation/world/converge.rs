//! What must follow once the faults stop: everybody is back, pairs meet, and what is over is forgotten.

use core::time::Duration;

use rand::RngExt;
use rendezvous_shared::limits::PRESENCE_LIFETIME;
use rendezvous_shared::store::{BeginDrain, EphemeralRendezvousStore, Transition};
use rendezvous_shared::time::Instant;

use super::control::Asker;
use super::{Event, World};
use crate::oracle::broken;

/// The longest anything lives by itself here: presence. Leases and attempts are shorter, records end a minute after.
const LIFETIME: Duration = PRESENCE_LIFETIME;
/// Everything is well again within this after the last fault.
const CONVERGENCE: Duration = LIFETIME.saturating_mul(3);
/// A refresh interval, three seconds, and some requests of the control plane; `docs/protocol.md`, section 11.
const BACK_AFTER_RESTART: Duration = Duration::from_secs(16);
/// Operators lift twice a second once all is calm.
const LIFTED: Duration = Duration::from_secs(5);
/// What was on its way when the faults stopped arrives within this or not at all.
const STRAGGLERS: Duration = Duration::from_secs(2);

impl World {
    /// Runs the whole history of the seed.
    ///
    /// # Panics
    /// With the property that is broken.
    pub(crate) fn run(&mut self) {
        let calm = self.plan.calm_from();
        while self.step(calm) {}
        self.calm_down();
        // Whoever bars somebody after that does so within this.
        let end = self.now.after(STRAGGLERS);
        while self.step(end) {}
        self.converge("operators lift what they revoked", LIFTED, Self::nobody_is_barred);
        let within = CONVERGENCE;
        self.converge(
            "hosts are back within three lifetimes of the last fault",
            within,
            Self::hosts_are_back,
        );
        self.look();
        if self.rng.random_bool(0.3) {
            self.restart_in_calm();
        }
        self.joiners.clear();
        for host in 0..self.hosts.len() {
            self.add_joiner(Some(host));
        }
        self.converge("new pairs meet within three lifetimes", within, Self::pairs_met);
        self.look();
        if self.rng.random_bool(0.5) {
            self.drain_all()
        } else {
            self.close_all()
        }
        let Some(server) = self.server.take() else { return };
        server.store.check_invariants();
        server.rings.iter().for_each(super::ring::Ring::check_idle);
        self.count_reasons(&server);
        self.log.line(self.now, format_args!("end"));
    }

    fn calm_down(&mut self) {
        let now = self.now;
        self.log.line(now, format_args!("calm"));
        self.net.heal();
        if self.stop_at != Instant::MAX {
            // The deployment that was under way is finished now.
            self.stop_server();
        }
        self.back_at = if self.back_at == Instant::MAX { self.back_at } else { now };
        if let Some(server) = &mut self.server {
            let own = server.clock(now);
            server.store_paused_until = server.store_paused_until.min(now);
            for ring in &mut server.rings {
                ring.paused_until = ring.paused_until.min(own);
                ring.stalled_until = ring.stalled_until.min(own);
            }
        }
        for host in &mut self.hosts {
            host.frozen_until = host.frozen_until.min(now);
        }
        let latest = now.after(STRAGGLERS);
        self.flights.retain(|(at, _), event| *at <= latest || matches!(event, Event::Answer(..)));
    }

    /// With no other fault, hosts notice a restart by their datagrams, long before their leases would tell.
    fn restart_in_calm(&mut self) {
        self.stop_server();
        while self.back_at != Instant::MAX && self.step(self.back_at) {}
        self.converge("hosts are back soon after a restart", BACK_AFTER_RESTART, Self::hosts_are_back);
    }

    fn converge(&mut self, what: &str, within: Duration, done: impl Fn(&Self) -> Option<String>) {
        let end = self.now.after(within);
        loop {
            let Some(missing) = done(self) else { return };
            if !self.step(end) {
                broken(what, missing);
            }
        }
    }

    /// A revocation that holds, if any.
    fn nobody_is_barred(&self) -> Option<String> {
        let server = self.server.as_ref()?;
        let barred = self.oracle.revocations(server.clock(self.now));
        barred.first().map(|revocation| format!("{revocation:?}"))
    }

    /// The first host that is not, if any.
    fn hosts_are_back(&self) -> Option<String> {
        let Some(server) = &self.server else { return Some("no server".to_owned()) };
        let now = server.clock(self.now);
        let back = |host: &super::HostAgent| {
            let present = host.machine.as_ref().is_some_and(|machine| machine.is_present());
            present && host.listing.is_some_and(|(id, _)| self.oracle.is_visible(now, id))
        };
        self.hosts.iter().position(|host| !back(host)).map(|at| format!("host{at}"))
    }

    /// The first joiner that did not meet its host, if any.
    fn pairs_met(&self) -> Option<String> {
        let met = |joiner: &super::JoinerAgent| {
            let host = joiner.wants.map(|host| self.hosts[host].node);
            let meets = host.is_some_and(|host| self.net.can_meet(host, joiner.node));
            joiner.introduced && (joiner.connected || !meets)
        };
        self.joiners.iter().find(|(_, joiner)| !met(joiner)).map(|(at, _)| format!("joiner{at}"))
    }

    /// Looks at the whole store.
    fn look(&mut self) {
        let Some(server) = &mut self.server else { return };
        let now = server.clock(self.now);
        self.oracle.audit(now, &mut server.store);
        server.store.check_invariants();
    }

    /// All leave; then nothing is left once every deadline passed.
    fn close_all(&mut self) {
        self.joiners.clear();
        for host in 0..self.hosts.len() {
            self.close_host(host, true);
        }
        self.stop_mischief();
        let end = self.now.after(CONVERGENCE + Duration::from_secs(60));
        while self.step(end) {}
        self.look();
        self.check_empty("all that is over is forgotten");
    }

    /// A drain while all are active; at its deadline nothing is left, at once.
    fn drain_all(&mut self) {
        let window = Duration::from_millis(self.rng.random_range(0..10_000));
        self.stop_mischief();
        self.ask(Asker::Nobody, Transition::BeginDrain(BeginDrain { window }));
        let end = self.now.after(window + Duration::from_secs(1));
        while self.step(end) {}
        self.check_empty("a drained store is empty");
        // Hosts that go on are told; nothing comes of it.
        let end = self.now.after(Duration::from_secs(15));
        while self.step(end) {}
        self.check_empty("a drained store is empty");
        self.joiners.clear();
        self.hosts.iter_mut().for_each(|host| host.down_until = Instant::MAX);
        let end = self.now.after(Duration::from_secs(1));
        while self.step(end) {}
    }

    const fn stop_mischief(&mut self) {
        self.mischief_at = Instant::MAX;
        self.spawn_at = Instant::MAX;
    }

    fn check_empty(&self, property: &str) {
        let Some(server) = &self.server else { return };
        let stats = server.store.stats();
        let now = server.clock(self.now);
        let due = server.store.next_deadline();
        if stats.pools.iter().any(|pool| pool.used > 0) || due.is_some() {
            broken(property, format_args!("{stats:?} {due:?} at {now:?}"));
        }
    }
}
