//! Over real sockets, against a scripted store.

mod auth;
mod connections;
mod figures;
mod input;
mod renewal;
mod routes;
mod sample;
mod wall;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rendezvous_shared::api::UdpBody;
use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::id::InstanceId;
use rendezvous_shared::limits::Limits;
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{Reply, Transition};
use rendezvous_shared::time::{Clock, Instant, ManualClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::boundary::{BoxFuture, Lane, Readiness, ReadyState, StoreGateway, Telemetry, Times, WallAnchor};
use crate::directory::{ApiKey, Directory, DirectoryConfig, KeyConfig, PrincipalConfig, Scope, TenantConfig};
use crate::snapshot::Snapshot;
use crate::{Control, ControlParts, HttpOptions, Surface};

type Answer = Result<Reply, Refusal>;
type Script = Box<dyn FnMut(&Transition) -> BoxFuture<Answer> + Send>;

/// A store that answers as scripted and remembers what it was asked.
struct FakeStore {
    script: Mutex<Script>,
    seen: Mutex<Vec<(Lane, Transition)>>,
}

impl StoreGateway for FakeStore {
    fn submit(&self, lane: Lane, transition: Transition) -> BoxFuture<Answer> {
        let answer = (self.script.lock().unwrap())(&transition);
        self.seen.lock().unwrap().push((lane, transition));
        answer
    }
}

struct FakeTelemetry;

impl Telemetry for FakeTelemetry {
    fn snapshot(&self) -> BoxFuture<Snapshot> {
        Box::pin(async { sample::snapshot() })
    }
}

/// Where the wall clock stands at the start.
const WALL_MS: i64 = 1_800_000_000_000;

struct FakeTimes(ManualClock, Arc<AtomicI64>);

impl Times for FakeTimes {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn wall(&self) -> WallAnchor {
        WallAnchor { unix_ms_at_zero: self.1.load(Ordering::Relaxed) }
    }
}

/// The key of a principal with these scopes; the same text in every test.
fn key(scopes: &str) -> String {
    let mut id = [0; 10];
    id.iter_mut().zip(scopes.bytes().rev()).for_each(|(to, from)| *to = from);
    ApiKey::generate(id, [7; 32]).to_text()
}

const ALL: &str = "all";
const HOST: &str = "host";
const JOINER: &str = "joiner";
const READER: &str = "reader";
const OPERATOR: &str = "operator";
const METRICS: &str = "metrics";
const NOTHING: &str = "nothing";
const STRANGER: &str = "stranger";

fn principal(name: &str, scopes: &[Scope]) -> PrincipalConfig {
    let key = ApiKey::parse(&key(name)).unwrap();
    PrincipalConfig {
        name: name.to_owned(),
        scopes: scopes.to_vec(),
        keys: vec![KeyConfig { id: key.id().to_owned(), secret_blake3: key.fingerprint().to_hex() }],
        quotas: None,
    }
}

fn directory() -> Directory {
    let all = [Scope::ListingWrite, Scope::AttemptWrite, Scope::Read, Scope::Operate, Scope::Metrics];
    let tenant = |name: &str, principals| TenantConfig { name: name.to_owned(), quotas: None, principals };
    let config = DirectoryConfig {
        tenants: vec![
            tenant(
                "game",
                vec![
                    principal(ALL, &all),
                    principal(HOST, &[Scope::ListingWrite]),
                    principal(JOINER, &[Scope::AttemptWrite, Scope::Read]),
                    principal(READER, &[Scope::Read]),
                    principal(OPERATOR, &[Scope::Operate]),
                    principal(METRICS, &[Scope::Metrics]),
                    principal(NOTHING, &[]),
                ],
            ),
            tenant("other", vec![principal(STRANGER, &all)]),
        ],
    };
    Directory::new(&config, &Limits::DEFAULT).unwrap()
}

struct Server {
    address: SocketAddr,
    store: Arc<FakeStore>,
    readiness: Arc<Readiness>,
    clock: ManualClock,
    wall: Arc<AtomicI64>,
    control: Control,
    shutdown: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Server {
    /// A public listener whose store refuses everything as unavailable until told otherwise.
    async fn start() -> Self {
        Self::with(Surface::Public, HttpOptions::default()).await
    }

    async fn with(surface: Surface, options: HttpOptions) -> Self {
        let store = Arc::new(FakeStore {
            script: Mutex::new(Box::new(|_| Box::pin(async { Err(Refusal::ServiceUnavailable) }))),
            seen: Mutex::default(),
        });
        let readiness = Arc::new(Readiness::new());
        readiness.set(ReadyState::Ready);
        let clock = ManualClock::new(Instant::from_millis(1_000));
        let wall = Arc::new(AtomicI64::new(WALL_MS));
        let control = Control::new(ControlParts {
            store: Arc::clone(&store) as _,
            telemetry: Arc::new(FakeTelemetry),
            times: Arc::new(FakeTimes(clock.clone(), Arc::clone(&wall))),
            readiness: Arc::clone(&readiness),
            directory: directory(),
            master_key: MasterKey::from_bytes([3; 32]),
            instance: InstanceId(0xabc),
            udp: UdpBody { endpoints: vec!["127.0.0.1:7777".to_owned()], probe_endpoints: Vec::new() },
            version: "9.9.9",
            options,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (shutdown, stop) = watch::channel(false);
        let served = control.clone();
        let task = tokio::spawn(async move { served.serve(surface, listener, stop).await });
        Self { address, store, readiness, clock, wall, control, shutdown, task }
    }

    fn script(&self, script: impl FnMut(&Transition) -> BoxFuture<Answer> + Send + 'static) {
        *self.store.script.lock().unwrap() = Box::new(script);
    }

    fn answer(&self, answer: Answer) {
        self.script(move |_| {
            let answer = answer.clone();
            Box::pin(async move { answer })
        });
    }

    /// What the store was asked since the last call.
    fn seen(&self) -> Vec<(Lane, Transition)> {
        std::mem::take(&mut *self.store.seen.lock().unwrap())
    }

    fn last(&self) -> Transition {
        self.seen().pop().expect("the store was asked").1
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// One request with the key of `who` and a JSON body, over a connection of its own.
    async fn call(&self, who: &str, method: &str, path: &str, body: &str) -> Answered {
        self.call_with(who, method, path, &[("idempotency-key", "k1")], body).await
    }

    async fn call_with(
        &self,
        who: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answered {
        let authorization = format!("Bearer {}", key(who));
        let mut all = vec![("authorization", authorization.as_str())];
        if !body.is_empty() {
            all.push(("content-type", "application/json"));
        }
        all.extend_from_slice(headers);
        self.send(method, path, &all, body.as_bytes()).await
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answered {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        let mut stream = self.connect().await;
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        // A server that refuses early may close before it read everything.
        let _ = stream.write_all(&bytes).await;
        Answered::parse(&to_end(&mut stream).await)
    }
}

/// Everything until the server closes; at most 5 s.
async fn to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut bytes)).await;
    // A reset ends a connection too.
    let _ = read.expect("the server closes within 5 s");
    bytes
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Answered {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Answered {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        };
        Self { status, headers: lines.map(header).collect(), body: body.to_owned() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|it| it.0 == name).map(|it| it.1.as_str())
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Checks that it is a problem with this status and code, and gives it.
    #[track_caller]
    fn problem(&self, status: u16, code: &str) -> rendezvous_shared::api::Problem {
        let problem: rendezvous_shared::api::Problem = serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.body));
        assert_eq!((self.status, problem.code.as_str()), (status, code), "{problem:?}");
        assert_eq!(problem.status, status);
        assert_eq!(problem.kind, "about:blank");
        assert!(!problem.title.is_empty() && !problem.detail.is_empty());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(self.header("retry-after").is_some(), status == 503 || status == 429);
        problem
    }
}
