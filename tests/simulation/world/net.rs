//! The network: sites behind NATs and firewalls, nodes with one socket each.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rand::RngExt;
use rand::rngs::SmallRng;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::time::Instant;

/// A node's index.
pub(crate) type NodeId = usize;

/// How long a mapping lasts that nothing is sent through.
const MAPPING_LIFETIME: Duration = Duration::from_secs(30);

/// What a site does to datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nat {
    /// Nothing comes in that was not invited, but by a mapping that is the same for all destinations.
    Restricted,
    /// Everything comes in through a mapping.
    Open,
    /// Another mapping for each destination, and nothing comes in uninvited.
    Dependent,
}

struct Mapping {
    node: NodeId,
    local_port: u16,
    destination: Option<SocketAddr>,
    external: SocketAddr,
    used_at: Instant,
    invited: BTreeMap<SocketAddr, Instant>,
}

/// A public address and what stands before it.
struct Site {
    v4: Ipv4Addr,
    nat: Nat,
    mappings: Vec<Mapping>,
    next_port: u16,
    cut_until: Instant,
}

/// A socket of a family.
struct Node {
    site: usize,
    v6: bool,
    /// Changes with a privacy address.
    v6_suffix: u16,
    port: u16,
    lan: Ipv4Addr,
}

/// Sites, nodes, and who was ever reached where.
#[derive(Default)]
pub(crate) struct Net {
    sites: Vec<Site>,
    nodes: Vec<Node>,
    /// Every source a node ever had. None is given twice.
    owners: BTreeMap<SocketAddr, NodeId>,
}

impl Net {
    /// Another site.
    pub(crate) fn add_site(&mut self, rng: &mut SmallRng) -> usize {
        let nat = match rng.random_range(0..10) {
            0..5 => Nat::Restricted,
            5..8 => Nat::Open,
            _ => Nat::Dependent,
        };
        let number = self.sites.len() as u8;
        self.sites.push(Site {
            v4: Ipv4Addr::new(20, 1, 1, number + 1),
            nat,
            mappings: Vec::new(),
            next_port: 20_000,
            cut_until: Instant::ZERO,
        });
        self.sites.len() - 1
    }

    /// Another node at `site`.
    pub(crate) fn add_node(&mut self, site: usize, v6: bool) -> NodeId {
        let number = self.nodes.len() as u16;
        let [high, low] = number.to_be_bytes();
        self.nodes.push(Node {
            site,
            v6,
            v6_suffix: 0,
            port: 40_000,
            lan: Ipv4Addr::new(10, site as u8, high, low),
        });
        self.nodes.len() - 1
    }

    /// How many sites there are.
    pub(crate) fn sites(&self) -> usize {
        self.sites.len()
    }

    /// Where `node` is.
    pub(crate) fn site_of(&self, node: NodeId) -> usize {
        self.nodes[node].site
    }

    /// Whether `node` speaks IPv6.
    pub(crate) fn is_v6(&self, node: NodeId) -> bool {
        self.nodes[node].v6
    }

    /// Where a neighbour reaches `node`.
    pub(crate) fn lan_of(&self, node: NodeId) -> Option<Endpoint> {
        let it = &self.nodes[node];
        (!it.v6).then(|| Endpoint::new(it.lan.into(), it.port))
    }

    /// The IPv6 address of `node` as everybody sees it.
    pub(crate) fn v6_of(&self, node: NodeId) -> Endpoint {
        let it = &self.nodes[node];
        Endpoint::new(v6_of(it.site, node, it.v6_suffix).into(), it.port)
    }

    /// Gives `node` another local port.
    pub(crate) fn change_port(&mut self, node: NodeId) {
        self.nodes[node].port += 1;
    }

    /// Makes a NAT forget all, and changes the IPv6 addresses behind it.
    pub(crate) fn rebind(&mut self, site: usize) {
        self.sites[site].mappings.clear();
        self.nodes.iter_mut().filter(|node| node.site == site).for_each(|node| node.v6_suffix += 1);
    }

    /// Cuts a site off.
    pub(crate) fn cut(&mut self, site: usize, until: Instant) {
        self.sites[site].cut_until = until;
    }

