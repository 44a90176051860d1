//! A host from start to end: registration, lease, presence, joiners; back by itself after a server's restart.

use core::future::Future;
use core::pin::Pin;
use core::time::Duration;
use std::net::SocketAddr;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rendezvous_shared::api::{
    PendingResponse, RegisterRequest, RegisterResponse, RenewRequest, RenewResponse,
};
use rendezvous_shared::id::ListingId;
use rendezvous_shared::time::{Clock, Instant};
use tokio::sync::{mpsc, watch};

use super::{
    Chatter, DriverError, Families, Messages, Network, Session, Stamped, SystemClock, Ways, random_seed,
    tell, told, ways::find_ways,
};
use crate::control::{ControlClient, ControlError, IdempotencyKey};
use crate::course::AttemptEvent;
use crate::credentials::{HostCredentials, RoleKey};
use crate::host::{Host, HostEvent};

/// Longest pause before the control plane is tried again: a host must be back within one refresh interval.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A crowd that saw its server restart asks the control plane spread over this.
const ASK_SPREAD: Duration = Duration::from_millis(250);
/// Least distance between two registrations, and between two renewals that a datagram brought about.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest `Retry-After` that is kept to: a server back earlier than it said should be found.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
/// Pause after a renewal that no repeat may cure, such as with an API key taken away. It may be given back.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);
/// Time for BYE, and for DELETE, when told to stop.
const STOP_MAX: Duration = Duration::from_secs(2);

/// What to host and how.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// The control plane.
    pub control: ControlClient,
    /// The listing; with a slot, a restarted host takes over its own ghost.
    pub request: RegisterRequest,
    /// Address families, and whether to name private addresses.
    pub network: Network,
    /// What to send over each link.
    pub messages: Messages,
    /// For all stamps.
    pub clock: SystemClock,
}

/// What [`run`] tells while it runs.
#[derive(Clone, Debug)]
pub enum HostNews {
    /// A listing was registered, for the first time or again.
    Registered {
        /// Its id.
        listing: ListingId,
        /// Its join code, when unlisted.
        join_code: Option<String>,
        /// Where its datagrams go.
        server: SocketAddr,
        /// Where those of the other address family go.
        second: Option<SocketAddr>,
    },
    /// The lease was renewed.
    Renewed {
        /// The version now.
        version: u64,
    },
    /// The listing is gone or the server restarted; it is being registered again.
    Registering,
    /// The control plane did not do what was asked; tried again: within a second, later when the server said so,
    /// after 10 s when a renewal was refused for good. The same trouble is told once until something works.
    Trouble {
        /// For people.
        detail: String,
    },
    /// What the host told.
    Event(Stamped<HostEvent>),
}

enum Done {
    Registered(Result<(Box<RegisterResponse>, Ways), DriverError>),
    Renewed(Result<RenewResponse, ControlError>),
    Pending(Result<PendingResponse, ControlError>),
}

/// What is being asked of the control plane.
struct Job {
    /// A due renewal pushes it out: the lease is worth more than a hint.
    may_wait: bool,
    done: Pin<Box<dyn Future<Output = Done> + Send>>,
}

struct Running {
    options: HostOptions,
    news: mpsc::Sender<HostNews>,
    session: Session<Host>,
    ways: Ways,
    /// Tries once: the repeats are made here, where the host's state may have changed meanwhile.
    control: ControlClient,
    listing: ListingId,
    version: u64,
    renew_at: Instant,
    /// No datagram brings about a renewal before.
    renew_earliest: Instant,
    /// No registration is sent before.
    register_earliest: Instant,
    /// Kept until a registration is known to be done, so that an ambiguous failure makes no second one.
    register_key: Option<IdempotencyKey>,
    /// One request of the control plane at a time; registering pushes out the others, renewing the query.
    job: Option<Job>,
    /// Attempts wait that no NOTICE named; to be asked for, or being asked for.
    attempts_pending: bool,
    chatter: Chatter,
    /// Told last, and nothing worked since.
    trouble: Option<String>,
    rng: SmallRng,
}

