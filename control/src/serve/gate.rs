//! The ceilings on connections, in all and per address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{HttpOptions, Surface};

/// How connections fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFigures {
    /// Open now.
    pub open: u64,
    /// Closed at once: too many in all.
    pub refused_total: u64,
    /// Closed at once: too many of one address.
    pub refused_per_address: u64,
    /// Accepts that failed for a reason of ours, such as too few descriptors.
    pub accept_errors: u64,
}

#[derive(Default)]
struct Open {
    figures: ConnectionFigures,
    /// Only looked up, never iterated. Holds no address without a connection, so it is as bounded as they are.
    by_address: HashMap<IpAddr, usize>,
}

/// The gates of both surfaces: whatever crowds the public one, operators and health checks still get in.
#[derive(Clone)]
pub(crate) struct Gates {
    public: Arc<Gate>,
    admin: Arc<Gate>,
}

impl Gates {
    pub(crate) fn new(options: &HttpOptions) -> Self {
        let admin_max = options.admin_connections_max;
        Self {
            public: Arc::new(Gate::new(options.connections_max, options.connections_per_address_max)),
            // A monitoring host comes from one address; the ceiling of all is the only one here.
            admin: Arc::new(Gate::new(admin_max, admin_max)),
        }
    }

    pub(crate) fn of(&self, surface: Surface) -> &Arc<Gate> {
        match surface {
            Surface::Public => &self.public,
            Surface::Admin => &self.admin,
        }
    }

    /// Of both together.
    pub(crate) fn figures(&self) -> ConnectionFigures {
        let (public, admin) = (self.public.figures(), self.admin.figures());
        ConnectionFigures {
            open: public.open + admin.open,
            refused_total: public.refused_total + admin.refused_total,
            refused_per_address: public.refused_per_address + admin.refused_per_address,
            accept_errors: public.accept_errors + admin.accept_errors,
        }
    }
}

/// Counts the connections of one surface.
pub(crate) struct Gate {
    connections_max: usize,
    connections_per_address_max: usize,
    open: Mutex<Open>,
    accept_errors: AtomicU64,
}

impl Gate {
    pub(crate) fn new(connections_max: usize, connections_per_address_max: usize) -> Self {
        Self {
            connections_max,
            connections_per_address_max,
            open: Mutex::default(),
            accept_errors: AtomicU64::new(0),
        }
    }

    /// Takes a place for a connection of `ip`, until the permit is dropped; `None`, counted, when there is none.
    pub(crate) fn enter(gate: &Arc<Self>, ip: IpAddr) -> Option<Permit> {
        let address = network(ip);
        let mut open = gate.lock();
        if open.figures.open >= gate.connections_max as u64 {
            open.figures.refused_total += 1;
            return None;
        }
        let of_address = open.by_address.get(&address).copied().unwrap_or(0);
        if of_address >= gate.connections_per_address_max {
            open.figures.refused_per_address += 1;
            return None;
        }
        open.by_address.insert(address, of_address + 1);
        open.figures.open += 1;
        drop(open);
        Some(Permit { gate: Arc::clone(gate), address })
    }

    /// Counts it; returns how many there were before.
    pub(crate) fn count_accept_error(&self) -> u64 {
        self.accept_errors.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn figures(&self) -> ConnectionFigures {
        let figures = self.lock().figures;
        ConnectionFigures { accept_errors: self.accept_errors.load(Ordering::Relaxed), ..figures }
    }

    fn leave(&self, address: IpAddr) {
        let mut open = self.lock();
        open.figures.open -= 1;
        match open.by_address.get_mut(&address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                open.by_address.remove(&address);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        // Nothing within can panic half-way.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place.
pub(crate) struct Permit {
    gate: Arc<Gate>,
    address: IpAddr,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.leave(self.address);
    }
}

/// Whom a connection is counted for: an IPv4 address, or an IPv6 /64, all of which one subscriber has.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_ceiling_refuses_counts_and_gives_back() {
        let gate = Arc::new(Gate::new(3, 2));
        let first = Gate::enter(&gate, ip("192.0.2.1")).unwrap();
        let _second = Gate::enter(&gate, ip("::ffff:192.0.2.1")).unwrap();
        assert!(Gate::enter(&gate, ip("192.0.2.1")).is_none());
        let _third = Gate::enter(&gate, ip("2001:db8::1")).unwrap();
        assert!(Gate::enter(&gate, ip("2001:db8:1::1")).is_none());
        let figures = gate.figures();
        assert_eq!((figures.open, figures.refused_total, figures.refused_per_address), (3, 1, 1));
        drop(first);
        let _fourth = Gate::enter(&gate, ip("192.0.2.1")).unwrap();
        assert_eq!(gate.figures().open, 3);
    }

    #[test]
    fn a_v6_subscriber_is_one_address() {
        assert_eq!(network(ip("2001:db8::1")), network(ip("2001:db8::ffff:0:0:1")));
        assert_ne!(network(ip("2001:db8::1")), network(ip("2001:db8:0:1::1")));
    }

    #[test]
    fn no_address_stays_behind() {
        let gate = Arc::new(Gate::new(3, 2));
        let both = [Gate::enter(&gate, ip("192.0.2.1")), Gate::enter(&gate, ip("192.0.2.1"))];
        drop(both);
        assert!(gate.lock().by_address.is_empty());
        assert_eq!(gate.figures().open, 0);
    }
}
