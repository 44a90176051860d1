//! `rendezvous host` and `rendezvous join`: real peers, to try a server by hand.

use std::time::Duration;

use rendezvous_client::AttemptEvent;
use rendezvous_client::control::{Browse, ControlClient, ControlError, ControlOptions};
use rendezvous_client::driver::host::{HostNews, HostOptions};
use rendezvous_client::driver::joiner::{JoinNews, JoinOptions, JoinOutcome, JoinReport};
use rendezvous_client::driver::{DriverError, Messages, SystemClock, host, joiner};
use rendezvous_client::host::HostEvent;
use rendezvous_client::joiner::JoinerEvent;
use rendezvous_shared::api::{AttemptRequest, RegisterRequest, VisibilityBody};
use rendezvous_shared::id::ListingId;
use rendezvous_shared::time::Instant;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::cli::{HostArgs, JoinArgs, ServerArgs};
use crate::exit::ExitCode;
use crate::output::{complain, line};

/// How often a joiner looks for a listing that is not there yet, and how many times.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const LOOKS_MAX: u32 = 20;
const NEW_PORT: &str = "nothing is heard from the server; trying another port";
/// News that may wait to be printed.
const NEWS_MAX: usize = 256;

/// Hosts until interrupted.
pub fn run_host(args: &HostArgs) -> ExitCode {
    block_on(async {
        let options = HostOptions {
            control: control(&args.server)?,
            request: RegisterRequest {
                protocol: args.server.protocol.clone(),
                name: args.name.clone(),
                visibility: if args.unlisted { VisibilityBody::Unlisted } else { VisibilityBody::Public },
                player_capacity: 8,
                attributes: std::collections::BTreeMap::new(),
                slot: args.slot.clone(),
                lease_ms: None,
            },
            network: args.server.network(),
            messages: messages(&args.server),
            clock: SystemClock::start(),
        };
        let stop = interrupted()?;
        watched(|news| host::run(options, news, stop), tell_host).await?;
        Ok(ExitCode::Ok)
    })
}

/// Joins once.
pub fn run_join(args: &JoinArgs) -> ExitCode {
    block_on(async {
        let control = control(&args.server)?;
        let Some(listing) = find(&control, args).await? else {
            complain(format_args!("no listing of protocol {:?} can be joined now", args.server.protocol));
            return Ok(ExitCode::Unavailable);
        };
        line(format_args!("joining {listing}"));
        let options = JoinOptions {
            control,
            listing,
            request: AttemptRequest { note: args.note.clone(), ttl_ms: None },
            network: args.server.network(),
            messages: messages(&args.server),
            clock: SystemClock::start(),
        };
        let stop = interrupted()?;
        let report = watched(|news| joiner::run(options, news, stop), tell_joiner).await?;
        tell_times(&report);
        line(format_args!("sent {}, received {} messages", report.sent, report.received));
        match report.outcome {
            JoinOutcome::Connected | JoinOutcome::Stopped => Ok(ExitCode::Ok),
            outcome => {
                complain(format_args!("attempt {} failed: {outcome:?}", report.attempt));
                Ok(ExitCode::Unavailable)
            }
        }
    })
}

/// Runs a peer, and prints its news until it has no more.
async fn watched<News, Run: Future>(
    run: impl FnOnce(mpsc::Sender<News>) -> Run,
    tell: fn(&News),
) -> Run::Output {
    let (sender, mut news) = mpsc::channel(NEWS_MAX);
    let printing = async {
        while let Some(news) = news.recv().await {
            tell(&news);
        }
    };
    let (result, ()) = tokio::join!(run(sender), printing);
    result
}