/// Hosts until `stop` turns true or its sender is gone, then sends BYE and DELETE. Never gives up on a server that
/// cannot be reached, or whose name does not resolve; it asks again within a second, or when the server said.
///
/// # Errors
/// A refusal that repeating does not cure (no such key, an invalid listing, ...), or the socket's end.
pub async fn run(
    options: HostOptions,
    news: mpsc::Sender<HostNews>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), DriverError> {
    let seed = random_seed()?;
    let mut rng = SmallRng::seed_from_u64(seed.rotate_left(32));
    let control = options.control.with_tries(1);
    let mut key = IdempotencyKey::random()?;
    let mut trouble = None;
    let families = options.network.families;
    let (response, ways) = loop {
        let attempt = register(control.clone(), options.request.clone(), families, key.clone());
        let error = tokio::select! {
            () = told(&mut stop) => return Ok(()),
            registered = attempt => match registered {
                Ok(registered) => break registered,
                Err(error) => error,
            },
        };
        if is_spent(&error) {
            key = IdempotencyKey::random()?;
        } else if !error.is_transient() {
            return Err(error);
        }
        let detail = error.to_string();
        if trouble.as_ref() != Some(&detail) {
            tell(&news, HostNews::Trouble { detail: detail.clone() });
            trouble = Some(detail);
        }
        tokio::select! {
            () = told(&mut stop) => return Ok(()),
            () = tokio::time::sleep(pause(&error, &mut rng)) => {}
        }
    };
    let now = options.clock.now();
    let host = Host::new(HostCredentials::from_response(&response, ways.first)?, seed, now);
    let session = Session::bind(host, ways.first, options.clock).await?;
    let mut running = Running {
        listing: response.listing.id,
        version: response.lease.version,
        renew_at: renewal(&response.lease.ttl_ms, now),
        renew_earliest: now,
        register_earliest: now.after(ASK_INTERVAL),
        control,
        register_key: None,
        job: None,
        attempts_pending: false,
        chatter: Chatter::default(),
        trouble: None,
        ways,
        options,
        news,
        session,
        rng,
    };
    running.use_ways().await?;
    running.tell_registered(&response);
    running.serve(&mut stop).await?;
    running.stop().await;
    Ok(())
}

/// A third of the lease from now: two renewals may fail.
fn renewal(ttl_ms: &u64, now: Instant) -> Instant {
    now.after(Duration::from_millis(*ttl_ms / 3))
}

/// How long to wait after `error`: as the server asks, else at most [`PAUSE_MAX`].
fn pause(error: &DriverError, rng: &mut SmallRng) -> Duration {
    let pause = PAUSE_MAX.mul_f64(rng.random_range(0.5..1.0));
    // The server's hint is the least to wait; jitter comes on top, so that a crowd spreads.
    let DriverError::Control(error) = error else { return pause };
    let asked = error.retry_after().unwrap_or_default().min(RETRY_AFTER_MAX);
    pause.max(asked.mul_f64(rng.random_range(1.0..1.5)))
}

/// Whether the registration was done long ago, its answer was lost, and its listing is over by now: its key stands for
/// that listing, so only a new one makes another.
fn is_spent(error: &DriverError) -> bool {
    matches!(error, DriverError::Control(ControlError::Problem { problem, .. }) if problem.status == 410)
}

async fn register(
    control: ControlClient,
    request: RegisterRequest,
    families: Families,
    key: IdempotencyKey,
) -> Result<(Box<RegisterResponse>, Ways), DriverError> {
    let response = control.register(&request, &key).await?;
    let ways = find_ways(&response.udp, families).await?;
    Ok((Box::new(response), ways))
}

impl Running {
    async fn serve(&mut self, stop: &mut watch::Receiver<bool>) -> Result<(), DriverError> {
        let clock = self.options.clock;
        loop {
            let busy = self.job.as_ref().is_some_and(|job| !job.may_wait);
            let renew_at = if busy { Instant::MAX } else { self.renew_at };
            let wake = clock.until(renew_at.min(self.chatter.next_at()));
            let job = async {
                match &mut self.job {
                    Some(job) => job.done.as_mut().await,
                    None => core::future::pending().await,
                }
            };
            tokio::select! {
                () = told(stop) => return Ok(()),
                stamped = self.session.next() => {
                    let stamped = stamped?;
                    self.on_event(&stamped);
                    tell(&self.news, HostNews::Event(stamped));
                }
                done = job => {
                    self.job = None;
                    self.on_done(done).await?;
                }
                () = tokio::time::sleep(wake) => {}
            }
            let now = clock.now();
            self.chat(now);
            self.ask(now);
        }
    }

