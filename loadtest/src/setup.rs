//! Tenants and keys for the plan, and the configuration of a server that knows them.

use std::path::Path;

use data_encoding::BASE32_NOPAD;
use serde::{Deserialize, Serialize};

use crate::cli::SmokeArgs;
use crate::exit::Failure;

/// Hosts of one tenant: enough to try quotas per tenant, few enough for several tenants.
const HOSTS_PER_TENANT: u32 = 250;
const TENANTS_MIN: u32 = 2;
/// Two clients of each tenant with at least one connection stay below the 32 connections the server takes of one
/// address, with room for the scrape.
const TENANTS_MAX: u32 = 12;
/// Connections to the public API in all.
const CONNECTIONS: u32 = 24;

/// The keys of one tenant.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantKeys {
    /// With the scope `listing:write`.
    pub(crate) hosts: String,
    /// With the scope `attempt:write`.
    pub(crate) joiners: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeysFile {
    tenants: Vec<TenantKeys>,
}

/// Connections that each of two clients of each of `tenants` may hold.
pub(crate) fn connections_per_client(tenants: usize) -> usize {
    (CONNECTIONS as usize / (2 * tenants.max(1))).max(1)
}

/// The keys of a server that runs already.
pub(crate) fn read_keys(path: &Path) -> Result<Vec<TenantKeys>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", path.display())))?;
    // The error of the parser would quote the line, which holds a key.
    let file: KeysFile = toml::from_str(&text).map_err(|_| {
        Failure::Usage(format!("{}: expected [[tenants]], each with hosts and joiners", path.display()))
    })?;
    let count = u32::try_from(file.tenants.len()).unwrap_or(u32::MAX);
    if !(1..=TENANTS_MAX).contains(&count) {
        return Err(Failure::Usage(format!("{}: expected 1 to {TENANTS_MAX} tenants", path.display())));
    }
    Ok(file.tenants)
}

#[derive(Serialize)]
struct Config {
    listen: Listen,
    dataplane: Dataplane,
    limits: Limits,
    tenants: Vec<Tenant>,
}

#[derive(Serialize)]
struct Listen {
    http: &'static str,
    admin: &'static str,
    udp: &'static str,
}

#[derive(Serialize)]
struct Dataplane {
    engine: &'static str,
}

#[derive(Serialize)]
struct Limits {
    listings: u32,
    listing_records: u32,
    attempts: u32,
    attempt_records: u32,
    attempt_results: u32,
}

#[derive(Serialize)]
struct Tenant {
    name: String,
    quotas: Quotas,
    principals: [Principal; 2],
}

#[derive(Serialize)]
struct Quotas {
    listings_per_owner: u32,
    listings_per_tenant: u32,
    attempts_per_tenant: u32,
}

#[derive(Serialize)]
struct Principal {
    name: &'static str,
    scopes: &'static [&'static str],
    keys: [Key; 1],
}

#[derive(Serialize)]
struct Key {
    id: String,
    secret_blake3: String,
}

/// A configuration for the plan, as TOML without any secret, and the keys it knows. Quotas of listings are exactly
/// what the plan needs, so that a count that leaks shows; the seed decides how attempts spread, so each tenant may
/// have all of them.
pub(crate) fn make(args: &SmokeArgs) -> Result<(String, Vec<TenantKeys>), Failure> {
    let count = args.hosts.div_ceil(HOSTS_PER_TENANT).clamp(TENANTS_MIN, TENANTS_MAX);
    let listings = args.hosts.div_ceil(count);
    let (mut tenants, mut keys) = (Vec::new(), Vec::new());
    for index in 0..count {
        let (hosts, hosts_entry) = key()?;
        let (joiners, joiners_entry) = key()?;
        tenants.push(Tenant {
            name: format!("load-{index}"),
            quotas: Quotas {
                listings_per_owner: listings,
                listings_per_tenant: listings,
                attempts_per_tenant: args.joiners,
            },
            principals: [
                Principal { name: "hosts", scopes: &["listing:write"], keys: [hosts_entry] },
                Principal { name: "joiners", scopes: &["attempt:write", "read"], keys: [joiners_entry] },
            ],
        });
        keys.push(TenantKeys { hosts, joiners });
    }
    let any = "127.0.0.1:0";
    let config = Config {
        listen: Listen { http: any, admin: any, udp: any },
        dataplane: Dataplane { engine: args.engine.name() },
        // The product's defaults, or what the plan needs where that is more.
        limits: Limits {
            listings: args.hosts.max(25_000),
            listing_records: args.hosts.max(50_000),
            attempts: args.joiners.max(10_000),
            attempt_records: args.joiners.max(40_000),
            attempt_results: args.joiners.max(20_000),
        },
        tenants,
    };
    let text = toml::to_string(&config).map_err(|error| Failure::Internal(error.to_string()))?;
    Ok((text, keys))
}

/// A new key as its holder needs it, and as the configuration holds it.
fn key() -> Result<(String, Key), Failure> {
    let (mut id, mut secret) = ([0; 10], [0; 32]);
    let refused = |error: getrandom::Error| Failure::Internal(format!("no randomness: {error}"));
    getrandom::fill(&mut id).map_err(refused)?;
    getrandom::fill(&mut secret).map_err(refused)?;
    let text = |bytes: &[u8]| BASE32_NOPAD.encode(bytes).to_ascii_lowercase();
    let (id, secret) = (text(&id), text(&secret));
    let secret_blake3 = blake3::hash(secret.as_bytes()).to_hex().to_string();
    Ok((format!("rvk_{id}_{secret}"), Key { id, secret_blake3 }))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Plan};

    #[test]
    fn the_configuration_holds_fingerprints_and_no_secret() {
        let Plan::Smoke(args) = Cli::parse_from(["t", "smoke"]).plan;
        let (text, keys) = make(&args).unwrap();
        assert_eq!(keys.len(), 4);
        assert!(text.contains("listings_per_tenant = 250"), "{text}");
        for key in &keys {
            let (id, secret) = key.hosts.strip_prefix("rvk_").unwrap().split_once('_').unwrap();
            assert!(text.contains(id) && !text.contains(secret));
            assert!(text.contains(blake3::hash(secret.as_bytes()).to_hex().as_str()));
        }
    }

    #[test]
    fn connections_stay_below_the_servers_ceiling() {
        for tenants in 1..=TENANTS_MAX as usize {
            assert!(connections_per_client(tenants) * 2 * tenants < 32);
        }
    }
}
