//! What a run reached: how often each fault happened and each outcome came, and what must not be missing.

use core::fmt;
use core::marker::PhantomData;

use rendezvous_shared::counter::Label;
use rendezvous_shared::labels;
use rendezvous_shared::outcome::{
    AttemptReason, ConflictReason, DatagramOutcome, IntroductionResult, OutcomeKind, Pool, QuotaScope,
};

labels! {
    /// What is done to the world. Each seed enables some of them, each phase of a seed some of those.
    pub(crate) enum Fault {
        /// A datagram is lost.
        Loss = "loss",
        /// A datagram is overtaken by later ones.
        Reorder = "reorder",
        /// A datagram arrives seconds or a minute late.
        Delay = "delay",
        /// A datagram arrives twice, or three times.
        Duplicate = "duplicate",
        /// A datagram arrives with other bytes.
        Corrupt = "corrupt",
        /// The kernel cuts a datagram off.
        Truncate = "truncate",
        /// A NAT forgets its mappings, a host gets another IPv6 address: the source changes.
        Rebind = "rebind",
        /// A site is cut off for a while.
        Partition = "partition",
        /// A recorded datagram comes again from another source.
        ReplayElsewhere = "replay_elsewhere",
        /// A recorded datagram comes again, its source forged.
        ReplaySpoofed = "replay_spoofed",
        /// A recorded datagram comes again with some bytes changed, its source forged.
        ReplayCorrupt = "replay_corrupt",
        /// HELLOs from many forged sources.
        HelloFlood = "hello_flood",
        /// A recorded datagram comes again and again, its source forged.
        ReplayFlood = "replay_flood",
        /// A datagram from a port of a service.
        LowPort = "low_port",
        /// A datagram from the server's own address.
        OwnAddress = "own_address",
        /// A datagram from an address the policy does not serve.
        PrivateSource = "private_source",
        /// What the server sent comes back to it.
        Reflect = "reflect",
        /// Bytes that are no datagram of the protocol.
        Garbage = "garbage",
        /// Somebody who reads along answers a HELLO in the name of another instance.
        ForgedChallenge = "forged_challenge",
        /// A request of the control plane is lost.
        CallLost = "call_lost",
        /// An answer of the control plane is lost.
        AnswerLost = "answer_lost",
        /// A request of the control plane arrives twice.
        CallDuplicated = "call_duplicated",
        /// A request of the control plane arrives once more, up to minutes later.
        CallLate = "call_late",
        /// An idempotency key comes again with another request.
        KeyReused = "key_reused",
        /// Another owner wants a host's slot.
        Squat = "squat",
        /// An operator removes a listing.
        OperatorDelete = "operator_delete",
        /// An operator bars a listing or a principal, and lifts that later.
        Revoke = "revoke",
        /// The store thread stands still.
        StorePause = "store_pause",
        /// A ring thread stands still.
        RingPause = "ring_pause",
        /// The socket takes next to no answers.
        SendStall = "send_stall",
        /// All stand still and the clocks go on: a suspended machine.
        Suspend = "suspend",
        /// The server is killed and comes back empty.
        Restart = "restart",
        /// The server drains, ends and comes back.
        Drain = "drain",
        /// A host is killed and comes back on another port.
        HostCrash = "host_crash",
        /// A host says BYE, deletes its listing and comes back later.
        HostClose = "host_close",
        /// A host stands still and its clock goes on.
        HostFreeze = "host_freeze",
        /// A joiner vanishes.
        JoinerCrash = "joiner_crash",
        /// A joiner takes its time between its attempt and its first datagram.
        JoinerLate = "joiner_late",
        /// A host says BYE and is killed before it deletes its listing.
        HostLeaves = "host_leaves",
        /// A joiner withdraws.
        Cancel = "cancel",
        /// A host declines.
        Decline = "decline",
        /// A host binds before its joiner does.
        EagerHost = "eager_host",
        /// A joiner uses its host's own socket.
        SharedSocket = "shared_socket",
        /// A joiner with a good key that plays by no rules.
        Rogue = "rogue",
        /// The store's ceilings and quotas are tiny.
        TinyCeilings = "tiny_ceilings",
        /// There are few and small boxes between ring and store.
        TinyBoxes = "tiny_boxes",
        /// The control plane's lane is short.
        TinyLane = "tiny_lane",
        /// Few answers a second go to unproved addresses.
        TinyUnproved = "tiny_unproved",
        /// The store works off one thing at a time, and nothing beside other work.
        SlowStore = "slow_store",
    }
}

/// Counts by label.
#[derive(Clone)]
pub(crate) struct Tally<L>(Vec<u64>, PhantomData<L>);

impl<L: Label> Tally<L> {
    fn new() -> Self {
        Self(vec![0; L::ALL.len()], PhantomData)
    }

    /// One more of `label`.
    pub(crate) fn count(&mut self, label: L) {
        self.add(label, 1);
    }