    fn on_event(&mut self, stamped: &Stamped<HostEvent>) {
        match &stamped.event {
            HostEvent::InstanceChanged { .. } => self.ask_soon(),
            HostEvent::PresenceRefused(refused) if refused.is_gone() => self.ask_soon(),
            HostEvent::AttemptsPending => self.attempts_pending = true,
            HostEvent::ChangePort | HostEvent::ChangeSecondPort => self.tell_own(),
            HostEvent::Attempt { attempt, event } => match event {
                AttemptEvent::Connected { .. } => {
                    self.chatter.start(*attempt, self.options.messages, stamped.at);
                }
                AttemptEvent::Closed => self.chatter.stop(*attempt),
                _ => {}
            },
            _ => {}
        }
    }

    async fn on_done(&mut self, done: Done) -> Result<(), DriverError> {
        match done {
            Done::Registered(Ok((response, ways))) => {
                self.register_key = None;
                self.attempts_pending = false;
                self.trouble = None;
                let credentials = HostCredentials::from_response(&response, ways.first)?;
                if self.session.local_addr()?.is_ipv4() != ways.first.is_ipv4() {
                    self.session.rebind(ways.first).await?;
                }
                let (host, now) = self.session.machine_mut();
                host.replace(now, credentials);
                self.ways = ways;
                self.use_ways().await?;
                self.listing = response.listing.id;
                self.version = response.lease.version;
                self.renew_at = renewal(&response.lease.ttl_ms, now);
                self.tell_registered(&response);
            }
            Done::Registered(Err(error)) if error.is_transient() || is_spent(&error) => {
                if is_spent(&error) {
                    self.register_key = None;
                }
                self.trouble(&error);
                let pause = pause(&error, &mut self.rng);
                self.register_again(pause)?;
            }
            Done::Registered(Err(error)) => return Err(error),
            Done::Renewed(Ok(response)) => {
                self.trouble = None;
                let key = RoleKey::from_presence(&response.presence)?;
                let (host, now) = self.session.machine_mut();
                host.update_key(now, key);
                self.version = response.lease.version;
                self.renew_at = renewal(&response.lease.ttl_ms, now);
                let refused = host.is_halted();
                tell(&self.news, HostNews::Renewed { version: self.version });
                if refused {
                    // The lease stands, but its own key is refused: nothing is left but another listing.
                    self.register_again(Duration::ZERO)?;
                }
            }
            Done::Renewed(Err(error)) => self.on_renewal_failed(error)?,
            Done::Pending(Ok(response)) => {
                self.attempts_pending = false;
                let (host, now) = self.session.machine_mut();
                for pending in response.attempts.iter().filter(|pending| pending.joiner_bound) {
                    host.bind(now, pending.id, Duration::from_millis(pending.remaining_ms));
                }
                host_wake(&mut self.session);
            }
            Done::Pending(Err(error)) => {
                // The next ACK says it again, if it is still so.
                self.attempts_pending = false;
                self.trouble(&error);
            }
        }
        Ok(())
    }

    fn on_renewal_failed(&mut self, error: ControlError) -> Result<(), DriverError> {
        if let Some(latest) = error.latest_version() {
            // An answer was lost, so the version went on without us: renew from where it is.
            self.version = latest;
            self.renew_at = self.options.clock.now();
        } else if error.is_gone() {
            // Whoever comes here is spread already: by its renewals, or by ASK_SPREAD.
            self.register_again(Duration::ZERO)?;
        } else if !error.is_transient() && self.session.machine().is_halted() {
            // Neither key nor lease is to be had; the registration says whether that is for good.
            self.trouble(&error);
            self.register_again(PAUSE_MAX)?;
        } else {
            let (now, error) = (self.options.clock.now(), DriverError::Control(error));
            let pause = if error.is_transient() {
                pause(&error, &mut self.rng)
            } else {
                // Not by a datagram either. The listing lives until its lease ends; then PRESENCE is refused, and
                // the registration says whether this is for good.
                let pause = REFUSED_PAUSE.mul_f64(self.rng.random_range(0.9..1.1));
                self.renew_earliest = now.after(pause);
                pause
            };
            self.trouble(&error);
            self.renew_at = now.after(pause);
        }
        Ok(())
    }

