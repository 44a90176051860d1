//! Kinds of NAT, as rulesets.

use crate::ground::SERVER_4;

/// What a router does to what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nat {
    /// One outside port for each inside port; anybody may send to it.
    FullCone,
    /// One outside port for each inside port; addresses that were sent to may send to it.
    AddressRestricted,
    /// One outside port for each inside port; endpoints that were sent to may send to it.
    PortRestricted,
    /// A new outside port for each destination; only that destination may send to it.
    EndpointDependent,
}

impl Nat {
    /// All kinds, from the most open to the least.
    pub(crate) const ALL: [Self; 4] =
        [Self::FullCone, Self::AddressRestricted, Self::PortRestricted, Self::EndpointDependent];

    /// As the page calls it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::FullCone => "full cone",
            Self::AddressRestricted => "address-restricted",
            Self::PortRestricted => "port-restricted",
            Self::EndpointDependent => "endpoint-dependent",
        }
    }
}

/// A router with NAT for IPv4, and a firewall that lets in what was asked for, also for IPv6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) nat: Nat,
    /// A host behind it reaches another by the outside address.
    pub(crate) hairpin: bool,
    /// No UDP passes.
    pub(crate) udp_blocked: bool,
    /// Of 100 datagrams of the server so many are lost.
    pub(crate) loss_percent: u8,
    /// Outside ports are taken from here; kept as they are when there is no such range.
    pub(crate) ports: Option<(u16, u16)>,
}

impl Rules {
    pub(crate) const fn of(nat: Nat) -> Self {
        Self { nat, hairpin: false, udp_blocked: false, loss_percent: 0, ports: None }
    }

    /// The ruleset of a router whose outside address is `wan`; it replaces the one before.
    pub(crate) fn ruleset(self, wan: &str) -> String {
        // The NAT keeps a port that is free, so the table of mappings is filled from what goes out.
        let from_outside = match self.nat {
            Nat::FullCone => "iifname \"wan\" meta l4proto udp dnat to udp dport map @mapped",
            Nat::AddressRestricted => {
                "iifname \"wan\" meta l4proto udp ip saddr @contacted dnat to udp dport map @mapped"
            }
            Nat::PortRestricted | Nat::EndpointDependent => "",
        };
        let hairpin_in =
            format!("iifname \"lan\" ip daddr {wan} meta l4proto udp dnat to udp dport map @mapped");
        let hairpin_out = format!("iifname \"lan\" oifname \"lan\" snat to {wan}");
        let when = |wanted: bool, rule: &str| if wanted { rule.to_owned() } else { String::new() };
        let ports = self.ports.map_or(String::new(), |(low, high)| format!("to :{low}-{high}"));
        let random = if self.nat == Nat::EndpointDependent { "fully-random" } else { "" };
        let loss = format!(
            "iifname \"wan\" meta l4proto udp ip saddr {SERVER_4} numgen random mod 100 < {} drop",
            self.loss_percent
        );
        format!(
            "flush ruleset
            table ip nat {{
                map mapped {{ type inet_service : ipv4_addr; size 4096; flags dynamic,timeout; timeout 5m; }}
                set contacted {{ type ipv4_addr; size 4096; flags dynamic,timeout; timeout 5m; }}
                chain prerouting {{
                    type nat hook prerouting priority dstnat;
                    {from_outside}
                    {hairpin_in}
                }}
                chain postrouting {{
                    type nat hook postrouting priority srcnat;
                    oifname \"wan\" meta l4proto udp add @mapped {{ udp sport : ip saddr }}
                    oifname \"wan\" meta l4proto udp add @contacted {{ ip daddr }}
                    oifname \"wan\" meta l4proto udp masquerade {ports} {random}
                    oifname \"wan\" masquerade
                    {hairpin_out}
                }}
            }}
            table inet filter {{
                chain lossy {{
                    type filter hook prerouting priority -310;
                    {loss}
                }}
                chain input {{
                    type filter hook input priority filter; policy drop;
                    meta l4proto {{ icmp, ipv6-icmp }} accept
                    ct state established,related accept
                }}
                chain forward {{
                    type filter hook forward priority filter; policy drop;
                    {blocked}
                    ct state established,related accept
                    iifname \"lan\" oifname \"wan\" accept
                    ct status dnat accept
                }}
            }}",
            hairpin_in = when(self.hairpin, &hairpin_in),
            hairpin_out = when(self.hairpin, &hairpin_out),
            loss = when(self.loss_percent > 0, &loss),
            blocked = when(self.udp_blocked, "meta l4proto udp drop"),
        )
    }
}
