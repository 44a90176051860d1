//! Whether every socket hears: the server asks itself over loopback, now and then, the whole way of a datagram. A ring
//! that has gone deaf has no other sign: nothing fails, nothing comes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError};
use rendezvous_control::boundary::Readiness;
use rendezvous_core::handler::SelfProbe;
use tracing::{info, warn};

use crate::dataplane::{PROBE_NAME, RING_NAMES, RingHandle};
use crate::systemd::notify;

/// Questions of one round, and how long each waits for its answer. Under a flood the kernel drops some; all are lost
/// only when nobody hears.
const QUESTIONS: u32 = 5;
const ANSWER_WAIT: Duration = Duration::from_millis(200);
/// Rounds without an answer after which a ring is called deaf.
const SILENT_ROUNDS: u32 = 2;
/// Sockets to try for each ring of a group until the kernel's hash has led to every one of them.
const TRIES_PER_RING: usize = 64;

/// What was found out so far.
#[derive(Debug, Default)]
pub(crate) struct Hearing {
    heard: AtomicU64,
    silent: AtomicU64,
}

impl Hearing {
    /// Rounds in which a ring answered, and in which it did not.
    #[must_use]
    pub(crate) fn rounds(&self) -> [(&'static str, u64); 2] {
        [("heard", self.heard.load(Ordering::Relaxed)), ("silent", self.silent.load(Ordering::Relaxed))]
    }
}

/// What the thread works with.
pub(crate) struct Listener {
    pub(crate) token: [u8; 32],
    pub(crate) period: Duration,
    pub(crate) hearing: Arc<Hearing>,
    pub(crate) readiness: Arc<Readiness>,
    /// Beats with each round of the store thread.
    pub(crate) store_beat: Arc<AtomicU64>,
}

/// One ring, and the socket whose questions reach it.
struct Asked {
    name: &'static str,
    number: u8,
    target: SocketAddr,
    socket: Option<UdpSocket>,
    silent_rounds: u32,
}

impl Listener {
    /// Asks until `stop` has no other end any more.
    pub(crate) fn run(self, rings: &[RingHandle], stop: &Receiver<()>) {
        let mut rings: Vec<_> = rings.iter().map(Asked::new).collect();
        let watchdog = sd_notify::watchdog_enabled();
        let period = watchdog.map_or(self.period, |it| self.period.min(it / 3));
        let mut ordinal = 0;
        let mut beat = 0;
        while stop.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
            find_ways(&mut rings, &self.token);
            for ring in &mut rings {
                self.ask(ring, &mut ordinal);
            }
            let deaf = rings.iter().any(|ring| ring.silent_rounds >= SILENT_ROUNDS);
            self.readiness.set_deaf(deaf);
            let store_beat = self.store_beat.load(Ordering::Relaxed);
            if watchdog.is_some() && !deaf && store_beat != beat {
                notify(&[sd_notify::NotifyState::Watchdog]);
            }
            beat = store_beat;
        }
    }

    fn ask(&self, ring: &mut Asked, ordinal: &mut u64) {
        let before = ring.silent_rounds;
        if ring.answers(&self.token, ordinal) {
            self.hearing.heard.fetch_add(1, Ordering::Relaxed);
            ring.silent_rounds = 0;
        } else {
            self.hearing.silent.fetch_add(1, Ordering::Relaxed);
            ring.silent_rounds = before.saturating_add(1);
        }
        match (before, ring.silent_rounds) {
            (_, SILENT_ROUNDS) if before < SILENT_ROUNDS => {
                warn!(ring = ring.name, "the socket does not hear; not ready until it does");
            }
            (SILENT_ROUNDS.., 0) => info!(ring = ring.name, "the socket hears again"),
            _ => {}
        }
    }
}

impl Asked {
    fn new(ring: &RingHandle) -> Self {
        let number = RING_NAMES.iter().position(|name| *name == ring.name);
        let bound = ring.socket.local_addr();
        let ip = match bound.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        Self {
            name: ring.name,
            number: number.map_or(u8::MAX, |it| it as u8),
            target: SocketAddr::new(ip, bound.port()),
            socket: None,
            silent_rounds: 0,
        }
    }

    /// Whether one of several questions is answered by this ring.
    fn answers(&self, token: &[u8; 32], ordinal: &mut u64) -> bool {
        let Some(socket) = &self.socket else { return false };
        (0..QUESTIONS).any(|_| {
            *ordinal += 1;
            ask(socket, token, *ordinal) == Some(self.number)
        })
    }
}