    /// Has the control plane decide, by a renewal, whether the server restarted, as a CHALLENGE claims without a MAC,
    /// or what key is good, after a refusal of the one in use. A renewal under way is left to say so.
    fn ask_soon(&mut self) {
        let spread = ASK_SPREAD.mul_f64(self.rng.random_range(0.0..1.0));
        let soon = self.options.clock.now().after(spread).max(self.renew_earliest);
        self.renew_at = self.renew_at.min(soon);
    }

    /// Registers again after `pause`, instead of whatever is being asked of the control plane.
    fn register_again(&mut self, pause: Duration) -> Result<(), DriverError> {
        let key = match &self.register_key {
            Some(key) => key.clone(),
            None => self.register_key.insert(IdempotencyKey::random()?).clone(),
        };
        tell(&self.news, HostNews::Registering);
        let now = self.options.clock.now();
        let at = now.after(pause).max(self.register_earliest);
        self.register_earliest = at.after(ASK_INTERVAL);
        let pause = at.since(now);
        let (control, request) = (self.control.clone(), self.options.request.clone());
        let families = self.options.network.families;
        let done = Box::pin(async move {
            tokio::time::sleep(pause).await;
            Done::Registered(register(control, request, families, key).await)
        });
        self.job = Some(Job { may_wait: false, done });
        Ok(())
    }

    /// Asks the control plane what is due: a renewal, in place of a query too, else attempts that wait.
    fn ask(&mut self, now: Instant) {
        let (control, listing) = (self.control.clone(), self.listing);
        if now >= self.renew_at && self.job.as_ref().is_none_or(|job| job.may_wait) {
            self.renew_earliest = now.after(ASK_INTERVAL);
            let request = RenewRequest { version: Some(self.version), lease_ms: None };
            let done = Box::pin(async move { Done::Renewed(control.renew(listing, &request).await) });
            self.job = Some(Job { may_wait: false, done });
        } else if self.attempts_pending && self.job.is_none() {
            let done = Box::pin(async move { Done::Pending(control.pending(listing, Duration::ZERO).await) });
            self.job = Some(Job { may_wait: true, done });
        }
    }

    fn chat(&mut self, now: Instant) {
        for attempt in self.chatter.due(now, self.options.messages.interval) {
            let (host, now) = self.session.machine_mut();
            let _ = host.send(now, attempt, b"host says hello");
        }
        self.session.flush();
    }

    fn trouble(&mut self, error: &impl ToString) {
        let detail = error.to_string();
        if self.trouble.as_ref() != Some(&detail) {
            tell(&self.news, HostNews::Trouble { detail: detail.clone() });
            self.trouble = Some(detail);
        }
    }

    fn tell_registered(&self, response: &RegisterResponse) {
        let (listing, join_code) = (response.listing.id, response.listing.join_code.clone());
        let Ways { first: server, second } = self.ways;
        tell(&self.news, HostNews::Registered { listing, join_code, server, second });
    }

    /// Keeps presence where the server can be reached; the machine is in the first family already.
    async fn use_ways(&mut self) -> Result<(), DriverError> {
        let second = self.ways.second;
        self.session.set_second(second).await?;
        let (host, now) = self.session.machine_mut();
        host.set_second_server(now, second);
        self.tell_own();
        Ok(())
    }

    /// The sockets have other ports than before.
    fn tell_own(&mut self) {
        let own = self.ways.own(&self.session, self.options.network.lan);
        self.session.machine_mut().0.set_own(own);
    }

    /// BYE, then DELETE; neither is waited for beyond [`STOP_MAX`].
    async fn stop(&mut self) {
        let (host, now) = self.session.machine_mut();
        host.close(now);
        let bye = async {
            while let Ok(stamped) = self.session.next().await {
                let closed = matches!(stamped.event, HostEvent::Closed { .. });
                tell(&self.news, HostNews::Event(stamped));
                if closed {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(STOP_MAX, bye).await;
        match tokio::time::timeout(STOP_MAX, self.options.control.delete(self.listing)).await {
            Ok(Ok(())) => {}
            // Its lease ended, or the answer to an earlier try was lost: gone is what was wanted.
            Ok(Err(error)) if error.is_gone() => {}
            Ok(Err(error)) => self.trouble(&error),
            Err(_) => self.trouble(&ControlError::Unreachable("DELETE was not answered in time".to_owned())),
        }
    }
}

/// Lets the host act on what it was just told.
fn host_wake(session: &mut Session<Host>) {
    let (host, now) = session.machine_mut();
    crate::machine::Machine::handle_timeout(host, now);
    session.flush();
}
