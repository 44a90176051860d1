//! What happened to every host, attempt and request. One for the run, shared by all tasks of its one thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use hdrhistogram::Histogram;
use rendezvous_client::AttemptEvent;
use rendezvous_shared::id::{AttemptId, ListingId, Role};
use rendezvous_shared::time::Instant;
use tokio::sync::Notify;

use crate::exit::Failure;

/// Borrowed for one call at a time, never over an await.
pub(crate) type Shared = Rc<RefCell<Ledger>>;

/// What is timed, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timed {
    Register,
    Presence,
    Create,
    Introduced,
    Connected,
}

impl Timed {
    pub(crate) const ALL: [(Self, &'static str); 5] = [
        (Self::Register, "register"),
        (Self::Presence, "presence round trip"),
        (Self::Create, "attempt create"),
        (Self::Introduced, "create -> introduced"),
        (Self::Connected, "introduced -> connected"),
    ];
}

/// One host.
#[derive(Debug, Default)]
pub(crate) struct HostRow {
    pub(crate) listing: Option<ListingId>,
    /// Every address it had; more than one after a change of port.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) present: bool,
    pub(crate) failed: bool,
    /// Attempts whose link is of no more use.
    pub(crate) closable: Vec<AttemptId>,
}

/// One side of an attempt.
#[derive(Debug, Default)]
pub(crate) struct Side {
    /// Times the machine said it was introduced.
    introductions: u32,
    /// INTRODUCE datagrams, repeats included.
    datagrams: u32,
    /// What the first INTRODUCE said.
    peer: Option<SocketAddr>,
    /// Whether another INTRODUCE said something else.
    differed: bool,
    introduced_at: Option<Instant>,
    connected_to: Option<SocketAddr>,
    reported: Option<bool>,
    lost: Option<String>,
}

impl Side {
    /// Whether nothing more is to come.
    fn is_over(&self) -> bool {
        self.lost.is_some() || self.reported.is_some()
    }
}

/// One attempt.
#[derive(Debug)]
struct Attempt {
    host: usize,
    joiner: SocketAddr,
    created: Instant,
    sides: [Side; 2],
    /// Told when the host's side is over.
    host_over: Rc<Notify>,
}

/// Counts for the checks and the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) hosts: u64,
    pub(crate) hosts_present: u64,
    pub(crate) wanted: u64,
    pub(crate) created: u64,
    /// Both sides introduced, exactly once.
    pub(crate) introduced: u64,
    /// Both sides connected and both reports acknowledged.
    pub(crate) connected: u64,
    /// Attempts that did not come so far, by the first reason.
    pub(crate) lost: BTreeMap<String, u64>,
    /// Sides that were introduced more than once or to a second peer.
    pub(crate) introduced_again: u64,
    /// Sides introduced or connected to an address that is not the other side's.
    pub(crate) wrong_pairs: u64,
    /// Introductions of attempts that nobody made.
    pub(crate) unknown: u64,
    /// Repeats of INTRODUCE, all identical unless counted above.
    pub(crate) repeats: u64,
    pub(crate) port_changes: u64,
    /// Datagrams the peers sent to the server.
    pub(crate) datagrams_sent: u64,
    /// HTTP refusals by request and code, retried ones included.
    pub(crate) refused: BTreeMap<(&'static str, String), u64>,
}

/// All of it.
pub(crate) struct Ledger {
    pub(crate) hosts: Vec<HostRow>,
    attempts: BTreeMap<AttemptId, Attempt>,
    histograms: [Histogram<u64>; Timed::ALL.len()],
    wanted: u64,
    refused: BTreeMap<(&'static str, String), u64>,
    never_created: BTreeMap<String, u64>,
    unknown: u64,
    port_changes: u64,
    pub(crate) datagrams_sent: u64,
    /// Told when a host became present or failed.
    pub(crate) host_changed: Rc<Notify>,
}

const fn index(role: Role) -> usize {
    match role {
        Role::Host => 0,
        Role::Joiner => 1,
    }
}

impl Ledger {
    pub(crate) fn new(hosts: u32, joiners: u32) -> Result<Self, Failure> {
        let histogram = || Histogram::new_with_bounds(1, 300_000_000, 3);
        let made = (|| {
            Ok::<_, hdrhistogram::CreationError>([
                histogram()?,
                histogram()?,
                histogram()?,
                histogram()?,
                histogram()?,
            ])
        })();
        Ok(Self {
            hosts: (0..hosts).map(|_| HostRow::default()).collect(),
            attempts: BTreeMap::new(),
            histograms: made.map_err(|error| Failure::Internal(error.to_string()))?,
            wanted: joiners.into(),
            refused: BTreeMap::new(),
            never_created: BTreeMap::new(),
            unknown: 0,
            port_changes: 0,
            datagrams_sent: 0,
            host_changed: Rc::default(),
        })
    }

    pub(crate) fn time(&mut self, what: Timed, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.histograms[what as usize].saturating_record(us.max(1));
    }

    pub(crate) fn histogram(&self, what: Timed) -> &Histogram<u64> {
        &self.histograms[what as usize]
    }

