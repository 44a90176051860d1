//! Socket addresses and control messages as the kernel lays them out, written and read as plain bytes: no `unsafe`,
//! no alignment to keep.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for the longest name, a `sockaddr_in6`.
pub(crate) const NAME_LEN: usize = size_of::<libc::sockaddr_in6>();
/// Room for what a receive may carry: IPV6_PKTINFO (40) and SO_RXQ_OVFL (24).
pub(crate) const CONTROL_LEN: usize = 64;
/// Room for what a send may carry: IPV6_PKTINFO.
pub(crate) const SEND_CONTROL_LEN: usize = 40;

const CMSG_HEADER_LEN: usize = size_of::<usize>() + 8;
const CMSG_ALIGN: usize = size_of::<usize>();

/// Address family of a socket: which form addresses given to it take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(address: SocketAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// Writes `to` as a `sockaddr` for a socket of `family`; returns its length. A socket of IPv6 takes IPv4 addresses
/// as `::ffff:a.b.c.d`; an IPv6 address on an IPv4 socket is written as it is, for the kernel to refuse.
pub(crate) fn encode_name(to: SocketAddr, family: Family, out: &mut [u8; NAME_LEN]) -> usize {
    let v6 = match (to, family) {
        (SocketAddr::V4(v4), Family::V4) => {
            out[0..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            out[2..4].copy_from_slice(&v4.port().to_be_bytes());
            out[4..8].copy_from_slice(&v4.ip().octets());
            out[8..16].fill(0);
            return size_of::<libc::sockaddr_in>();
        }
        (SocketAddr::V4(v4), Family::V6) => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0),
        (SocketAddr::V6(v6), _) => v6,
    };
    out[0..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
    out[2..4].copy_from_slice(&v6.port().to_be_bytes());
    out[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
    out[8..24].copy_from_slice(&v6.ip().octets());
    out[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
    NAME_LEN
}

/// Reads a `sockaddr`; `::ffff:a.b.c.d` comes out as IPv4. `None` if it is no address of either family.
pub(crate) fn decode_name(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk::<2>()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk::<2>()?);
    if family == libc::AF_INET as u16 {
        let ip = Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?);
        return Some(SocketAddr::V4(SocketAddrV4::new(ip, port)));
    }
    if family != libc::AF_INET6 as u16 {
        return None;
    }
    let flow = u32::from_ne_bytes(*bytes.get(4..)?.first_chunk::<4>()?);
    let ip = Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?);
    let scope = u32::from_ne_bytes(*bytes.get(24..)?.first_chunk::<4>()?);
    Some(match ip.to_ipv4_mapped() {
        Some(v4) => SocketAddr::V4(SocketAddrV4::new(v4, port)),
        None => SocketAddr::V6(SocketAddrV6::new(ip, port, flow, scope)),
    })
}

/// The control messages of one received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Control {
    /// Canonical local address, from the packet info.
    pub(crate) local: Option<IpAddr>,
    /// SO_RXQ_OVFL: datagrams the socket dropped up to this one, modulo 2^32. The kernel leaves it out while it is 0.
    pub(crate) drops: Option<u32>,
}

/// Reads the control messages of a receive; unknown ones are passed over.
pub(crate) fn decode_control(mut bytes: &[u8]) -> Control {
    let mut control = Control::default();
    while let Some((level, kind, data, rest)) = next_message(bytes) {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                control.drops = data.first_chunk().map(|count| u32::from_ne_bytes(*count));
            }
            // in_pktinfo: interface index, local address to answer from, address in the header. The second equals
            // the third for a unicast datagram and stays usable as a source for a broadcast one.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                control.local = data.get(4..).and_then(|d| d.first_chunk::<4>()).map(|ip| IpAddr::from(*ip));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                control.local = data.first_chunk::<16>().map(|ip| IpAddr::from(*ip).to_canonical());
            }
            _ => {}
        }
        bytes = rest;
    }
    control
}

