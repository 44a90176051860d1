//! The ground a pair plays on: a public segment with the server, routers on it, networks behind them.
//!
//! Every address of the public segment is global unicast, since the server runs with the policy `public`. They belong
//! to somebody out there, whom no packet of these namespaces can reach.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use rendezvous_control::directory::ApiKey;
use rendezvous_testkit::http::{self, Response};
use rendezvous_testkit::process::Running;
use rendezvous_testkit::server::KEY;

use crate::namespace::Namespace;
use crate::nat::Rules;
use crate::{BINARY, SOON};

/// The server's addresses.
pub(crate) const SERVER_4: &str = "11.0.0.1";
pub(crate) const SERVER_6: &str = "2a01:4f8::1";

/// The port of its datagrams.
const UDP_PORT: u16 = 7777;

/// Counts on the public segment. Of a datagram's payload byte 5, its type, is bits 104 to 111 from the UDP header on.
const WATCH: &str = "
    table inet watch {
        counter from_server { }
        counter strays { }
        counter between_peers { }
        counter to_old_port { }
        counter from_new_ports { }
        set proved_4 { type ipv4_addr . inet_service; size 4096; flags dynamic,timeout; timeout 1h; }
        set proved_6 { type ipv6_addr . inet_service; size 4096; flags dynamic,timeout; timeout 1h; }
        chain input {
            type filter hook input priority filter;
            udp dport 7777 @th,104,8 != 0x01 meta nfproto ipv4 add @proved_4 { ip saddr . udp sport }
            udp dport 7777 @th,104,8 != 0x01 meta nfproto ipv6 add @proved_6 { ip6 saddr . udp sport }
            udp dport 7777 udp sport 20000-29999 counter name from_new_ports
        }
        set old_ports { type inet_service; size 64; }
        chain output {
            type filter hook output priority filter;
            udp sport 7777 counter name from_server
            udp sport 7777 udp dport @old_ports counter name to_old_port
            udp sport 7777 @th,104,8 != 0x81 meta nfproto ipv4 ip daddr . udp dport != @proved_4 counter name strays
            udp sport 7777 @th,104,8 != 0x81 meta nfproto ipv6 ip6 daddr . udp dport != @proved_6 counter name strays
        }
        chain forward {
            type filter hook forward priority filter;
            meta l4proto udp counter name between_peers
        }
    }";

/// The public segment and the server on it.
pub(crate) struct Ground {
    /// Dropped before the namespace it runs in.
    _server: Running,
    _config: tempfile::NamedTempFile,
    pub(crate) public: Namespace,
    uplinks: u8,
}

/// A router and its own network.
pub(crate) struct Router {
    pub(crate) space: Namespace,
    /// Its outside address.
    pub(crate) wan: String,
    lan_4: String,
    lan_6: Option<String>,
    ports: u8,
}

/// A machine of a player.
pub(crate) struct Machine {
    space: Namespace,
    /// The control plane, as it reaches it.
    control: String,
}

impl Ground {
    /// A segment with a server that is ready.
    pub(crate) fn new() -> Self {
        let public = Namespace::new("public");
        public.ip(&format!("addr add {SERVER_4}/32 dev lo\naddr add {SERVER_6}/128 dev lo"));
        public.nft(WATCH);
        let config = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(config.path(), configuration()).expect("a file can be written");
        let mut command = Command::new(BINARY);
        command.arg("serve").arg("--config").arg(config.path()).env_remove("RUST_LOG");
        let mut server = public.within(|| Running::spawn("server", &mut command));
        server.expect(SOON, "ready", |line| line == "ready");
        Self { _server: server, _config: config, public, uplinks: 0 }
    }

    /// A router on the segment, with the network `lan`.0/24 behind it, and an IPv6 network of its own.
    pub(crate) fn router(&mut self, lan: &str, rules: Rules) -> Router {
        self.uplinks += 1;
        let n = self.uplinks;
        let space = Namespace::new("router");
        let uplink = format!("up{n}");
        self.public.link(&uplink, &space, "wan");
        self.public.ip(&format!(
            "addr add 11.0.{n}.1/24 dev {uplink}
            addr add 2a01:4f8:{n}::1/64 dev {uplink} nodad
            route add 2a01:4f8:10{n}::/64 via 2a01:4f8:{n}::2"
        ));
        space.ip(&format!(
            "addr add 11.0.{n}.2/24 dev wan
            addr add 2a01:4f8:{n}::2/64 dev wan nodad
            route add default via 11.0.{n}.1
            route add ::/0 via 2a01:4f8:{n}::1"
        ));
        let wan = format!("11.0.{n}.2");
        Router::new(space, wan, lan, Some(format!("2a01:4f8:10{n}:")), rules)
    }

    /// From now on so many of 100 datagrams that reach the segment are lost.
    pub(crate) fn lose(&self, percent: u8) {
        self.public.nft(&format!(
            "add chain inet watch lossy {{ type filter hook prerouting priority -310; }}
            add rule inet watch lossy iifname != \"lo\" meta l4proto udp numgen random mod 100 < {percent} drop"
        ));
    }