/// The listing asked for; by browsing, the first that can be joined, awaited for a while.
async fn find(control: &ControlClient, args: &JoinArgs) -> Result<Option<ListingId>, DriverError> {
    if let Some(listing) = args.listing {
        return Ok(Some(listing));
    }
    if let Some(code) = args.code {
        return Ok(Some(control.get_by_join_code(code).await?.id));
    }
    for look in 0..LOOKS_MAX {
        let browse =
            Browse { protocol: Some(args.server.protocol.clone()), limit: Some(1), ..Browse::default() };
        if let Some(listing) = control.browse(&browse).await?.listings.first() {
            return Ok(Some(listing.id));
        }
        if look == 0 {
            line(format_args!("no listing of protocol {:?} yet; waiting", args.server.protocol));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    Ok(None)
}

fn tell_host(news: &HostNews) {
    match news {
        HostNews::Registered { listing, join_code, server, second } => {
            line(format_args!("listed as {listing}, datagrams go to {server}"));
            if let Some(second) = second {
                line(format_args!("and to {second}"));
            }
            if let Some(code) = join_code {
                line(format_args!("join code {code}"));
            }
        }
        HostNews::Renewed { version } => tracing::debug!(version, "lease renewed"),
        HostNews::Registering => line("the server does not know this listing any more; registering again"),
        HostNews::Trouble { detail } => complain(format_args!("{detail}; trying again")),
        HostNews::Event(stamped) => match &stamped.event {
            HostEvent::Attempt { attempt, event } => tell_attempt(&format!("{attempt}: "), event),
            HostEvent::Draining => line("the server is draining"),
            HostEvent::ChangePort | HostEvent::ChangeSecondPort => line(NEW_PORT),
            HostEvent::PresenceRefused(refused) => complain(format_args!("presence refused: {refused}")),
            event => tracing::debug!(?event, "host"),
        },
    }
}

fn tell_joiner(news: &JoinNews) {
    match news {
        JoinNews::Created { attempt } => line(format_args!("attempt {attempt}")),
        JoinNews::Event(stamped) => match &stamped.event {
            JoinerEvent::Attempt(event) => tell_attempt("", event),
            JoinerEvent::InstanceChanged { .. } => complain("the server restarted; the attempt is gone"),
            JoinerEvent::ChangePort | JoinerEvent::ChangeSecondPort => line(NEW_PORT),
            event => tracing::debug!(?event, "joiner"),
        },
    }
}

fn tell_attempt(whose: &str, event: &AttemptEvent) {
    match event {
        AttemptEvent::Introduced { peer } => line(format_args!("{whose}introduced to {peer}")),
        AttemptEvent::Connected { peer, .. } => line(format_args!("{whose}connected to {peer}")),
        AttemptEvent::Message { ordinal, payload } => {
            line(format_args!("{whose}message {ordinal}: {}", String::from_utf8_lossy(payload)));
        }
        AttemptEvent::Refused(refused) => complain(format_args!("{whose}refused: {refused}")),
        AttemptEvent::PeerSilent => complain(format_args!("{whose}the peer is silent")),
        AttemptEvent::PeerUnrecognised => complain(format_args!("{whose}a stranger answered for the peer")),
        AttemptEvent::TimedOut => complain(format_args!("{whose}not introduced in time")),
        AttemptEvent::Closed => line(format_args!("{whose}the peer is gone")),
        AttemptEvent::Bound | AttemptEvent::Reported { .. } => tracing::debug!(?event, "attempt"),
    }
}

/// Counted from when the attempt was open.
fn tell_times(report: &JoinReport) {
    let after = |at: Instant| at.since(report.created).as_secs_f64() * 1000.0;
    if let (Some(introduced), Some(connected)) = (report.introduced, report.connected) {
        line(format_args!(
            "introduced after {:.1} ms, connected after {:.1} ms",
            after(introduced),
            after(connected)
        ));
    }
}

fn control(args: &ServerArgs) -> Result<ControlClient, ControlError> {
    ControlClient::new(&args.server, &args.key, ControlOptions::default())
}

fn messages(args: &ServerArgs) -> Messages {
    Messages { count: args.messages, interval: args.interval() }
}

/// Turns true at SIGINT or SIGTERM.
fn interrupted() -> Result<watch::Receiver<bool>, DriverError> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        let _ = sender.send(true);
        // The sender must live on: its end would mean the same, but so would the end of this task.
        std::future::pending::<()>().await;
    });
    Ok(receiver)
}

fn block_on(work: impl Future<Output = Result<ExitCode, DriverError>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(format_args!("rendezvous: no runtime: {error}"));
            return ExitCode::Internal;
        }
    };
    match runtime.block_on(work) {
        Ok(code) => code,
        Err(error) => {
            complain(format_args!("rendezvous: {error}"));
            code_of(&error)
        }
    }
}

fn code_of(error: &DriverError) -> ExitCode {
    match error {
        DriverError::Control(ControlError::Problem { problem, .. }) => match problem.status {
            401 | 403 => ExitCode::Permission,
            400..=499 => ExitCode::BadData,
            _ => ExitCode::Unavailable,
        },
        DriverError::Control(ControlError::Unsupported(_)) => ExitCode::Usage,
        DriverError::Control(ControlError::Unreachable(_)) | DriverError::NoEndpoint(_) => {
            ExitCode::Unavailable
        }
        DriverError::Control(ControlError::Malformed(_)) | DriverError::Credentials(_) => ExitCode::BadData,
        DriverError::Socket(_) | DriverError::Random(_) => ExitCode::Internal,
    }
}
