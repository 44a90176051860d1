//! What `dataplane/node/src/sync.rs` names, for a world in which a scheduler decides who goes on.
//!
//! Each has the semantics of what it stands for. Time does not pass: a wait that is not for zero never ends by itself,
//! so a wake that is lost is found as a deadlock and not slept over.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

pub use crossbeam::channel::{TryRecvError, TrySendError};
use shuttle::sync::{Condvar, Mutex, atomic};
use shuttle::thread::{self, Thread};

#[path = "../../dataplane/net/src/wake/flag.rs"]
mod flag;

/// Tells the scheduler that this thread may go round without doing anything: others go first for a while.
fn spinning() {
    thread::yield_now();
}

/// A point at which another thread may go on.
pub fn step() {
    thread::sleep(Duration::ZERO);
}

// ---- Channels: crossbeam's bounded ones, as far as they are used ------------------------------------------

struct Channel<T> {
    room: usize,
    state: Mutex<State<T>>,
}

struct State<T> {
    queue: VecDeque<T>,
    senders: usize,
    received_by: bool,
    /// Parked until something comes.
    watchers: Vec<Thread>,
}

pub fn bounded<T>(room: usize) -> (Sender<T>, Receiver<T>) {
    let state = State { queue: VecDeque::new(), senders: 1, received_by: true, watchers: Vec::new() };
    let channel = Arc::new(Channel { room, state: Mutex::new(state) });
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

pub struct Sender<T>(Arc<Channel<T>>);

impl<T> Sender<T> {
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let mut state = self.0.state.lock().unwrap();
        if !state.received_by {
            return Err(TrySendError::Disconnected(message));
        }
        if state.queue.len() == self.0.room {
            return Err(TrySendError::Full(message));
        }
        state.queue.push_back(message);
        state.watchers.drain(..).for_each(|it| it.unpark());
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.state.lock().unwrap().queue.len()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().unwrap().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // A world that fails is left as it is.
        if std::thread::panicking() {
            return;
        }
        let mut state = self.0.state.lock().unwrap();
        state.senders -= 1;
        state.watchers.drain(..).for_each(|it| it.unpark());
    }
}

pub struct Receiver<T>(Arc<Channel<T>>);

impl<T> Receiver<T> {
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        if std::thread::panicking() {
            return Err(TryRecvError::Disconnected);
        }
        let mut state = self.0.state.lock().unwrap();
        let ended = if state.senders == 0 { TryRecvError::Disconnected } else { TryRecvError::Empty };
        state.queue.pop_front().ok_or(ended)
    }

    pub fn len(&self) -> usize {
        self.0.state.lock().unwrap().queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // What was not received stays until the senders are gone too, as in crossbeam.
        self.0.state.lock().unwrap().received_by = false;
    }
}

/// Waits for one of several channels.
#[derive(Default)]
pub struct Select<'a>(Vec<&'a dyn Watch>);

trait Watch {
    /// Whether a receive would not block; if it would, the caller is unparked once that changes.
    fn ready_or_watch(&self) -> bool;
}

impl<T> Watch for Receiver<T> {
    fn ready_or_watch(&self) -> bool {
        let mut state = self.0.state.lock().unwrap();
        if state.queue.is_empty() && state.senders == 0 {
            drop(state);
            spinning();
            return true;
        }
        if state.queue.is_empty() {
            state.watchers.push(thread::current());
            return false;
        }
        true
    }
}

impl<'a> Select<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn recv<T>(&mut self, receiver: &'a Receiver<T>) -> usize {
        self.0.push(receiver);
        self.0.len() - 1
    }

    pub fn ready_timeout(&mut self, timeout: Duration) -> Result<usize, Elapsed> {
        loop {
            if let Some(ready) = self.0.iter().position(|it| it.ready_or_watch()) {
                return Ok(ready);
            }
            if timeout.is_zero() {
                spinning();
                return Err(Elapsed);
            }
            thread::park();
        }
    }
}

// ---- Wakes: the flag is the product's own -----------------------------------------------------------------

/// What a ring sleeps on: the eventfd, and its socket's readability.
#[derive(Default)]
pub struct Bell {
    state: Mutex<Rings>,
    rung: Condvar,
}

#[derive(Default)]
struct Rings {
    event: bool,
    datagrams: u64,
}

impl Bell {
    /// A datagram was put into the socket.
    pub fn arrived(&self) {
        self.state.lock().unwrap().datagrams += 1;
        self.rung.notify_all();
    }

    /// Blocks until the event was written or more than `handed_over` datagrams arrived.
    pub fn sleep(&self, handed_over: u64) {
        let mut state = self.state.lock().unwrap();
        while !state.event && state.datagrams <= handed_over {
            state = self.rung.wait(state).unwrap();
        }
        state.event = false;
    }
}

struct Gate {
    flag: flag::SleepFlag,
    bell: Arc<Bell>,
}

pub fn wake_pair() -> (WakeGate, Waker, Arc<Bell>) {
    let bell = Arc::new(Bell::default());
    let gate = Arc::new(Gate { flag: flag::SleepFlag::new(), bell: Arc::clone(&bell) });
    (WakeGate(Arc::clone(&gate)), Waker(gate), bell)
}

#[derive(Clone)]
pub struct Waker(Arc<Gate>);

impl Waker {
    pub fn wake(&self) -> bool {
        let asleep = self.0.flag.take();
        if asleep {
            self.0.bell.state.lock().unwrap().event = true;
            self.0.bell.rung.notify_all();
        }
        asleep
    }
}

pub struct WakeGate(Arc<Gate>);

impl WakeGate {
    pub fn prepare_to_sleep(&self) -> Sleep<'_> {
        self.0.flag.announce();
        Sleep(&self.0.flag)
    }
}

pub struct Sleep<'a>(&'a flag::SleepFlag);

impl Sleep<'_> {
    pub fn awake(self) {}
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

// ---- Replies: tokio's oneshot, with a step before and after each operation --------------------------------

pub mod oneshot {
    use super::step;
    use tokio::sync::oneshot;

    pub fn channel<T>() -> (Sender<T>, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Sender(sender), receiver)
    }

    pub struct Sender<T>(oneshot::Sender<T>);

    impl<T> Sender<T> {
        pub fn send(self, message: T) -> Result<(), T> {
            step();
            let result = self.0.send(message);
            step();
            result
        }

        /// No step after it: what this says is true when the caller goes on, so tests may be exact.
        pub fn is_closed(&self) -> bool {
            step();
            self.0.is_closed()
        }
    }
}

// ---- Timers -----------------------------------------------------------------------------------------------

#[derive(Debug)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("elapsed")
    }
}

std::thread_local! {
    /// Whether timeouts come at any moment instead of never. Of the thread on which all of one world runs.
    static IMPATIENT: Cell<bool> = const { Cell::new(false) };
}

/// From now on every timeout of this world may come at any moment, or none will.
pub fn set_impatient(impatient: bool) {
    IMPATIENT.set(impatient);
}

pub async fn timeout<F: Future>(_after: Duration, work: F) -> Result<F::Output, Elapsed> {
    use shuttle::rand::{Rng, thread_rng};
    let mut work = pin!(work);
    std::future::poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending if !IMPATIENT.get() => Poll::Pending,
        Poll::Pending if thread_rng().gen_ratio(1, 4) => Poll::Ready(Err(Elapsed)),
        Poll::Pending => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

pub async fn sleep(_duration: Duration) {
    shuttle::future::yield_now().await;
}