    pub(crate) fn refused(&mut self, request: &'static str, code: &str) {
        *self.refused.entry((request, code.to_owned())).or_default() += 1;
    }

    pub(crate) fn never_created(&mut self, reason: String) {
        *self.never_created.entry(reason).or_default() += 1;
    }

    pub(crate) fn host_moved(&mut self, host: usize, address: SocketAddr, again: bool) {
        self.port_changes += u64::from(again);
        self.hosts[host].addresses.push(address);
    }

    pub(crate) fn host_present(&mut self, host: usize) {
        if !self.hosts[host].present {
            self.hosts[host].present = true;
            self.host_changed.notify_one();
        }
    }

    pub(crate) fn host_failed(&mut self, host: usize) {
        self.hosts[host].failed = true;
        self.host_changed.notify_one();
    }

    /// Hosts present, and hosts that are present or never will be.
    pub(crate) fn hosts_settled(&self) -> (usize, usize) {
        let present = self.hosts.iter().filter(|it| it.present).count();
        (present, self.hosts.iter().filter(|it| it.present || it.failed).count())
    }

    /// An attempt is open; returns what is told when the host's side is over.
    pub(crate) fn created(
        &mut self,
        id: AttemptId,
        host: usize,
        joiner: SocketAddr,
        at: Instant,
    ) -> Rc<Notify> {
        let host_over = Rc::new(Notify::new());
        let sides = [Side::default(), Side::default()];
        let attempt = Attempt { host, joiner, created: at, sides, host_over: Rc::clone(&host_over) };
        self.attempts.insert(id, attempt);
        host_over
    }

    pub(crate) fn joiner_moved(&mut self, id: AttemptId, address: SocketAddr) {
        self.port_changes += 1;
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.joiner = address;
        }
    }

    /// An INTRODUCE came over the wire.
    pub(crate) fn witnessed(&mut self, role: Role, id: AttemptId, peer: Option<SocketAddr>) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            self.unknown += 1;
            return;
        };
        let side = &mut attempt.sides[index(role)];
        if side.datagrams == 0 {
            side.peer = peer;
        }
        side.differed |= side.peer != peer;
        side.datagrams += 1;
    }

    /// What a machine told about an attempt.
    pub(crate) fn told(&mut self, role: Role, id: AttemptId, event: &AttemptEvent, at: Instant) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            self.unknown += 1;
            return;
        };
        let created = attempt.created;
        let side = &mut attempt.sides[index(role)];
        let timed = match event {
            AttemptEvent::Introduced { peer } => {
                side.introductions += 1;
                // The machine verified the MAC; what the wire showed must be the same.
                side.differed |= side.peer != Some(*peer);
                side.introduced_at = side.introduced_at.or(Some(at));
                Some((Timed::Introduced, at.since(created)))
            }
            AttemptEvent::Connected { peer, .. } => {
                side.connected_to = side.connected_to.or(Some(*peer));
                side.introduced_at.map(|introduced| (Timed::Connected, at.since(introduced)))
            }
            AttemptEvent::Reported { acknowledged } => {
                side.reported = Some(*acknowledged);
                None
            }
            AttemptEvent::Refused(refused) => side.lose(format!("refused_{refused}")),
            AttemptEvent::TimedOut => side.lose("timed_out".to_owned()),
            AttemptEvent::PeerSilent => side.lose("peer_silent".to_owned()),
            AttemptEvent::PeerUnrecognised => side.lose("peer_unrecognised".to_owned()),
            AttemptEvent::Bound | AttemptEvent::Message { .. } | AttemptEvent::Closed => None,
        };
        if role == Role::Host && attempt.sides[0].is_over() {
            attempt.host_over.notify_one();
        }
        // The joiner waits for the introduction; the host's side of it begins with the notice.
        if let (Role::Joiner, Some((what, took))) = (role, timed) {
            self.time(what, took);
        }
    }

    /// The joiner will not go on.
    pub(crate) fn lost(&mut self, id: AttemptId, reason: &str) {
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.sides[1].lose(reason.to_owned());
        }
    }

    pub(crate) fn is_over(&self, role: Role, id: AttemptId) -> bool {
        self.attempts.get(&id).is_none_or(|it| it.sides[index(role)].is_over())
    }

    /// The joiner is gone, so the host's link may go.
    pub(crate) fn done(&mut self, id: AttemptId) {
        if let Some(attempt) = self.attempts.get(&id) {
            self.hosts[attempt.host].closable.push(id);
        }
    }

    /// One line for the eye.
    pub(crate) fn progress(&self) -> String {
        let registered = self.hosts.iter().filter(|it| it.listing.is_some()).count();
        let count =
            |test: fn(&Side) -> bool| self.attempts.values().filter(|it| it.sides.iter().all(test)).count();
        format!(
            "hosts registered {registered} present {} of {}, attempts {} introduced {} connected {} of {}",
            self.hosts_settled().0,
            self.hosts.len(),
            self.attempts.len(),
            count(|it| it.introductions > 0),
            count(|it| it.connected_to.is_some()),
            self.wanted
        )
    }

    pub(crate) fn summary(&self) -> Summary {
        let mut summary = Summary {
            hosts: self.hosts.len() as u64,
            hosts_present: self.hosts_settled().0 as u64,
            wanted: self.wanted,
            created: self.attempts.len() as u64,
            unknown: self.unknown,
            port_changes: self.port_changes,
            datagrams_sent: self.datagrams_sent,
            refused: self.refused.clone(),
            lost: self.never_created.clone(),
            ..Summary::default()
        };
        for attempt in self.attempts.values() {
            self.judge(attempt, &mut summary);
        }
        let never: u64 = self.never_created.values().sum();
        let not_started = self.wanted.saturating_sub(summary.created + never);
        if not_started > 0 {
            summary.lost.insert("not_started".to_owned(), not_started);
        }
        summary
    }

    fn judge(&self, attempt: &Attempt, summary: &mut Summary) {
        let expected = [std::slice::from_ref(&attempt.joiner), self.hosts[attempt.host].addresses.as_slice()];
        for (side, expected) in attempt.sides.iter().zip(expected) {
            summary.introduced_again += u64::from(side.differed || side.introductions > 1);
            summary.repeats += u64::from(side.datagrams.saturating_sub(1));
            let wrong = |peer: Option<SocketAddr>| peer.is_some_and(|it| !expected.contains(&it));
            summary.wrong_pairs += u64::from(wrong(side.peer) || wrong(side.connected_to));
        }
        let all = |test: fn(&Side) -> bool| attempt.sides.iter().all(test);
        let introduced = all(|it| it.introductions == 1 && it.datagrams > 0 && !it.differed);
        let connected = introduced && all(|it| it.connected_to.is_some() && it.reported == Some(true));
        summary.introduced += u64::from(introduced);
        summary.connected += u64::from(connected);
        if !connected {
            // The joiner's reason first: it is the one who waits.
            let reason = attempt.sides.iter().rev().find_map(|it| it.lost.clone());
            let reason = reason.unwrap_or_else(|| match introduced {
                false => "not_introduced".to_owned(),
                true if all(|it| it.connected_to.is_some()) => "not_reported".to_owned(),
                true => "not_connected".to_owned(),
            });
            *summary.lost.entry(reason).or_default() += 1;
        }
    }
}

