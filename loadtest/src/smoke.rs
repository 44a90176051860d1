//! The plan `smoke` from start to end.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rendezvous_client::control::{ControlClient, ControlError, ControlOptions};
use rendezvous_client::driver::{SystemClock, random_seed};
use rendezvous_shared::time::Clock;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::checks::{self, ServerFigures};
use crate::cli::SmokeArgs;
use crate::exit::Failure;
use crate::ledger::{Ledger, Shared};
use crate::metrics::{self, Samples};
use crate::output::{complain, line};
use crate::server::{Addresses, Server};
use crate::setup::{self, TenantKeys};
use crate::{descriptors, host, joiner, report};

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Tries of one request in all, and the longest pause between two.
const TRIES_MAX: u32 = 6;
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Time for the hosts' BYE and DELETE.
const STOP_MAX: Duration = Duration::from_secs(30);
/// Time for what is in flight to end, traffic stopped.
const SETTLE_MAX: Duration = Duration::from_secs(2);
const SETTLE_POLL: Duration = Duration::from_millis(50);
/// Troubles told; the table counts all of them.
const TROUBLES_TOLD_MAX: u32 = 10;

/// One tenant's clients. Turns keep requests from queueing within the client, where they would be timed.
pub(crate) struct Tenant {
    pub(crate) hosts: ControlClient,
    pub(crate) joiners: ControlClient,
    pub(crate) host_turns: Semaphore,
    pub(crate) joiner_turns: Semaphore,
}

/// What all tasks share.
pub(crate) struct Context {
    pub(crate) ledger: Shared,
    pub(crate) clock: SystemClock,
    /// Begins every idempotency key, so that no run repeats another's.
    pub(crate) run: String,
    tenants: Vec<Tenant>,
    /// The address the server sees of this machine.
    own_ip: IpAddr,
    troubles: Cell<u32>,
}

impl Context {
    /// The tenant of a host, and so of its joiners.
    pub(crate) fn tenant_of(&self, host: usize) -> &Tenant {
        &self.tenants[host % self.tenants.len()]
    }

    /// A socket's address as the server sees it.
    pub(crate) const fn address(&self, local: SocketAddr) -> SocketAddr {
        SocketAddr::new(self.own_ip, local.port())
    }

    pub(crate) fn trouble(&self, text: impl fmt::Display) {
        self.troubles.set(self.troubles.get() + 1);
        if self.troubles.get() <= TROUBLES_TOLD_MAX {
            complain(text);
        }
    }
}

impl Tenant {
    /// Makes a request, again and again while that may help; `request` carries its idempotency key.
    pub(crate) async fn call<T, F: Future<Output = Result<T, ControlError>>>(
        &self,
        context: &Context,
        name: &'static str,
        request: impl Fn() -> F,
    ) -> Result<T, ControlError> {
        let mut pause = PAUSE_MIN;
        let mut tries = 1;
        loop {
            let error = match request().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            context.ledger.borrow_mut().refused(name, error.code().unwrap_or("unreachable"));
            if !error.is_transient() || tries == TRIES_MAX {
                return Err(error);
            }
            let asked = match &error {
                ControlError::Problem { retry_after, .. } => *retry_after,
                _ => None,
            };
            let jitter = rand::rng().random_range(1.0..1.5);
            tokio::time::sleep(asked.unwrap_or(pause).min(PAUSE_MAX).mul_f64(jitter)).await;
            pause *= 2;
            tries += 1;
        }
    }
}

/// Runs the plan; whether every check held.
pub(crate) async fn run(args: &SmokeArgs) -> Result<bool, Failure> {
    let random = || random_seed().map_err(|error| Failure::Internal(format!("no randomness: {error}")));
    let seed = args.seed.map_or_else(random, Ok)?;
    line(format_args!("smoke: {} hosts, {} joiners, seed {seed}", args.hosts, args.joiners));
    descriptors::raise(u64::from(args.hosts) + u64::from(args.concurrency))?;
    let (server, addresses, keys) = open(args).await?;
    let before = metrics::fetch(&addresses.admin).await?;
    let context = Rc::new(Context {
        ledger: Rc::new(RefCell::new(Ledger::new(args.hosts, args.joiners)?)),
        clock: SystemClock::start(),
        run: format!("{:016x}", random()?),
        tenants: tenants(&addresses, &keys)?,
        own_ip: own_ip(&addresses.http).await?,
        troubles: Cell::new(0),
    });
    load(args, seed, &context).await;
    let after = settled(&addresses.admin).await?;
    let client = context.ledger.borrow().summary();
    let mut log = String::new();
    let exclusive = server.is_some();
    let ended = match server {
        Some(server) => {
            log = server.log_tail();
            let ended = server.stop().await?;
            Some((ended.clean, ended.status))
        }
        None => None,
    };
    let figures = ServerFigures { before, after, exclusive, ended };
    let checks = checks::all(&client, &figures);
    report::print(&context.ledger.borrow(), &client, &figures, &checks);
    let held = checks.iter().all(|it| it.held);
    if held {
        line("smoke: all checks hold");
    } else {
        line("smoke: FAILED");
        complain(format_args!("the end of the server's log:\n{log}"));
    }
    Ok(held)
}

