//! A joiner with a good key that plays by no rules: it names a second endpoint, binds from elsewhere, changes its mind,
//! counts as it likes, reports what never was. It also is the only one here that speaks both families at once.

use core::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, RngExt};
use rendezvous_client::RoleKey;
use rendezvous_shared::credential::Direction;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::AttemptId;
use rendezvous_shared::limits;
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{
    self, Answer, Bind, Bye, Cookie, Header, Hello, Kind, Presence, Proof, Report, WireEndpoint,
};
use zerocopy::byteorder::big_endian::{U16, U64};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::World;
use super::joiner::Player;
use super::server::{SERVER_V4, SERVER_V6};

/// What it does next.
#[derive(Clone, Copy, Debug)]
enum Act {
    Hello,
    HelloSecond,
    Bind,
    BindSecondSocket,
    BindOtherCandidates,
    BindForgedSecond,
    BindPublicLan,
    BindWildSequence,
    ReportSomething,
    PresenceByJoiner,
    ByeByJoiner,
    LongReport,
}

const ACTS: [Act; 20] = [
    Act::Hello,
    Act::HelloSecond,
    Act::HelloSecond,
    Act::Bind,
    Act::Bind,
    Act::Bind,
    Act::Bind,
    Act::Bind,
    Act::Bind,
    Act::BindSecondSocket,
    Act::BindOtherCandidates,
    Act::BindForgedSecond,
    Act::BindPublicLan,
    Act::BindWildSequence,
    Act::ReportSomething,
    Act::ReportSomething,
    Act::ReportSomething,
    Act::PresenceByJoiner,
    Act::ByeByJoiner,
    Act::LongReport,
];

/// Its key, its cookies, its count.
pub(crate) struct Rogue {
    key: RoleKey,
    attempt: AttemptId,
    session: u64,
    sequence: u64,
    /// Of its first socket and its second.
    cookies: [Option<Cookie>; 2],
    act_at: Instant,
    started: bool,
}

impl Rogue {
    /// A rogue that begins at `now`.
    pub(crate) const fn new(key: RoleKey, attempt: AttemptId, now: Instant) -> Self {
        Self { key, attempt, session: 7, sequence: 0, cookies: [None; 2], act_at: now, started: false }
    }

    /// When it acts next.
    pub(crate) const fn next(&self) -> Instant {
        self.act_at
    }

    /// Takes the cookie of whatever the server says.
    pub(crate) fn hear(&mut self, second: bool, bytes: &[u8]) {
        let cookie = match wire::parse_answer(bytes) {
            Ok(Answer::Challenge(it)) => it.cookie,
            Ok(Answer::Ack(it)) => it.body.cookie,
            Ok(Answer::Bound(it)) => it.body.cookie,
            Ok(Answer::Introduce(it)) => it.body.cookie,
            _ => return,
        };
        self.cookies[usize::from(second)] = Some(cookie);
    }

    fn proof(&mut self, kind: Kind, len: usize, second: bool) -> Option<Proof> {
        self.sequence += 1;
        Some(Proof {
            header: Header::new(kind, len),
            key_id: self.key.id,
            cookie: self.cookies[usize::from(second)]?,
            session: U64::new(self.session),
            sequence: U64::new(self.sequence),
        })
    }

    fn sealed<T: IntoBytes + Immutable>(&self, layout: &T, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        wire::seal(layout, len, Direction::ToServer, &self.key.secret, &mut bytes);
        bytes
    }

    fn hello(&self, rng: &mut SmallRng) -> Vec<u8> {
        let len = limits::HELLO_LEN_MIN;
        let nonce = U64::new(rng.next_u64());
        self.sealed(&Hello { header: Header::new(Kind::Hello, len), key_id: self.key.id, nonce }, len)
    }

    fn bind(&mut self, from_second: bool, second: Option<Endpoint>) -> Option<Bind> {
        let proof = self.proof(Kind::Bind, limits::BIND_LEN_MIN, from_second)?;
        let cookie = second.and(self.cookies[1]);
        Some(Bind {
            proof,
            attempt: self.attempt.to_bytes(),
            rtt_ms: U16::new(30),
            reserved: [0; 2],
            second: second.filter(|_| cookie.is_some()).into(),
            second_cookie: cookie.unwrap_or_else(Cookie::new_zeroed),
            lan: [WireEndpoint::NONE; 2],
            probe_cookie: Cookie::new_zeroed(),
        })
    }