    /// `number` more of `label`.
    pub(crate) fn add(&mut self, label: L, number: u64) {
        self.0[label.index()] += number;
    }

    fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, it)| *sum += it);
    }

    fn missing(&self, unreachable: &[(L, &str)]) -> Vec<&'static str> {
        let excused = |label: &L| unreachable.iter().any(|(it, _)| it.index() == label.index());
        L::ALL
            .iter()
            .filter(|label| self.0[label.index()] == 0 && !excused(label))
            .map(|it| it.name())
            .collect()
    }
}

impl<L: Label> fmt::Display for Tally<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        L::ALL.iter().try_for_each(|label| write!(f, " {}={}", label.name(), self.0[label.index()]))
    }
}

/// Everything that was reached, of one seed or of all.
#[derive(Clone)]
pub(crate) struct Reached {
    /// Faults that happened.
    pub(crate) faults: Tally<Fault>,
    /// Ends of datagrams.
    pub(crate) datagrams: Tally<DatagramOutcome>,
    /// Ends of transitions.
    pub(crate) transitions: Tally<OutcomeKind>,
    /// Conflicts among them.
    pub(crate) conflicts: Tally<ConflictReason>,
    /// Full pools among them.
    pub(crate) pools: Tally<Pool>,
    /// Used up quotas among them.
    pub(crate) quotas: Tally<QuotaScope>,
    /// Ends of attempts.
    pub(crate) reasons: Tally<AttemptReason>,
    /// What BINDs came to.
    pub(crate) introductions: Tally<IntroductionResult>,
    /// Events of the world.
    pub(crate) steps: u64,
    /// Pairs whose link was connected.
    pub(crate) connected: u64,
    /// Links whose peers were behind one NAT and met on their own network.
    pub(crate) met_on_lan: u64,
}

/// Ends that nothing in this world can bring about, and why.
const NO_DATAGRAMS: &[(DatagramOutcome, &str)] = &[
    (DatagramOutcome::RefusedCapacity, "no transition of the datagram path takes a place in a pool"),
    (DatagramOutcome::RefusedQuota, "the store has no budgets of introductions yet"),
    (DatagramOutcome::SelfProbe, "nobody here asks whether a socket hears; sockets here always do"),
    (DatagramOutcome::RefusedUnavailable, "only a defect of the store answers a datagram so"),
];
const NO_POOLS: &[(Pool, &str)] =
    &[(Pool::AttemptResults, "a full pool of results keeps none, it refuses nothing")];
const NO_QUOTAS: &[(QuotaScope, &str)] = &[
    (QuotaScope::Source, "the store has no budgets of introductions yet"),
    (QuotaScope::Host, "the store has no budgets of introductions yet"),
];
const NO_REASONS: &[(AttemptReason, &str)] =
    &[(AttemptReason::MappingVaries, "nothing on the wire tells of mappings yet")];
impl Reached {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            faults: Tally::new(),
            datagrams: Tally::new(),
            transitions: Tally::new(),
            conflicts: Tally::new(),
            pools: Tally::new(),
            quotas: Tally::new(),
            reasons: Tally::new(),
            introductions: Tally::new(),
            steps: 0,
            connected: 0,
            met_on_lan: 0,
        }
    }

    /// Adds what another seed reached.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.faults.merge(&other.faults);
        self.datagrams.merge(&other.datagrams);
        self.transitions.merge(&other.transitions);
        self.conflicts.merge(&other.conflicts);
        self.pools.merge(&other.pools);
        self.quotas.merge(&other.quotas);
        self.reasons.merge(&other.reasons);
        self.introductions.merge(&other.introductions);
        self.steps += other.steps;
        self.connected += other.connected;
        self.met_on_lan += other.met_on_lan;
    }

    /// What should have been reached over many seeds and was not.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let mut missing = self.faults.missing(&[]);
        missing.extend(self.datagrams.missing(NO_DATAGRAMS));
        missing.extend(self.transitions.missing(&[]));
        missing.extend(self.conflicts.missing(&[]));
        missing.extend(self.pools.missing(NO_POOLS));
        missing.extend(self.quotas.missing(NO_QUOTAS));
        missing.extend(self.reasons.missing(NO_REASONS));
        missing.extend(self.introductions.missing(&[]));
        missing.extend((self.connected == 0).then_some("connected"));
        missing.extend((self.met_on_lan == 0).then_some("met_on_lan"));
        missing
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "steps {}  links {}  on a LAN {}", self.steps, self.connected, self.met_on_lan)?;
        writeln!(f, "faults:{}", self.faults)?;
        writeln!(f, "datagrams:{}", self.datagrams)?;
        writeln!(f, "transitions:{}", self.transitions)?;
        writeln!(f, "conflicts:{}", self.conflicts)?;
        writeln!(f, "full pools:{}", self.pools)?;
        writeln!(f, "quotas:{}", self.quotas)?;
        writeln!(f, "attempt reasons:{}", self.reasons)?;
        writeln!(f, "introductions:{}", self.introductions)
    }
}