/// The server: a new one, or the one named.
async fn open(args: &SmokeArgs) -> Result<(Option<Server>, Addresses, Vec<TenantKeys>), Failure> {
    if let (Some(server), Some(admin), Some(keys)) = (&args.server, &args.admin, &args.keys) {
        let keys = setup::read_keys(keys)?;
        return Ok((None, Addresses { http: server.clone(), admin: admin.clone() }, keys));
    }
    let (config, keys) = setup::make(args)?;
    let server = Server::start(args.server_binary.as_deref(), &config).await?;
    server.banner.iter().for_each(line);
    let addresses = server.addresses.clone();
    Ok((Some(server), addresses, keys))
}

fn tenants(addresses: &Addresses, keys: &[TenantKeys]) -> Result<Vec<Tenant>, Failure> {
    let connections = setup::connections_per_client(keys.len());
    // One try: retries are counted, so they are made here.
    let options = ControlOptions { tries: 1, concurrency: connections, ..ControlOptions::default() };
    let client = |key: &str| {
        ControlClient::new(&addresses.http, key, options.clone())
            .map_err(|error| Failure::Usage(error.to_string()))
    };
    let tenant = |keys: &TenantKeys| {
        Ok(Tenant {
            hosts: client(&keys.hosts)?,
            joiners: client(&keys.joiners)?,
            host_turns: Semaphore::new(connections),
            joiner_turns: Semaphore::new(connections),
        })
    };
    keys.iter().map(tenant).collect()
}

/// The address from which this machine reaches the server at `url`; nothing is sent.
async fn own_ip(url: &str) -> Result<IpAddr, Failure> {
    let failed = |error: std::io::Error| Failure::Unavailable(format!("{url}: {error}"));
    let uri: Uri = url.parse().map_err(|_| Failure::Usage(format!("{url} is no URL")))?;
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    let server = tokio::net::lookup_host((host, uri.port_u16().unwrap_or(80))).await.map_err(failed)?.next();
    let server = server.ok_or_else(|| Failure::Unavailable(format!("{url}: no address")))?;
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = tokio::net::UdpSocket::bind(any).await.map_err(failed)?;
    socket.connect(server).await.map_err(failed)?;
    Ok(socket.local_addr().map_err(failed)?.ip())
}

/// All traffic, from the first registration to the last BYE.
async fn load(args: &SmokeArgs, seed: u64, context: &Rc<Context>) {
    let (stop, stopped) = watch::channel(false);
    let mut hosts = JoinSet::new();
    for index in 0..context.ledger.borrow().hosts.len() {
        hosts.spawn_local(host::run(index, Rc::clone(context), stopped.clone()));
    }
    let mut joiners = JoinSet::new();
    let traffic = async {
        all_present(&context.ledger).await;
        join_all(args, seed, context, &mut joiners).await;
    };
    tokio::select! {
        () = traffic => {}
        () = progress(context) => {}
        () = tokio::time::sleep(args.timeout()) => {
            context.trouble(format_args!("the run was cut off after {} s", args.timeout_s));
        }
    }
    line(format_args!("all joiners are done; {}", context.ledger.borrow().progress()));
    joiners.shutdown().await;
    let _ = stop.send(true);
    let all_stopped = async { while hosts.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_MAX, all_stopped).await.is_err() {
        context.trouble("some hosts did not stop in time");
        hosts.shutdown().await;
    }
}

async fn all_present(ledger: &Shared) {
    let changed = Rc::clone(&ledger.borrow().host_changed);
    loop {
        let (settled, of) = (ledger.borrow().hosts_settled().1, ledger.borrow().hosts.len());
        if settled == of {
            return;
        }
        changed.notified().await;
    }
}

/// Every joiner, at most so many at once, at the rate if one is asked for.
async fn join_all(args: &SmokeArgs, seed: u64, context: &Rc<Context>, joiners: &mut JoinSet<()>) {
    let open: Vec<_> = {
        let ledger = context.ledger.borrow();
        let rows = ledger.hosts.iter().enumerate().filter(|(_, it)| it.present && !it.failed);
        rows.filter_map(|(index, it)| Some((index, it.listing?))).collect()
    };
    if open.is_empty() {
        return;
    }
    let mut rng = SmallRng::seed_from_u64(seed);
    let places = Arc::new(Semaphore::new(args.concurrency as usize));
    let start = context.clock.now();
    for index in 0..args.joiners {
        let intended = args.rate.map(|rate| start.after(Duration::from_secs(index.into()) / rate));
        if let Some(at) = intended {
            tokio::time::sleep(at.since(context.clock.now())).await;
        }
        let (host, listing) = open[rng.random_range(0..open.len())];
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let context = Rc::clone(context);
        joiners.spawn_local(async move {
            joiner::run(index, host, listing, intended, context).await;
            drop(place);
        });
        while joiners.try_join_next().is_some() {}
    }
    while joiners.join_next().await.is_some() {}
}

/// A line each second, for ever.
async fn progress(context: &Context) {
    let start = context.clock.now();
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        let elapsed = context.clock.now().since(start).as_secs();
        line(format_args!("t+{elapsed:>3} s  {}", context.ledger.borrow().progress()));
    }
}

/// The metrics once nothing is in flight, or as they are when that takes too long.
async fn settled(admin: &str) -> Result<Samples, Failure> {
    let mut last = metrics::fetch(admin).await?;
    for _ in 0..SETTLE_MAX.as_millis() / SETTLE_POLL.as_millis() {
        let received = last.get("rendezvous_udp_datagrams_received_total");
        tokio::time::sleep(SETTLE_POLL).await;
        last = metrics::fetch(admin).await?;
        let quiet = last.get("rendezvous_udp_datagrams_received_total") == received;
        if quiet && last.get("rendezvous_udp_datagrams_in_flight") == Some(0) {
            break;
        }
    }
    Ok(last)
}