    /// What it sends, and whether from its second socket.
    fn act(&mut self, rng: &mut SmallRng, second: Option<Endpoint>) -> Option<(bool, Vec<u8>)> {
        let len = limits::BIND_LEN_MIN;
        let act = if self.started { ACTS[rng.random_range(0..ACTS.len())] } else { Act::Hello };
        self.started = true;
        let report_len = limits::REPORT_LEN_MIN;
        Some(match act {
            Act::Hello => (false, self.hello(rng)),
            Act::HelloSecond => (true, self.hello(rng)),
            Act::Bind => {
                let bind = self.bind(false, second)?;
                (false, self.sealed(&bind, len))
            }
            Act::BindSecondSocket => {
                let bind = self.bind(true, None)?;
                (true, self.sealed(&bind, len))
            }
            Act::BindOtherCandidates => {
                let mut bind = self.bind(false, second)?;
                bind.lan[0] = Some(Endpoint::new([10, 9, 9, 9].into(), 5_000)).into();
                (false, self.sealed(&bind, len))
            }
            Act::BindForgedSecond => {
                let mut bind = self.bind(false, None)?;
                bind.second = Some(Endpoint::new([0x2600, 0, 0, 0, 0, 0, 0, 0x66].into(), 5_000)).into();
                bind.second_cookie = self.cookies[1].or(self.cookies[0])?;
                (false, self.sealed(&bind, len))
            }
            Act::BindPublicLan => {
                let mut bind = self.bind(false, second)?;
                bind.lan[0] = Some(Endpoint::new([8, 8, 8, 8].into(), 5_000)).into();
                (false, self.sealed(&bind, len))
            }
            Act::BindWildSequence => {
                let mut bind = self.bind(false, second)?;
                let wild = [0, u64::MAX, limits::SEQUENCE_JUMP_MAX + 1, 1];
                bind.proof.sequence = U64::new(wild[rng.random_range(0..wild.len())]);
                (false, self.sealed(&bind, len))
            }
            Act::ReportSomething => (false, self.report(rng, report_len)?),
            Act::LongReport => {
                let bytes = self.report(rng, 400)?;
                (false, bytes)
            }
            Act::PresenceByJoiner => {
                let len = limits::PRESENCE_LEN_MIN;
                let proof = self.proof(Kind::Presence, len, false)?;
                (false, self.sealed(&Presence { proof }, len))
            }
            Act::ByeByJoiner => {
                let proof = self.proof(Kind::Bye, report_len, false)?;
                (false, self.sealed(&Bye { proof }, report_len))
            }
        })
    }

    fn report(&mut self, rng: &mut SmallRng, len: usize) -> Option<Vec<u8>> {
        let proof = self.proof(Kind::Report, len, false)?;
        let report = Report {
            proof,
            attempt: self.attempt.to_bytes(),
            result: rng.random_range(1..=4),
            reserved: [0; 1],
            rtt_ms: U16::ZERO,
            reserved_2: [0; 4],
        };
        Some(self.sealed(&report, len))
    }
}

impl World {
    /// Lets a rogue act, if joiner `at` is one.
    pub(crate) fn poll_rogue(&mut self, at: usize) {
        let Some(joiner) = self.joiners.get_mut(&at) else { return };
        let Player::Rogue(rogue) = &mut joiner.player else { return };
        if self.now < rogue.act_at {
            return;
        }
        rogue.act_at = self.now.after(Duration::from_millis(self.rng.random_range(100..500)));
        let (node, second) = (joiner.node, joiner.second);
        let known = second.map(|second| self.net.v6_of(second));
        let Some((from_second, bytes)) = rogue.act(&mut self.rng, known) else { return };
        match second.filter(|_| from_second) {
            Some(second) => self.send(second, SERVER_V6, &bytes),
            None if from_second => {}
            None => {
                let server = if self.net.is_v6(node) { SERVER_V6 } else { SERVER_V4 };
                self.send(node, server, &bytes);
            }
        }
    }
}
