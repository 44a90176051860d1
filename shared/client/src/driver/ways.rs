//! Which of the server's endpoints to use, and what a machine can know of its own addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rendezvous_shared::api::UdpBody;
use rendezvous_shared::endpoint::{AddressPolicy, Endpoint, is_lan_candidate};

use super::{DriverError, Session};
use crate::credentials::OwnAddresses;
use crate::machine::Machine;

/// Endpoints of an answer, and addresses of a name, that are looked at.
const ENDPOINTS_MAX: usize = 4;

/// Which address families to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Families {
    /// Each that the server serves and this machine has a route in.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

impl Families {
    const fn take(self, address: &SocketAddr) -> bool {
        match self {
            Self::Any => true,
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
        }
    }
}

/// How a peer uses the networks it is in.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Which address families.
    pub families: Families,
    /// Whether to name its private addresses to a peer behind the same public address.
    pub lan: bool,
}

impl Default for Network {
    fn default() -> Self {
        Self { families: Families::Any, lan: true }
    }
}

/// The server's endpoints that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// IPv4 where there is a choice: behind a NAT a BIND from there is the one that can name the other.
    pub first: SocketAddr,
    /// Of the other family.
    pub second: Option<SocketAddr>,
}

/// The endpoints, one for each family of `families`, that resolve and that this machine has a route to.
///
/// # Errors
/// [`DriverError::NoEndpoint`] with what was tried.
pub async fn find_ways(udp: &UdpBody, families: Families) -> Result<Ways, DriverError> {
    let mut found = Vec::new();
    for endpoint in udp.endpoints.iter().take(ENDPOINTS_MAX) {
        match endpoint.parse() {
            Ok(address) => found.push(address),
            Err(_) => {
                found.extend(
                    tokio::net::lookup_host(endpoint).await.into_iter().flatten().take(ENDPOINTS_MAX),
                );
            }
        }
    }
    found.retain(|it| families.take(it) && source_towards(*it).is_some());
    found.sort_by_key(SocketAddr::is_ipv6);
    let first = found.first().copied().ok_or_else(|| DriverError::NoEndpoint(udp.endpoints.join(", ")))?;
    Ok(Ways { first, second: found.into_iter().find(|it| it.is_ipv4() != first.is_ipv4()) })
}

/// The first of the endpoints that can be used, IPv4 before IPv6.
///
/// # Errors
/// As of [`find_ways`].
pub async fn resolve(udp: &UdpBody) -> Result<SocketAddr, DriverError> {
    find_ways(udp, Families::Any).await.map(|ways| ways.first)
}

impl Ways {
    /// What is known of the addresses that the sockets of `session` have.
    ///
    /// Asked of the routes towards the server, not of the list of interfaces: that has the bridges of containers and
    /// virtual machines, too, where no peer is, and there is room for two candidates.
    pub fn own<M: Machine>(&self, session: &Session<M>, lan: bool) -> OwnAddresses {
        let mut own = OwnAddresses::default();
        for (server, candidate) in [Some(self.first), self.second].into_iter().zip(&mut own.lan) {
            let Some(server) = server else { continue };
            let Some((ip, port)) = source_towards(server).zip(session.local_port(server)) else { continue };
            let endpoint = Endpoint::new(ip, port);
            *candidate = Some(endpoint).filter(|it| lan && is_lan_candidate(*it));
            let global = Some(endpoint).filter(|it| AddressPolicy::Public.admits(it.ip()));
            if server.is_ipv4() {
                own.v4 = global;
            } else {
                own.v6 = global;
            }
        }
        own
    }
}

/// The address this machine would send from; `None` without a route. Sends nothing.
fn source_towards(server: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(server).ok()?;
    socket.local_addr().ok().map(|own| own.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::JoinerCredentials;
    use crate::driver::SystemClock;
    use crate::joiner::Joiner;
    use crate::{MalformedCredentials, RoleKey};
    use rendezvous_shared::api::{AttemptResponse, JoinerBody};
    use rendezvous_shared::time::Clock;

    fn udp(endpoints: &[&str]) -> UdpBody {
        UdpBody {
            endpoints: endpoints.iter().map(|it| (*it).to_owned()).collect(),
            probe_endpoints: Vec::new(),
        }
    }

    #[tokio::test]
    async fn each_family_that_is_wanted_and_served_is_a_way() {
        let both = udp(&["[::1]:7", "127.0.0.1:7", "127.0.0.2:7"]);
        let ways = |first: &str, second: Option<&str>| Ways {
            first: first.parse().unwrap(),
            second: second.map(|it| it.parse().unwrap()),
        };
        let found = find_ways(&both, Families::Any).await.unwrap();
        assert_eq!(found, ways("127.0.0.1:7", Some("[::1]:7")));
        assert_eq!(find_ways(&both, Families::V4).await.unwrap(), ways("127.0.0.1:7", None));
        assert_eq!(find_ways(&both, Families::V6).await.unwrap(), ways("[::1]:7", None));
        let error = find_ways(&udp(&["127.0.0.1:7"]), Families::V6).await.unwrap_err();
        assert!(error.is_transient(), "another network may have a route: {error}");
    }

    fn credentials() -> Result<JoinerCredentials, MalformedCredentials> {
        let text = "02".to_owned() + &"0".repeat(62);
        let RoleKey { id, secret } = RoleKey::from_hex(&text, &text)?;
        let body = AttemptResponse {
            id: rendezvous_shared::id::AttemptId::from_bytes([1; 16]),
            listing_id: rendezvous_shared::id::ListingId::from_bytes([1; 16]),
            joiner: JoinerBody { key_id: id.to_hex(), secret: secret.to_hex() },
            ttl_ms: 20_000,
            expires_at: String::new(),
            udp: udp(&[]),
            instance: "1".to_owned(),
        };
        JoinerCredentials::from_response(&body, "127.0.0.1:7".parse().unwrap())
    }

    #[tokio::test]
    async fn loopback_is_neither_a_candidate_nor_known_to_anybody() {
        let clock = SystemClock::start();
        let first = "127.0.0.1:7".parse().unwrap();
        let joiner = Joiner::new(credentials().unwrap(), 1, clock.now());
        let session = Session::bind(joiner, first, clock).await.unwrap();
        let ways = Ways { first, second: None };
        assert_eq!(ways.own(&session, true), OwnAddresses::default());
    }
}
