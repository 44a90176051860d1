//! What one address, and the networks it is in, may have of answers to senders that proved nothing.
//!
//! The table has a fixed size and keeps no address: budgets lie where a keyed hash of the prefix points. Prefixes that
//! share a place share its budget; nobody has a second one. Ports do not count: whoever has an address has them all.

use std::hash::Hasher;
use std::net::IpAddr;

use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::limits::{SOURCE_BUDGETS, SOURCE_PLACES, SOURCE_PREFIXES_V4, SOURCE_PREFIXES_V6};
use rendezvous_shared::time::Instant;
use siphasher::sip::SipHasher24;

use crate::budget::{Budget, Debt};

/// Levels that are charged together, from the address to the largest network.
const LEVELS: usize = SOURCE_BUDGETS.len();

#[derive(Debug)]
pub(super) struct Sources {
    key: [u8; 16],
    budgets: [Budget; LEVELS],
    debts: [Box<[Debt]>; LEVELS],
}

impl Sources {
    pub(super) fn new(master: &MasterKey) -> Self {
        let mut key = [0; 16];
        key.copy_from_slice(&master.subkey("sources", 0)[..16]);
        Self {
            key,
            budgets: SOURCE_BUDGETS.map(|(per_second, burst)| Budget::new(per_second, burst)),
            debts: core::array::from_fn(|_| vec![Debt::default(); SOURCE_PLACES].into()),
        }
    }

    /// Whether `source` may have one more answer; charges the address and every network it is in, or none of them.
    pub(super) fn take(&mut self, now: Instant, source: Endpoint) -> bool {
        let places = self.places(source.ip());
        let allowed =
            (0..LEVELS).all(|level| self.budgets[level].allows(now, self.debts[level][places[level]]));
        if allowed {
            for (level, place) in places.into_iter().enumerate() {
                self.budgets[level].take(now, &mut self.debts[level][place]);
            }
        }
        allowed
    }

    /// Charges `source` for a datagram whose MAC was bad. Only the address pays: it proved itself, its networks
    /// did not.
    pub(super) fn charge(&mut self, now: Instant, source: Endpoint) {
        let place = self.place(0, source.ip());
        self.budgets[0].take(now, &mut self.debts[0][place]);
    }

    fn places(&self, ip: IpAddr) -> [usize; LEVELS] {
        core::array::from_fn(|level| self.place(level, ip))
    }

    /// Where the budget of `ip`'s network of that level lies.
    fn place(&self, level: usize, ip: IpAddr) -> usize {
        let (network, prefix) = match ip {
            IpAddr::V4(v4) => {
                let prefix = SOURCE_PREFIXES_V4[level];
                (u64::from(v4.to_bits()) >> (32 - prefix), prefix)
            }
            // What a client has is at least a /64; no prefix is longer.
            IpAddr::V6(v6) => {
                let prefix = SOURCE_PREFIXES_V6[level];
                (((v6.to_bits() >> 64) as u64) >> (64 - prefix), prefix + 128)
            }
        };
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u64(network);
        hasher.write_u32(prefix);
        hasher.finish() as usize % SOURCE_PLACES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(1_000_000);

    fn sources() -> Sources {
        Sources::new(&MasterKey::from_bytes([5; 32]))
    }

    fn at(text: &str) -> Endpoint {
        Endpoint::new(text.parse().unwrap(), 4_000)
    }

    fn taken(sources: &mut Sources, now: Instant, mut source: impl FnMut(u32) -> Endpoint) -> u32 {
        (0..100_000).filter(|i| sources.take(now, source(*i))).count() as u32
    }

    #[test]
    fn an_address_has_one_budget_whatever_its_port() {
        let burst = SOURCE_BUDGETS[0].1;
        let mut it = sources();
        let port = |i| Endpoint::new("9.1.2.3".parse().unwrap(), 1_024 + (i % 60_000) as u16);
        assert_eq!(taken(&mut it, NOW, port), burst);
        // Written as IPv6 it is the same address.
        assert!(!it.take(NOW, at("::ffff:9.1.2.3")));
        assert!(it.take(NOW, at("9.1.2.4")));
        assert!(it.take(NOW.after(core::time::Duration::from_secs(1)), at("9.1.2.3")));
    }

    #[test]
    fn a_client_of_ipv6_has_its_64_for_one_address() {
        let mut it = sources();
        let host = |i: u32| Endpoint::new(format!("2600:1:2:3::{:x}", i % 0xffff).parse().unwrap(), 4_000);
        assert_eq!(taken(&mut it, NOW, host), SOURCE_BUDGETS[0].1);
        assert!(it.take(NOW, at("2600:1:2:4::1")));
    }

    /// One more bit at a time: a network's addresses together get what the network may have.
    #[test]
    fn networks_pay_with_their_addresses() {
        for level in 1..LEVELS {
            let mut it = sources();
            let host = |i: u32| {
                let network = 32 - SOURCE_PREFIXES_V4[level];
                Endpoint::new(std::net::Ipv4Addr::from(0x0901_0000 | (i % (1 << network))).into(), 4_000)
            };
            let got = taken(&mut it, NOW, host);
            assert!(got <= SOURCE_BUDGETS[level].1, "/{}: {got}", SOURCE_PREFIXES_V4[level]);
            assert!(got >= SOURCE_BUDGETS[level].1 / 2, "/{}: {got}", SOURCE_PREFIXES_V4[level]);
            assert!(it.take(NOW, at("77.1.2.3")), "another network is not touched");
        }
        let mut it = sources();
        let host = |i: u32| {
            Endpoint::new(format!("2600:1:{:x}:{:x}::1", i >> 16, i & 0xffff).parse().unwrap(), 4_000)
        };
        let got = taken(&mut it, NOW, host);
        assert!(got <= SOURCE_BUDGETS[LEVELS - 1].1, "a /32 took {got}");
    }

    #[test]
    fn a_refused_answer_costs_no_network_anything() {
        let mut it = sources();
        taken(&mut it, NOW, |_| at("9.1.2.3"));
        let left = taken(&mut it, NOW, |i| at(&format!("9.1.2.{}", 4 + i % 200)));
        assert_eq!(left, SOURCE_BUDGETS[1].1 - SOURCE_BUDGETS[0].1);
    }

    #[test]
    fn bad_macs_cost_the_address_alone() {
        let mut it = sources();
        (0..1_000).for_each(|_| it.charge(NOW, at("9.1.2.3")));
        assert!(!it.take(NOW, at("9.1.2.3")));
        assert_eq!(taken(&mut it, NOW, |i| at(&format!("9.1.2.{}", 4 + i % 200))), SOURCE_BUDGETS[1].1);
    }
}
