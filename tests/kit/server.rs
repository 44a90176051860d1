//! A real server process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::http::{self, Response};
use crate::metrics::Scrape;
use crate::process::Running;

/// The API key that test servers are started with.
pub const KEY: &str = "rvk_testtesttesttest_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// A server with the development tenant, ready.
pub struct Server {
    /// Its process.
    pub process: Running,
    /// What it printed until it was ready.
    pub banner: Vec<String>,
    /// Its public API.
    pub http: SocketAddr,
    /// Its admin API.
    pub admin: SocketAddr,
    /// Its UDP socket.
    pub udp: SocketAddr,
    binary: PathBuf,
}

impl Server {
    /// Starts `binary` on free loopback ports.
    ///
    /// # Panics
    /// When it does not get ready.
    #[must_use]
    pub fn start(binary: impl AsRef<Path>) -> Self {
        let free = "127.0.0.1:0".parse().expect("an address");
        Self::start_at(binary.as_ref(), [free; 3], &[])
    }

    /// Starts `binary` at the addresses of HTTP, admin and UDP, with further arguments.
    ///
    /// # Panics
    /// When it does not get ready.
    #[must_use]
    pub fn start_at(binary: &Path, addresses: [SocketAddr; 3], arguments: &[&str]) -> Self {
        let [http, admin, udp] = addresses.map(|it| it.to_string());
        let mut command = Command::new(binary);
        command.args(["serve", "--http", &http, "--admin", &admin, "--udp", &udp]).args(arguments);
        command.env("RENDEZVOUS_DEV_KEY", KEY).env_remove("RUST_LOG");
        Self::watch(Running::spawn("server", &mut command), binary)
    }

    /// Waits until `process`, a server by whatever means, is ready at the addresses it prints.
    ///
    /// # Panics
    /// When it does not get ready.
    #[must_use]
    pub fn watch(mut process: Running, binary: &Path) -> Self {
        process.expect(Duration::from_secs(20), "ready", |line| line == "ready");
        let banner = process.seen().to_vec();
        let address = |label: &str| {
            let line = banner.iter().find_map(|line| line.trim_start().strip_prefix(label));
            let word = line.and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
            let text = word.trim_start_matches("http://");
            text.parse().unwrap_or_else(|_| panic!("no address behind {label:?} in {banner:#?}"))
        };
        let (http, admin, udp) = (address("http "), address("admin "), address("udp "));
        Self { process, banner, http, admin, udp, binary: binary.into() }
    }

    /// Kills it with SIGKILL and starts it again at the same addresses.
    pub fn restart(&mut self) {
        self.process.kill();
        *self = Self::start_at(&self.binary.clone(), [self.http, self.admin, self.udp], &[]);
    }

    /// The URL of its public API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.http)
    }

    /// Its figures.
    #[must_use]
    pub fn metrics(&self) -> Scrape {
        Scrape::of(self.admin)
    }

    /// Calls its public API with the development key.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn call(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Response {
        call(self.http, method, path, headers, body)
    }

    /// Starts `rendezvous host` against it.
    #[must_use]
    pub fn host(&self, arguments: &[&str]) -> Running {
        self.peer("host", arguments)
    }

    /// Starts `rendezvous join` against it.
    #[must_use]
    pub fn join(&self, arguments: &[&str]) -> Running {
        self.peer("join", arguments)
    }

    fn peer(&self, what: &str, arguments: &[&str]) -> Running {
        let mut command = Command::new(&self.binary);
        command.args([what, "--server", &self.url()]).args(arguments);
        command.env("RENDEZVOUS_KEY", KEY).env_remove("RUST_LOG");
        Running::spawn(what, &mut command)
    }
}

/// Calls the public API at `http` with the development key.
///
/// # Panics
/// When it does not answer.
#[must_use]
pub fn call(http: SocketAddr, method: &str, path: &str, headers: &[&str], body: &str) -> Response {
    let authorization = format!("Authorization: Bearer {KEY}");
    let mut all = vec![authorization.as_str()];
    all.extend(headers);
    http::request(http, method, path, &all, body).expect("the public listener answers")
}
