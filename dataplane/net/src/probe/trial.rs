//! The trial of an engine: everything that it will be asked for, on a loopback socket, within a second.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::engine::{Engine, EngineKind, EngineOptions, OpenError, open};
use crate::socket::{SocketOptions, bind};
use crate::wake::wake_pair;

/// The whole trial. A kernel that hangs cannot be told to stop, so the trial has a thread of its own, which is left
/// behind after this.
const TRIAL_MAX: Duration = Duration::from_secs(1);
/// Each step waits so long at most, in so many turns; all steps together less than the whole.
const TURN: Duration = Duration::from_millis(50);
const TURNS_MAX: usize = 5;

const STEPS: u32 = 3;
const _: () = assert!(
    TURN.as_millis() * (STEPS * TURNS_MAX as u32 + 2) as u128 <= TRIAL_MAX.as_millis(),
    "a step that fails is named before the trial is given up"
);

/// How a trial ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{}", chain(.0))]
    Open(#[from] OpenError),
    /// The ring was set up, but an operation did not do what it should.
    #[error("{step} did not work on a ring that was set up{}", errno_text(*.errno))]
    Trial { step: &'static str, errno: i32 },
    /// Not io_uring's fault.
    #[error("{step}: {source}")]
    Surroundings { step: &'static str, source: io::Error },
    #[error("the trial was given up after {} ms", TRIAL_MAX.as_millis())]
    TimedOut,
    #[error("the trial panicked")]
    Panicked,
}

fn errno_text(errno: i32) -> String {
    if errno == 0 { String::new() } else { format!(": {}", io::Error::from_raw_os_error(errno)) }
}

fn chain(error: &OpenError) -> String {
    match error {
        OpenError::Refused { step, source, .. } => format!("{step}: {source}"),
        OpenError::Wildcard { .. } => error.to_string(),
    }
}

/// Tries `kind` on a thread that is given up after a second. It inherits what restricts this thread.
pub(super) fn try_engine(kind: EngineKind, options: EngineOptions) -> Result<(), Failure> {
    let (done, outcome) = sync_channel(1);
    thread::Builder::new()
        .name("engine-trial".into())
        // Nobody listens any more when it comes too late.
        .spawn(move || drop(done.send(operations(kind, options))))
        .map_err(|source| Failure::Surroundings { step: "thread for the trial", source })?;
    match outcome.recv_timeout(TRIAL_MAX) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => Err(Failure::TimedOut),
        Err(RecvTimeoutError::Disconnected) => Err(Failure::Panicked),
    }
}

/// Every operation the engine uses, once and more: set-up, two datagrams through one receive, a reply by address, a
/// wake.
fn operations(kind: EngineKind, options: EngineOptions) -> Result<(), Failure> {
    let around = |step| move |source| Failure::Surroundings { step, source };
    let socket_options = SocketOptions { receive_buffer_len: 1 << 16, send_buffer_len: 1 << 16 };
    let socket = bind((Ipv4Addr::LOCALHOST, 0).into(), socket_options).map_err(|error| {
        Failure::Surroundings { step: "loopback socket", source: io::Error::other(error) }
    })?;
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(around("loopback socket"))?;
    peer.set_read_timeout(Some(TURN)).map_err(around("loopback socket"))?;
    peer.connect(socket.local_addr()).map_err(around("loopback socket"))?;
    let (gate, waker) = wake_pair().map_err(around("eventfd"))?;

    let mut engine = open(kind, socket, &gate, options)?;
    let engine = engine.as_mut();
    for byte in 0..2 {
        peer.send(&[byte]).map_err(around("loopback send"))?;
        until(engine, "receive", |engine| engine.receive(usize::MAX, &mut echo) > 0)?;
    }
    // Once for the replies; a multishot receive that ended after one datagram would have been armed again by now.
    turn(engine, Duration::ZERO, "send")?;
    heard_twice(engine, &peer)?;
    if engine.counters().rearms_total() > 0 {
        return Err(Failure::Trial { step: "multishot receive (ended early)", errno: 0 });
    }
    let sleep = gate.prepare_to_sleep();
    waker.wake();
    until(engine, "read of the eventfd", |engine| engine.counters().wakes > 0)?;
    sleep.awake();
    Ok(())
}

fn echo(meta: crate::Meta, bytes: &[u8], outbox: &mut crate::Outbox) {
    let _full = outbox.push(meta.source, meta.local, |reply| {
        let len = bytes.len().min(reply.len());
        reply[..len].copy_from_slice(&bytes[..len]);
        len
    });
}

fn heard_twice(engine: &dyn Engine, peer: &UdpSocket) -> Result<(), Failure> {
    let mut reply = [0; 2];
    for byte in 0..2 {
        let refused = engine.counters().send_errors.iter().find(|(_, count)| *count > 0);
        match peer.recv(&mut reply) {
            Ok(1) if reply[0] == byte => {}
            _ => {
                let step = refused.map_or("send with an address", |_| "send with an address (refused)");
                return Err(Failure::Trial { step, errno: 0 });
            }
        }
    }
    Ok(())
}

fn until(
    engine: &mut dyn Engine,
    step: &'static str,
    mut done: impl FnMut(&mut dyn Engine) -> bool,
) -> Result<(), Failure> {
    for _ in 0..TURNS_MAX {
        turn(engine, TURN, step)?;
        if done(engine) {
            return Ok(());
        }
    }
    Err(Failure::Trial { step, errno: 0 })
}

fn turn(engine: &mut dyn Engine, timeout: Duration, step: &'static str) -> Result<(), Failure> {
    engine
        .turn(Some(timeout))
        .map_err(|error| Failure::Trial { step, errno: error.raw_os_error().unwrap_or(0) })
}