/// Writes the packet info that makes a datagram leave from `from`; returns its length.
pub(crate) fn encode_source(from: IpAddr, family: Family, out: &mut [u8; SEND_CONTROL_LEN]) -> usize {
    out.fill(0);
    // The interface index stays 0: routing chooses it, and a link-local destination carries its own scope.
    let (level, kind, data_len) = match (family, from) {
        (Family::V4, IpAddr::V4(ip)) => {
            out[CMSG_HEADER_LEN + 4..CMSG_HEADER_LEN + 8].copy_from_slice(&ip.octets());
            (libc::IPPROTO_IP, libc::IP_PKTINFO, 12)
        }
        (_, from) => {
            let ip = match from {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            out[CMSG_HEADER_LEN..CMSG_HEADER_LEN + 16].copy_from_slice(&ip.octets());
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, 20)
        }
    };
    let len = CMSG_HEADER_LEN + data_len;
    out[..CMSG_ALIGN].copy_from_slice(&len.to_ne_bytes());
    out[CMSG_ALIGN..CMSG_ALIGN + 4].copy_from_slice(&level.to_ne_bytes());
    out[CMSG_ALIGN + 4..CMSG_HEADER_LEN].copy_from_slice(&kind.to_ne_bytes());
    len.next_multiple_of(CMSG_ALIGN)
}

/// Splits the first control message off: level, type, data, the rest.
fn next_message(bytes: &[u8]) -> Option<(i32, i32, &[u8], &[u8])> {
    let len = usize::from_ne_bytes(*bytes.first_chunk::<{ size_of::<usize>() }>()?);
    let level = i32::from_ne_bytes(*bytes.get(CMSG_ALIGN..)?.first_chunk::<4>()?);
    let kind = i32::from_ne_bytes(*bytes.get(CMSG_ALIGN + 4..)?.first_chunk::<4>()?);
    let data = bytes.get(CMSG_HEADER_LEN..len)?;
    let rest = bytes.get(len.next_multiple_of(CMSG_ALIGN)..).unwrap_or_default();
    Some((level, kind, data, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str, family: Family) -> SocketAddr {
        let mut name = [0xaa; NAME_LEN];
        let len = encode_name(text.parse().unwrap(), family, &mut name);
        decode_name(&name[..len]).unwrap()
    }

    #[test]
    fn names_come_back_canonical() {
        for (text, family) in [
            ("192.0.2.1:3478", Family::V4),
            ("192.0.2.1:3478", Family::V6),
            ("[2001:db8::1]:65535", Family::V6),
            ("[fe80::1%3]:7", Family::V6),
        ] {
            assert_eq!(round_trip(text, family).to_string(), text);
        }
        assert_eq!(decode_name(&[0; NAME_LEN]), None);
        assert_eq!(decode_name(&[]), None);
        assert_eq!(decode_name(&(libc::AF_INET6 as u16).to_ne_bytes()), None);
    }

    #[test]
    fn packet_info_comes_back_canonical() {
        for (text, family) in
            [("127.0.0.2", Family::V4), ("127.0.0.2", Family::V6), ("2001:db8::7", Family::V6)]
        {
            let from: IpAddr = text.parse().unwrap();
            let mut control = [0xaa; SEND_CONTROL_LEN];
            let len = encode_source(from, family, &mut control);
            assert_eq!(decode_control(&control[..len]), Control { local: Some(from), drops: None });
        }
    }

    #[test]
    fn damaged_control_ends_the_reading() {
        let mut control = [0; SEND_CONTROL_LEN];
        let len = encode_source("127.0.0.2".parse().unwrap(), Family::V4, &mut control);
        for cut in 0..len - 4 {
            assert_eq!(decode_control(&control[..cut]), Control::default(), "cut at {cut}");
        }
        control[..8].copy_from_slice(&usize::MAX.to_ne_bytes());
        assert_eq!(decode_control(&control), Control::default());
        control[..8].copy_from_slice(&0_usize.to_ne_bytes());
        assert_eq!(decode_control(&control), Control::default());
    }
}
