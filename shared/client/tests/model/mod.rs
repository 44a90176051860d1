//! The modelled server with its control plane, over real sockets on loopback.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rendezvous_client::RoleKey;
use rendezvous_client::driver::host::{HostNews, HostOptions};
use rendezvous_client::driver::joiner::{JoinOptions, JoinReport};
use rendezvous_client::driver::{Messages, Network, SystemClock, joiner};
use rendezvous_client::host::HostEvent;
use rendezvous_shared::api::{
    AttemptBody, AttemptRequest, AttemptResponse, JoinerBody, LeaseBody, ListingBody, PhaseTimesBody,
    PresenceBody, RegisterRequest, RegisterResponse, RenewResponse, SideBody, UdpBody, VisibilityBody,
};
use rendezvous_shared::id::{AttemptId, Handle, ListingId};
use rendezvous_shared::time::Clock;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};

use crate::http::{Answer, Http, Seen};
use crate::world::server::Server;

pub struct Model {
    pub server: Mutex<Server>,
    pub udp: SocketAddr,
    pub clock: SystemClock,
    pub version: Mutex<u64>,
    pub key: Mutex<Option<RoleKey>>,
    pub faults: Mutex<Faults>,
}

/// What goes wrong.
#[derive(Default)]
pub struct Faults {
    /// Each HELLO is answered by a forged CHALLENGE too, and that comes first.
    pub forge: bool,
    /// As many renewals get no answer.
    pub renewals_lost: usize,
    /// The next renewal supersedes the key at once, and its answer is late.
    pub rotate: bool,
    /// As many queries for waiting attempts hang.
    pub queries_hang: usize,
    /// A renewal is answered with this status.
    pub renewal_status: Option<u16>,
    /// As many registrations are answered as repeats of one whose listing is over.
    pub registrations_over: usize,
    /// As many registrations are answered with endpoints that cannot be resolved.
    pub unresolved: usize,
    /// DELETE is answered with this status.
    pub delete_status: Option<u16>,
    /// The server restarts right after it made an attempt.
    pub restart_after_attempt: bool,
}

pub fn problem(status: u16) -> Answer {
    let body = format!(
        r#"{{"type":"about:blank","title":"","status":{status},"code":"it_is","detail":"as wanted"}}"#
    );
    (status, None, body)
}

pub fn at() -> String {
    "2026-01-01T00:00:00Z".to_owned()
}

impl Model {
    fn presence(key: &RoleKey) -> PresenceBody {
        PresenceBody {
            key_id: key.id.to_hex(),
            secret: key.secret.to_hex(),
            refresh_ms: 300,
            ttl_ms: 30_000,
            expires_at: at(),
        }
    }

    fn lease(&self) -> LeaseBody {
        let version = *self.version.lock().unwrap();
        LeaseBody { version, ttl_ms: 1_500, remaining_ms: None, expires_at: at() }
    }

    fn register(&self, body: &[u8]) -> Answer {
        {
            let mut faults = self.faults.lock().unwrap();
            if faults.registrations_over > 0 {
                faults.registrations_over -= 1;
                return problem(410);
            }
        }
        let request: RegisterRequest = serde_json::from_slice(body).unwrap();
        let mut server = self.server.lock().unwrap();
        let key = server.register(self.clock.now()).key;
        *self.key.lock().unwrap() = Some(key.clone());
        *self.version.lock().unwrap() = 1;
        let mut faults = self.faults.lock().unwrap();
        let endpoints = vec![if faults.unresolved > 0 { "nowhere".to_owned() } else { self.udp.to_string() }];
        faults.unresolved = faults.unresolved.saturating_sub(1);
        drop(faults);
        let response = RegisterResponse {
            listing: ListingBody {
                id: ListingId::new(server.instance.0, Handle(7)),
                protocol: request.protocol,
                name: request.name,
                visibility: VisibilityBody::Public,
                player_capacity: request.player_capacity,
                attributes: request.attributes,
                visible: false,
                owned: true,
                slot: None,
                join_code: None,
                lease: None,
                presence_remaining_ms: None,
            },
            lease: self.lease(),
            presence: Self::presence(&key),
            udp: UdpBody { endpoints, probe_endpoints: Vec::new() },
            instance: server.instance.to_string(),
        };
        (201, None, serde_json::to_string(&response).unwrap())
    }

