//! Canonical addresses, and which of them may take part.

use core::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::labels;

labels! {
    /// Whether a client's NAT was seen to give it another port, or address, towards another destination.
    pub enum Mapping {
        /// Nobody looked.
        Unknown = "unknown",
        /// It did not: what one destination sees is where any peer reaches the client.
        Stable = "stable",
        /// It did: peers are seen from elsewhere than the server saw, and mostly cannot be met.
        Varies = "varies",
    }
}

impl Mapping {
    /// This, or `other` when nothing is known yet. What is known stays.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        match self {
            Self::Unknown => other,
            known => known,
        }
    }

    /// Itself, if it is known.
    #[must_use]
    pub fn known(self) -> Option<Self> {
        (self != Self::Unknown).then_some(self)
    }
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Internet Protocol version 4.
    V4,
    /// Internet Protocol version 6.
    V6,
}

/// An address and a port, canonical: `::ffff:a.b.c.d` is the IPv4 address, so there is one key in every table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    ip: IpAddr,
    port: u16,
}

impl Endpoint {
    /// The canonical endpoint of `ip` and `port`.
    #[must_use]
    pub const fn new(ip: IpAddr, port: u16) -> Self {
        Self { ip: ip.to_canonical(), port }
    }

    /// Its address, canonical.
    #[must_use]
    pub const fn ip(self) -> IpAddr {
        self.ip
    }

    /// Its port.
    #[must_use]
    pub const fn port(self) -> u16 {
        self.port
    }

    /// Its family.
    #[must_use]
    pub const fn family(self) -> Family {
        match self.ip {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    /// The address as 16 bytes, IPv4 in its mapped form; what cookies are computed over.
    #[must_use]
    pub const fn ip_bytes(self) -> [u8; 16] {
        match self.ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self::new(address.ip(), address.port())
    }
}

impl From<Endpoint> for SocketAddr {
    fn from(endpoint: Endpoint) -> Self {
        Self::new(endpoint.ip, endpoint.port)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&SocketAddr::from(*self), f)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which source addresses are served, and so introduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressPolicy {
    /// Only globally routable unicast addresses.
    Public,
    /// Private, unique-local and shared (carrier-grade NAT) ranges too.
    Lan,
    /// Loopback too; for development and tests.
    Test,
}

impl AddressPolicy {
    /// Whether `ip` may take part under this policy. An address that embeds an IPv4 address (mapped,
    /// compatible, NAT64, 6to4) is judged by both; one of Teredo is refused.
    #[must_use]
    pub fn admits(self, ip: IpAddr) -> bool {
        match ip.to_canonical() {
            IpAddr::V4(v4) => self.admits_v4(v4),
            IpAddr::V6(v6) => self.admits_v6(v6) && embedded_v4(v6).is_none_or(|v4| self.admits_v4(v4)),
        }
    }

    fn admits_v4(self, ip: Ipv4Addr) -> bool {
        let [a, b, c, _] = ip.octets();
        let never = ip.is_unspecified()
            || a == 0
            || ip.is_multicast()
            || a >= 240 // reserved, and limited broadcast
            || ip.is_link_local()
            || ip.is_documentation()
            || (a == 192 && b == 0 && c == 0) // protocol assignments
            || (a == 198 && (b & 0xfe) == 18); // benchmarking
        let shared = a == 100 && (b & 0xc0) == 64;
        match self {
            _ if never => false,
            Self::Test => true,
            Self::Lan => !ip.is_loopback(),
            Self::Public => !ip.is_loopback() && !ip.is_private() && !shared,
        }
    }

    fn admits_v6(self, ip: Ipv6Addr) -> bool {
        if ip.is_loopback() {
            return self == Self::Test;
        }
        let s = ip.segments();
        let never = ip.is_unspecified()
            || ip.is_multicast()
            || ip.is_unicast_link_local()
            || (s[0] & 0xffc0) == 0xfec0 // site-local, withdrawn
            || (s[0] == 0x2001 && s[1] == 0xdb8) // documentation
            || (s[0] == 0x3fff && s[1] < 0x1000) // documentation
            || (s[0] == 0x2001 && s[1] == 0) // Teredo
            || (s[0] == 0x100 && s[1] == 0 && s[2] == 0 && s[3] == 0); // discard only
        !never && (self != Self::Public || !ip.is_unique_local())
    }
}

/// The IPv4 address that a transition mechanism wrote into `ip`.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = ip.segments();
    let low = || Ipv4Addr::from(((u32::from(s[6])) << 16) | u32::from(s[7]));
    match s {
        [0, 0, 0, 0, 0, 0, high, lower] if high != 0 || lower > 1 => Some(low()), // IPv4-compatible
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Some(low()),                          // NAT64
        [0x2002, high, lower, ..] => Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(lower))), // 6to4
        _ => None,
    }
}

/// Whether a client may name `endpoint` as a candidate within its own network: private or unique-local, and a
/// port that no system service listens on.
#[must_use]
pub fn is_lan_candidate(endpoint: Endpoint) -> bool {
    let private = match endpoint.ip() {
        IpAddr::V4(v4) => v4.is_private(),
        IpAddr::V6(v6) => v6.is_unique_local(),
    };
    private && endpoint.port() >= crate::limits::SOURCE_PORT_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address() {
        let mapped = Endpoint::new(ip("::ffff:203.0.114.7"), 9);
        assert_eq!(mapped, Endpoint::new(ip("203.0.114.7"), 9));
        assert_eq!(mapped.family(), Family::V4);
        assert_eq!(mapped.ip_bytes()[10..12], [0xff, 0xff]);
    }

    #[test]
    fn policies_admit_what_they_say() {
        // address, public, lan, test
        let table = [
            ("8.8.8.8", true, true, true),
            ("2606:4700::1", true, true, true),
            ("192.168.1.2", false, true, true),
            ("100.64.0.1", false, true, true),
            ("fd00::1", false, true, true),
            ("64:ff9b::a00:1", false, true, true),
            ("2002:c0a8:102::1", false, true, true),
            ("127.0.0.1", false, false, true),
            ("::1", false, false, true),
            ("::ffff:127.0.0.1", false, false, true),
            ("64:ff9b::7f00:1", false, false, true),
            ("0.0.0.0", false, false, false),
            ("::", false, false, false),
            ("255.255.255.255", false, false, false),
            ("224.0.0.1", false, false, false),
            ("ff02::1", false, false, false),
            ("169.254.1.1", false, false, false),
            ("fe80::1", false, false, false),
            ("192.0.2.1", false, false, false),
            ("198.18.0.1", false, false, false),
            ("2001:db8::1", false, false, false),
            ("2001:0:1::1", false, false, false),
            ("::192.0.2.1", false, false, false),
        ];
        for (text, public, lan, test) in table {
            assert_eq!(AddressPolicy::Public.admits(ip(text)), public, "{text} public");
            assert_eq!(AddressPolicy::Lan.admits(ip(text)), lan, "{text} lan");
            assert_eq!(AddressPolicy::Test.admits(ip(text)), test, "{text} test");
        }
    }

    #[test]
    fn only_private_addresses_are_candidates() {
        assert!(is_lan_candidate(Endpoint::new(ip("10.1.2.3"), 40_000)));
        assert!(!is_lan_candidate(Endpoint::new(ip("10.1.2.3"), 53)));
        assert!(!is_lan_candidate(Endpoint::new(ip("8.8.8.8"), 40_000)));
        assert!(!is_lan_candidate(Endpoint::new(ip("127.0.0.1"), 40_000)));
    }
}
