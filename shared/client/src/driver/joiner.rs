//! A joiner from start to end: attempt over HTTP, introduction, link, messages.

use core::future::Future;
use core::pin::Pin;
use core::time::Duration;

use rendezvous_shared::api::AttemptRequest;
use rendezvous_shared::id::{AttemptId, ListingId};
use rendezvous_shared::time::{Clock, Instant};
use tokio::sync::{mpsc, watch};

use super::{
    Chatter, DriverError, Messages, Network, Session, Stamped, SystemClock, Ways, random_seed, tell, told,
    ways::find_ways,
};
use crate::control::{ControlClient, IdempotencyKey};
use crate::course::AttemptEvent;
use crate::credentials::JoinerCredentials;
use crate::joiner::{Joiner, JoinerEvent};
use crate::refusal::Refused;

/// How long a joiner that has sent all its messages waits for the rest of the host's.
const LINGER: Duration = Duration::from_secs(2);

/// Least distance between two questions whether the attempt is still known.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// What to join and how.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// The control plane.
    pub control: ControlClient,
    /// The listing to join.
    pub listing: ListingId,
    /// Note and life of the attempt.
    pub request: AttemptRequest,
    /// Address families, and whether to name private addresses.
    pub network: Network,
    /// What to send once connected; the joiner ends when as many have come back, or 2 s after its last.
    pub messages: Messages,
    /// For all stamps.
    pub clock: SystemClock,
}

/// What [`run`] tells while it runs.
#[derive(Clone, Debug)]
pub enum JoinNews {
    /// The attempt is open.
    Created {
        /// Its id.
        attempt: AttemptId,
    },
    /// What the joiner told; [`JoinerEvent::InstanceChanged`] only once the control plane confirmed it.
    Event(Stamped<JoinerEvent>),
}

/// How a join ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinOutcome {
    /// The peers were connected.
    Connected,
    /// The server refused.
    Refused(Refused),
    /// Not introduced in time.
    TimedOut,
    /// Introduced, but nothing came from the host.
    PeerSilent,
    /// Introduced, and somebody without the punch secret answered.
    PeerUnrecognised,
    /// The server restarted and says over HTTP that it does not know the attempt.
    ServerRestarted,
    /// Told to stop before any of these.
    Stopped,
}

/// What a join came to; instants are on the clock handed in.
#[derive(Clone, Copy, Debug)]
pub struct JoinReport {
    /// The attempt.
    pub attempt: AttemptId,
    /// How it ended.
    pub outcome: JoinOutcome,
    /// When the attempt was open.
    pub created: Instant,
    /// When INTRODUCE came.
    pub introduced: Option<Instant>,
    /// When the peers were connected.
    pub connected: Option<Instant>,
    /// Messages sent.
    pub sent: u32,
    /// Messages received.
    pub received: u32,
}

/// Joins, sends the messages asked for, and ends. `stop` turning true, or its sender gone, ends it early.
///
/// # Errors
/// What kept it from trying; what the attempt came to is in the report.
pub async fn run(
    options: JoinOptions,
    news: mpsc::Sender<JoinNews>,
    mut stop: watch::Receiver<bool>,
) -> Result<JoinReport, DriverError> {
    let key = IdempotencyKey::random()?;
    let response = options.control.create_attempt(options.listing, &options.request, &key).await?;
    let clock = options.clock;
    let ways = find_ways(&response.udp, options.network.families).await?;
    let credentials = JoinerCredentials::from_response(&response, ways.first)?;
    let created = clock.now();
    tell(&news, JoinNews::Created { attempt: response.id });
    let mut session = begin(&options, credentials, ways, created).await?;
    let mut report = JoinReport {
        attempt: response.id,
        outcome: JoinOutcome::Stopped,
        created,
        introduced: None,
        connected: None,
        sent: 0,
        received: 0,
    };
    let mut doubt = Doubt {
        control: options.control.with_tries(1),
        attempt: response.id,
        clock,
        earliest: created,
        event: None,
        job: None,
    };
    let mut chatter = Chatter::default();
    let mut ends = Instant::MAX;
    loop {
        let wake = clock.until(chatter.next_at().min(ends));
        tokio::select! {
            () = told(&mut stop) => break,
            stamped = session.next() => {
                let stamped = stamped?;
                if matches!(stamped.event, JoinerEvent::InstanceChanged { .. }) {
                    doubt.ask(stamped);
                    continue;
                }
                if matches!(stamped.event, JoinerEvent::ChangePort | JoinerEvent::ChangeSecondPort) {
                    let own = ways.own(&session, options.network.lan);
                    session.machine_mut().0.set_own(own);
                }
                let over = note(&mut report, &stamped, &mut chatter, options.messages);
                tell(&news, JoinNews::Event(stamped));
                if over {
                    break;
                }
            }
            // Once introduced the server is of no more use, so it may well be gone.
            stamped = doubt.is_confirmed() => if report.introduced.is_none() {
                report.outcome = JoinOutcome::ServerRestarted;
                tell(&news, JoinNews::Event(stamped));
                break;
            },
            () = tokio::time::sleep(wake) => {}
        }
        for _ in chatter.due(clock.now(), options.messages.interval) {
            let (joiner, now) = session.machine_mut();
            let text = format!("joiner says {}", report.sent + 1);
            report.sent += u32::from(joiner.send(now, text.as_bytes()).is_ok());
        }
        if report.connected.is_some() && chatter.is_empty() {
            let all = report.received >= options.messages.count;
            let wait = if all { Duration::from_millis(500) } else { LINGER };
            ends = ends.min(clock.now().after(wait));
        }
        if clock.now() >= ends {
            break;
        }
    }
    session.flush();
    Ok(report)
}