    fn attempt(&self) -> Answer {
        let mut server = self.server.lock().unwrap();
        let credentials = server.create_attempt(self.clock.now());
        let response = AttemptResponse {
            id: credentials.attempt,
            listing_id: ListingId::new(server.instance.0, Handle(7)),
            joiner: JoinerBody {
                key_id: credentials.key.id.to_hex(),
                secret: credentials.key.secret.to_hex(),
            },
            ttl_ms: 20_000,
            expires_at: at(),
            udp: UdpBody { endpoints: vec![self.udp.to_string()], probe_endpoints: Vec::new() },
            instance: server.instance.to_string(),
        };
        if self.faults.lock().unwrap().restart_after_attempt {
            *server = Server::new(2);
        }
        (201, None, serde_json::to_string(&response).unwrap())
    }

    fn pending(&self) -> Answer {
        let mut faults = self.faults.lock().unwrap();
        if faults.queries_hang > 0 {
            faults.queries_hang -= 1;
            return (1, None, String::new());
        }
        (200, None, r#"{"attempts":[]}"#.to_owned())
    }

    fn get_attempt(&self, path: &str) -> Answer {
        let id: AttemptId = path.trim_start_matches("/v1/attempts/").parse().unwrap();
        if !self.server.lock().unwrap().has_attempt(id) {
            return problem(404);
        }
        let body = AttemptBody {
            id,
            listing_id: ListingId::new(1, Handle(7)),
            phase: "bound".to_owned(),
            reason: None,
            times_ms: PhaseTimesBody::default(),
            remaining_ms: 1_000,
            host: SideBody::default(),
            joiner: SideBody::default(),
        };
        (200, None, serde_json::to_string(&body).unwrap())
    }

    /// The first renewal after a registration finds that its version is stale.
    fn renew(&self, body: &[u8]) -> Answer {
        {
            let mut faults = self.faults.lock().unwrap();
            if faults.renewals_lost > 0 {
                faults.renewals_lost -= 1;
                return (0, None, String::new());
            }
            let status =
                faults.renewal_status.or((!self.server.lock().unwrap().has_listing()).then_some(404));
            if let Some(status) = status {
                return problem(status);
            }
        }
        let sent: serde_json::Value = serde_json::from_slice(body).unwrap();
        let mut version = self.version.lock().unwrap();
        if *version == 1 {
            *version = 5;
            let body = r#"{"type":"about:blank","title":"","status":409,"code":"conflict","detail":"",
                "reason":"stale_version","latest_version":5}"#;
            return (409, None, body.to_owned());
        }
        assert_eq!(sent["version"], *version);
        *version += 1;
        drop(version);
        let rotate = std::mem::take(&mut self.faults.lock().unwrap().rotate);
        if rotate {
            let key = self.server.lock().unwrap().new_key(self.clock.now().after(Duration::from_millis(1)));
            *self.key.lock().unwrap() = Some(key);
        }
        let presence = Self::presence(self.key.lock().unwrap().as_ref().unwrap());
        let response = RenewResponse { lease: self.lease(), presence };
        let status = if rotate { 1200 } else { 200 };
        (status, None, serde_json::to_string(&response).unwrap())
    }

    fn answer(&self, seen: &Seen) -> Answer {
        match (seen.method.as_str(), seen.path.as_str()) {
            ("POST", "/v1/listings") => self.register(&seen.body),
            ("POST", _) => self.attempt(),
            ("PUT", _) => self.renew(&seen.body),
            ("GET", path) if path.starts_with("/v1/listings/") => self.pending(),
            ("GET", path) => self.get_attempt(path),
            ("DELETE", _) => {
                self.faults.lock().unwrap().delete_status.map_or((204, None, String::new()), problem)
            }
            other => panic!("{other:?}"),
        }
    }
}