impl Side {
    /// Keeps the first reason. There is no time to take of it.
    fn lose(&mut self, reason: String) -> Option<(Timed, Duration)> {
        self.lost.get_or_insert(reason);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn ledger() -> (Ledger, AttemptId) {
        let mut ledger = Ledger::new(1, 1).unwrap();
        let id = AttemptId::from_bytes([7; 16]);
        ledger.host_moved(0, address(2000), false);
        ledger.host_present(0);
        ledger.created(id, 0, address(3000), Instant::ZERO);
        (ledger, id)
    }

    fn introduce(ledger: &mut Ledger, id: AttemptId, role: Role, port: u16) {
        let at = Instant::from_millis(5);
        ledger.witnessed(role, id, Some(address(port)));
        ledger.told(role, id, &AttemptEvent::Introduced { peer: address(port) }, at);
        let connected = AttemptEvent::Connected { peer: address(port), round_trip: None };
        ledger.told(role, id, &connected, at);
        ledger.told(role, id, &AttemptEvent::Reported { acknowledged: true }, at);
    }

    #[test]
    fn the_right_pair_counts_once_and_repeats_do_no_harm() {
        let (mut ledger, id) = ledger();
        introduce(&mut ledger, id, Role::Host, 3000);
        introduce(&mut ledger, id, Role::Joiner, 2000);
        ledger.witnessed(Role::Joiner, id, Some(address(2000)));
        let it = ledger.summary();
        assert_eq!((it.introduced, it.connected, it.repeats, it.wrong_pairs), (1, 1, 1, 0));
        assert!(it.lost.is_empty() && it.introduced_again == 0);
    }

    #[test]
    fn a_wrong_peer_and_a_second_peer_are_seen() {
        let (mut ledger, id) = ledger();
        introduce(&mut ledger, id, Role::Host, 3001);
        introduce(&mut ledger, id, Role::Joiner, 2000);
        ledger.witnessed(Role::Joiner, id, Some(address(2001)));
        let it = ledger.summary();
        assert_eq!((it.wrong_pairs, it.introduced_again, it.introduced), (1, 1, 0));
    }

    #[test]
    fn what_was_lost_says_why() {
        let (mut ledger, id) = ledger();
        ledger.told(Role::Joiner, id, &AttemptEvent::TimedOut, Instant::ZERO);
        assert_eq!(ledger.summary().lost, BTreeMap::from([("timed_out".to_owned(), 1)]));
        ledger.witnessed(Role::Host, AttemptId::from_bytes([8; 16]), None);
        assert_eq!(ledger.summary().unknown, 1);
    }

    #[test]
    fn a_joiner_that_never_started_is_lost() {
        let ledger = Ledger::new(1, 3).unwrap();
        assert_eq!(ledger.summary().lost, BTreeMap::from([("not_started".to_owned(), 3)]));
    }
}