/// A joiner with a socket for each family.
async fn begin(
    options: &JoinOptions,
    credentials: JoinerCredentials,
    ways: Ways,
    now: Instant,
) -> Result<Session<Joiner>, DriverError> {
    let joiner = Joiner::new(credentials, random_seed()?, now);
    let mut session = Session::bind(joiner, ways.first, options.clock).await?;
    session.set_second(ways.second).await?;
    if let Some(second) = ways.second {
        session.machine_mut().0.set_second_server(now, second);
    }
    let own = ways.own(&session, options.network.lan);
    session.machine_mut().0.set_own(own);
    Ok(session)
}

/// Whether the server restarted, which a CHALLENGE claims without a MAC. Only the control plane's word counts; while
/// it gives none, the attempt goes on, and the next claim asks again.
struct Doubt {
    control: ControlClient,
    attempt: AttemptId,
    clock: SystemClock,
    earliest: Instant,
    /// Told once it is confirmed.
    event: Option<Stamped<JoinerEvent>>,
    job: Option<Pin<Box<dyn Future<Output = bool> + Send>>>,
}

impl Doubt {
    fn ask(&mut self, claim: Stamped<JoinerEvent>) {
        if self.job.is_some() {
            return;
        }
        let now = self.clock.now();
        let at = now.max(self.earliest);
        self.earliest = at.after(ASK_INTERVAL);
        self.event = Some(claim);
        let (control, attempt) = (self.control.clone(), self.attempt);
        self.job = Some(Box::pin(async move {
            tokio::time::sleep(at.since(now)).await;
            control.get_attempt(attempt).await.is_err_and(|error| error.is_gone())
        }));
    }

    /// Comes back only with a confirmed claim. May be dropped at any await without losing an answer.
    async fn is_confirmed(&mut self) -> Stamped<JoinerEvent> {
        if let Some(job) = &mut self.job {
            let gone = job.await;
            self.job = None;
            if let Some(event) = self.event.take().filter(|_| gone) {
                return event;
            }
        }
        core::future::pending().await
    }
}

/// Takes note of an event; true when nothing more is to come.
fn note(
    report: &mut JoinReport,
    stamped: &Stamped<JoinerEvent>,
    chatter: &mut Chatter,
    messages: Messages,
) -> bool {
    let event = match &stamped.event {
        JoinerEvent::Attempt(event) => event,
        JoinerEvent::Proved { .. }
        | JoinerEvent::ChangePort
        | JoinerEvent::ChangeSecondPort
        | JoinerEvent::InstanceChanged { .. } => return false,
    };
    match event {
        AttemptEvent::Bound => false,
        AttemptEvent::Introduced { .. } => {
            report.introduced = Some(stamped.at);
            false
        }
        AttemptEvent::Connected { .. } => {
            report.connected = Some(stamped.at);
            report.outcome = JoinOutcome::Connected;
            chatter.start(report.attempt, messages, stamped.at);
            false
        }
        AttemptEvent::Message { .. } => {
            report.received += 1;
            false
        }
        AttemptEvent::Refused(refused) => {
            report.outcome = JoinOutcome::Refused(*refused);
            true
        }
        AttemptEvent::TimedOut => {
            report.outcome = JoinOutcome::TimedOut;
            true
        }
        // The report is still to be sent; its end is the end.
        AttemptEvent::PeerSilent => {
            report.outcome = JoinOutcome::PeerSilent;
            false
        }
        AttemptEvent::PeerUnrecognised => {
            report.outcome = JoinOutcome::PeerUnrecognised;
            false
        }
        AttemptEvent::Closed => true,
        AttemptEvent::Reported { .. } => report.connected.is_none(),
    }
}