pub async fn start() -> (Arc<Model>, Http) {
    start_with(Faults::default()).await
}

pub async fn start_with(faults: Faults) -> (Arc<Model>, Http) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut server = Server::new(1);
    server.refresh_ms = 300;
    let model = Arc::new(Model {
        server: Mutex::new(server),
        udp: socket.local_addr().unwrap(),
        clock: SystemClock::start(),
        version: Mutex::new(1),
        key: Mutex::new(None),
        faults: Mutex::new(faults),
    });
    let http = {
        let model = model.clone();
        Http::serve(move |seen| model.answer(seen)).await
    };
    let served = model.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 1500];
        loop {
            let received =
                tokio::time::timeout(Duration::from_millis(5), socket.recv_from(&mut buffer)).await;
            let out = {
                let mut server = served.server.lock().unwrap();
                let now = served.clock.now();
                let mut out = server.due(now);
                if let Ok(Ok((len, from))) = received {
                    let is_hello = buffer[5] == 1;
                    if served.faults.lock().unwrap().forge && is_hello {
                        let mut forged = [0; 48];
                        forged[..8].copy_from_slice(&[0x52, 0x44, 0x56, 0x5a, 1, 0x81, 0, 48]);
                        forged[8..16].copy_from_slice(&buffer[40..48]);
                        forged[23] = 99;
                        out.push((from, forged.to_vec()));
                    }
                    out.extend(server.handle(now, from, &buffer[..len]));
                }
                out
            };
            for (to, bytes) in out {
                socket.send_to(&bytes, to).await.unwrap();
            }
        }
    });
    (model, http)
}

pub fn host_options(http: &Http, clock: SystemClock) -> HostOptions {
    HostOptions {
        control: http.client(),
        request: RegisterRequest {
            protocol: "test".to_owned(),
            name: "a host".to_owned(),
            visibility: VisibilityBody::Public,
            player_capacity: 4,
            attributes: std::collections::BTreeMap::new(),
            slot: Some("one".to_owned()),
            lease_ms: None,
        },
        network: Network::default(),
        messages: Messages { count: 3, interval: Duration::from_millis(20) },
        clock,
    }
}

pub async fn join(http: &Http, listing: ListingId, clock: SystemClock) -> JoinReport {
    let options = JoinOptions {
        control: http.client(),
        listing,
        request: AttemptRequest::default(),
        network: Network::default(),
        messages: Messages { count: 3, interval: Duration::from_millis(20) },
        clock,
    };
    let (news, _receiver) = mpsc::channel(256);
    let (_keep, stop) = watch::channel(false);
    let joined = tokio::time::timeout(Duration::from_secs(8), joiner::run(options, news, stop));
    joined.await.expect("a join ends within 8 s").unwrap()
}

/// Waits for news that `wanted` makes something of.
pub async fn until<T>(news: &mut mpsc::Receiver<HostNews>, wanted: impl Fn(&HostNews) -> Option<T>) -> T {
    let wait = async {
        loop {
            let it = news.recv().await.expect("the host runs");
            if let Some(found) = wanted(&it) {
                return found;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(8), wait).await.expect("news within 8 s")
}

pub fn refreshed(news: &HostNews) -> Option<()> {
    matches!(news, HostNews::Event(it) if matches!(it.event, HostEvent::Refreshed { .. })).then_some(())
}

pub fn calls(http: &Http, method: &str, path: &str) -> usize {
    let seen = http.seen.lock().unwrap();
    seen.iter().filter(|it| it.method == method && it.path.starts_with(path)).count()
}

/// All the news of the next `time`.
pub async fn gather(news: &mut mpsc::Receiver<HostNews>, time: Duration) -> Vec<HostNews> {
    let mut all = Vec::new();
    let _ = tokio::time::timeout(time, async {
        while let Some(it) = news.recv().await {
            all.push(it);
        }
    })
    .await;
    all
}

pub fn registered(news: &HostNews) -> Option<ListingId> {
    match news {
        HostNews::Registered { listing, .. } => Some(*listing),
        _ => None,
    }
}