    /// Joins all sites again.
    pub(crate) fn heal(&mut self) {
        self.sites.iter_mut().for_each(|site| site.cut_until = Instant::ZERO);
    }

    /// Who was ever seen as `address`.
    pub(crate) fn owner(&self, address: SocketAddr) -> Option<NodeId> {
        let lan = || self.nodes.iter().position(|node| address.ip() == IpAddr::V4(node.lan));
        self.owners.get(&address).copied().or_else(lan)
    }

    /// The source that a datagram of `node` to `to` has once it left the site; nothing when the site is cut off.
    pub(crate) fn outbound(&mut self, now: Instant, node: NodeId, to: SocketAddr) -> Option<SocketAddr> {
        let it = &self.nodes[node];
        if is_lan(to) {
            return Some(SocketAddr::new(it.lan.into(), it.port));
        }
        if now < self.sites[it.site].cut_until || it.v6 != to.is_ipv6() {
            return None;
        }
        let (port, v6) = (it.port, it.v6.then(|| v6_of(it.site, node, it.v6_suffix)));
        let site = &mut self.sites[it.site];
        site.mappings.retain(|mapping| now.since(mapping.used_at) < MAPPING_LIFETIME);
        let destination = (site.nat == Nat::Dependent && v6.is_none()).then_some(to);
        let own =
            |it: &&mut Mapping| it.node == node && it.local_port == port && it.destination == destination;
        if let Some(mapping) = site.mappings.iter_mut().find(own) {
            mapping.used_at = now;
            mapping.invited.insert(to, now);
            return Some(mapping.external);
        }
        let external = v6.map_or_else(
            || {
                site.next_port += 1;
                SocketAddr::new(site.v4.into(), site.next_port)
            },
            |address| SocketAddr::new(address.into(), port),
        );
        let (invited, used_at) = (BTreeMap::from([(to, now)]), now);
        site.mappings.push(Mapping { node, local_port: port, destination, external, used_at, invited });
        self.owners.insert(external, node);
        Some(external)
    }

    /// Whom a datagram from `from` to `to` reaches.
    pub(crate) fn inbound(&self, now: Instant, from: SocketAddr, to: SocketAddr) -> Option<NodeId> {
        if is_lan(to) {
            let there = |node: &Node| IpAddr::V4(node.lan) == to.ip() && node.port == to.port();
            let node = self.nodes.iter().position(there)?;
            let neighbour = self
                .nodes
                .iter()
                .any(|it| IpAddr::V4(it.lan) == from.ip() && it.site == self.nodes[node].site);
            return neighbour.then_some(node);
        }
        if from.ip() == to.ip() {
            // No NAT here turns a datagram round.
            return None;
        }
        let (site, mapping) = self
            .sites
            .iter()
            .find_map(|site| Some((site, site.mappings.iter().find(|it| it.external == to)?)))?;
        let invited = mapping.invited.get(&from).is_some_and(|at| now.since(*at) < MAPPING_LIFETIME);
        let alive = now.since(mapping.used_at) < MAPPING_LIFETIME && now >= site.cut_until;
        let node = &self.nodes[mapping.node];
        let current = node.port == mapping.local_port
            && (!node.v6 || to.ip() == IpAddr::V6(v6_of(node.site, mapping.node, node.v6_suffix)));
        let open = site.nat == Nat::Open || invited;
        (alive && current && open).then_some(mapping.node)
    }

    /// Whether `one` and `other` can hear each other once introduced.
    pub(crate) fn can_meet(&self, one: NodeId, other: NodeId) -> bool {
        let (a, b) = (&self.nodes[one], &self.nodes[other]);
        if a.v6 != b.v6 {
            return false;
        }
        // Behind one NAT they meet on their own network, which both name.
        if a.v6 || a.site == b.site {
            return true;
        }
        let (a, b) = (self.sites[a.site].nat, self.sites[b.site].nat);
        a == Nat::Open || b == Nat::Open || (a == Nat::Restricted && b == Nat::Restricted)
    }
}

/// Whether it is an address of a site's own network.
pub(crate) fn is_lan(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V4(v4) if v4.is_private())
}

fn v6_of(site: usize, node: NodeId, suffix: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2600, site as u16 + 1, 0, 0, 0, 0, node as u16 + 1, suffix)
}