/// Finds a socket for each ring that has none: which ring of a group hears a socket is the kernel's to say, by a hash,
/// and stays so.
fn find_ways(rings: &mut [Asked], token: &[u8; 32]) {
    let group = rings.iter().filter(|ring| ring.name != PROBE_NAME).count();
    let mut tries = TRIES_PER_RING * group;
    while let Some(target) = rings.iter().find(|ring| ring.socket.is_none()).map(|ring| ring.target) {
        let Some(left) = tries.checked_sub(1) else { return };
        tries = left;
        let Ok(socket) = connect(target) else { return };
        // Whoever is silent here is asked in vain by the next round, too; that is how it is found out.
        let Some(number) = ask(&socket, token, 0) else { return };
        if let Some(ring) = rings.iter_mut().find(|ring| ring.number == number) {
            ring.socket.get_or_insert(socket);
        }
    }
}

fn connect(target: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr =
        if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_read_timeout(Some(ANSWER_WAIT))?;
    socket.connect(target)?;
    Ok(socket)
}

/// The ring that answered the question of that ordinal; earlier answers that come late are passed over.
fn ask(socket: &UdpSocket, token: &[u8; 32], ordinal: u64) -> Option<u8> {
    socket.send(&SelfProbe::question(token, ordinal)).ok()?;
    let mut answer = [0; SelfProbe::ANSWER_LEN + 1];
    for _ in 0..=QUESTIONS {
        let len = socket.recv(&mut answer).ok()?;
        match SelfProbe::read_answer(&answer[..len]) {
            Some((answered, ring)) if answered == ordinal => return Some(ring),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use crossbeam::channel::bounded;
    use rendezvous_control::boundary::ReadyState;
    use rendezvous_net::{SocketOptions, bind, wake_pair};

    use super::*;
    use crate::ring::ring_orders;

    const TOKEN: [u8; 32] = [7; 32];

    /// The socket of a ring that answers while `hears` says so.
    fn ring(hears: Arc<AtomicBool>) -> RingHandle {
        let socket = bind((Ipv4Addr::LOCALHOST, 0).into(), SocketOptions::default()).unwrap();
        let own = UdpSocket::from(socket.as_fd().try_clone_to_owned().unwrap());
        own.set_nonblocking(false).unwrap();
        thread::spawn(move || {
            let mut question = [0; 64];
            while let Ok((len, from)) = own.recv_from(&mut question) {
                assert_eq!(question[..32], TOKEN, "{len}");
                if hears.load(Ordering::SeqCst) {
                    let mut answer = [0; SelfProbe::ANSWER_LEN];
                    answer[..8].copy_from_slice(&question[32..40]);
                    own.send_to(&answer, from).unwrap();
                }
            }
        });
        let waker = wake_pair().unwrap().1;
        RingHandle { name: RING_NAMES[0], control: ring_orders().0, waker, socket: Arc::new(socket) }
    }

    fn wait_for(readiness: &Readiness, state: ReadyState) {
        for _ in 0..2_000 {
            if readiness.get() == state {
                return;
            }
            thread::park_timeout(Duration::from_millis(10));
        }
        panic!("{:?} and not {state:?}", readiness.get());
    }

    #[test]
    fn a_deaf_ring_makes_it_not_ready_until_it_hears_again() {
        let hears = Arc::new(AtomicBool::new(true));
        let rings = [ring(Arc::clone(&hears))];
        let (readiness, hearing) = (Arc::new(Readiness::new()), Arc::new(Hearing::default()));
        readiness.set(ReadyState::Ready);
        let listener = Listener {
            token: TOKEN,
            period: Duration::from_millis(20),
            hearing: Arc::clone(&hearing),
            readiness: Arc::clone(&readiness),
            store_beat: Arc::default(),
        };
        let (stop, stopped) = bounded::<()>(0);
        let thread = thread::spawn(move || listener.run(&rings, &stopped));
        let heard = || hearing.rounds()[0].1;
        while heard() < 3 {
            thread::yield_now();
        }
        assert_eq!(readiness.get(), ReadyState::Ready);
        hears.store(false, Ordering::SeqCst);
        wait_for(&readiness, ReadyState::Deaf);
        assert!(hearing.rounds()[1].1 >= u64::from(SILENT_ROUNDS));
        hears.store(true, Ordering::SeqCst);
        wait_for(&readiness, ReadyState::Ready);
        drop(stop);
        thread.join().unwrap();
    }
}