    /// Calls the control plane as a player with the test key would.
    pub(crate) fn call(&self, path: &str) -> Response {
        let authorization = format!("Authorization: Bearer {KEY}");
        let server: SocketAddr = format!("{SERVER_4}:7780").parse().expect("an address");
        let call = || http::request(server, "GET", path, &[&authorization], "");
        self.public.within(call).expect("the control plane answers")
    }

    /// From now on what the server sends to `endpoint`'s port counts as sent to an old port.
    pub(crate) fn watch_old_port(&self, endpoint: &str) {
        let port = endpoint.rsplit(':').next().expect("an endpoint has a port");
        self.public.nft(&format!("add element inet watch old_ports {{ {port} }}"));
    }
}

impl Router {
    fn new(space: Namespace, wan: String, lan_4: &str, lan_6: Option<String>, rules: Rules) -> Self {
        space.ip(&format!(
            "link add lan type bridge
            link set lan up
            addr add {lan_4}.1/24 dev lan"
        ));
        if let Some(lan_6) = &lan_6 {
            space.ip(&format!("addr add {lan_6}:1/64 dev lan nodad"));
        }
        space.nft(&rules.ruleset(&wan));
        Self { space, wan, lan_4: lan_4.to_owned(), lan_6, ports: 0 }
    }

    /// Other rules from now on.
    pub(crate) fn set(&self, rules: Rules) {
        self.space.nft(&rules.ruleset(&self.wan));
    }

    /// Loses all its mappings, as by a restart: masquerading forgets those of an interface that goes down.
    pub(crate) fn restart(&self, rules: Rules) {
        self.set(rules);
        let gateway = self.wan.rsplit_once('.').expect("an IPv4 address").0;
        self.space.ip(&format!(
            "link set wan down
            link set wan up
            route replace default via {gateway}.1"
        ));
    }

    /// A port of its network; returns its number.
    fn plug(&mut self, other: &Namespace, theirs: &str) -> u8 {
        self.ports += 1;
        let own = format!("port{}", self.ports);
        self.space.link(&own, other, theirs);
        self.space.ip(&format!("link set {own} master lan"));
        self.ports + 1
    }

    /// A router in this one's network, with the network `lan`.0/24 behind it; IPv4 only.
    pub(crate) fn router(&mut self, lan: &str, rules: Rules) -> Self {
        let space = Namespace::new("home");
        let n = self.plug(&space, "wan");
        let (wan, gateway) = (format!("{}.{n}", self.lan_4), format!("{}.1", self.lan_4));
        space.ip(&format!("addr add {wan}/24 dev wan\nroute add default via {gateway}"));
        Self::new(space, wan, lan, None, rules)
    }

    /// A machine in its network, with the families that `ipv4` and `ipv6` ask for.
    pub(crate) fn machine(&mut self, ipv4: bool, ipv6: bool) -> Machine {
        let space = Namespace::new("machine");
        let n = self.plug(&space, "eth");
        if ipv4 {
            let lan = &self.lan_4;
            space.ip(&format!("addr add {lan}.{n}/24 dev eth\nroute add default via {lan}.1"));
        }
        if let Some(lan) = self.lan_6.as_ref().filter(|_| ipv6) {
            space.ip(&format!("addr add {lan}:{n}/64 dev eth nodad\nroute add ::/0 via {lan}:1"));
        }
        let server = if ipv4 { SERVER_4.to_owned() } else { format!("[{SERVER_6}]") };
        Machine { space, control: format!("http://{server}:7780") }
    }
}

impl Machine {
    /// Starts `rendezvous host` or `rendezvous join` on it.
    pub(crate) fn start(&self, what: &str, arguments: &[&str]) -> Running {
        let mut command = Command::new(BINARY);
        command.args([what, "--server", &self.control, "--messages", "1", "--interval-ms", "50"]);
        command.args(arguments).env("RENDEZVOUS_KEY", KEY).env_remove("RUST_LOG");
        self.space.within(|| Running::spawn(what, &mut command))
    }

    /// Whether anything answers datagrams that prove nothing.
    pub(crate) fn is_answered(&self, datagrams: &[Vec<u8>]) -> bool {
        self.space.within(|| {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
            socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a time-out");
            for datagram in datagrams {
                socket.send_to(datagram, (SERVER_4, UDP_PORT)).expect("it is sent");
            }
            socket.recv_from(&mut [0; 64]).is_ok()
        })
    }
}

fn configuration() -> String {
    let key = ApiKey::parse(KEY).expect("the test key is one");
    let (id, fingerprint) = (key.id(), key.fingerprint().to_hex());
    format!(
        "[listen]
        http = '[::]:7780'
        insecure_http = true
        udp = '[::]:{UDP_PORT}'
        advertise = ['{SERVER_4}:{UDP_PORT}', '[{SERVER_6}]:{UDP_PORT}']
        [limits]
        listings = 100
        listing_records = 400
        attempts = 100
        attempt_records = 400
        attempt_results = 400
        [[tenants]]
        name = 'lab'
        [[tenants.principals]]
        name = 'players'
        scopes = ['listing:write', 'attempt:write', 'read']
        keys = [{{ id = '{id}', secret_blake3 = '{fingerprint}' }}]"
    )
}
