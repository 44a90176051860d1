//! Who may call: tenants, principals, API keys, scopes and quotas, built from plain configuration.
//!
//! Only fingerprints of keys are kept. [`TenantId`]s are numbered by position; [`PrincipalId`]s by position
//! over the whole directory, so that one never names two principals even where the tenant is not looked at.

mod config;
mod key;

use std::collections::HashMap;

pub use config::{DirectoryConfig, DirectoryError, KeyConfig, PrincipalConfig, QuotaConfig, TenantConfig};
pub use key::{ApiKey, Fingerprint, MalformedKey};
use rendezvous_shared::id::{PrincipalId, TenantId};
use rendezvous_shared::limits::Limits;
use rendezvous_shared::store::{Caller, Quotas};
use serde::{Deserialize, Serialize};

/// Live keys of one principal: the old one and its successor while callers change over.
pub const KEYS_PER_PRINCIPAL_MAX: usize = 2;

/// A right of a principal. What is not granted is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// Publish, renew and remove listings; see the attempts at them.
    #[serde(rename = "listing:write")]
    ListingWrite,
    /// Create, read, report and cancel attempts.
    #[serde(rename = "attempt:write")]
    AttemptWrite,
    /// Browse and read listings.
    #[serde(rename = "read")]
    Read,
    /// Drain the server, see and end what others of the tenant own.
    #[serde(rename = "operate")]
    Operate,
    /// Read metrics and health detail where the admin listener asks for a key.
    #[serde(rename = "metrics")]
    Metrics,
}

/// An authenticated caller: who it is, what it may do and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// As the store knows it.
    pub caller: Caller,
    /// What its policy allows.
    pub quotas: Quotas,
    scopes: u8,
}

impl Identity {
    /// Whether it has at least one of `scopes`.
    #[must_use]
    pub fn has_any(&self, scopes: &[Scope]) -> bool {
        scopes.iter().any(|&scope| self.scopes & bit(scope) != 0)
    }
}

struct KeyEntry {
    fingerprint: Fingerprint,
    identity: Identity,
}

/// The directory. Immutable; a reload replaces it.
pub struct Directory {
    /// By key id. Only looked up, never iterated.
    keys: HashMap<String, KeyEntry>,
    principals: usize,
}

impl Directory {
    /// Builds the directory; quotas not set are those of `limits`.
    ///
    /// # Errors
    /// The first field that breaks a rule, with its path and the rule.
    pub fn new(config: &DirectoryConfig, limits: &Limits) -> Result<Self, DirectoryError> {
        let mut directory = Self { keys: HashMap::new(), principals: 0 };
        config::check_names("tenants", config.tenants.iter().map(|it| it.name.as_str()))?;
        for (index, tenant) in config.tenants.iter().enumerate() {
            let path = format!("tenants[{index}]");
            config::check_names(
                &format!("{path}.principals"),
                tenant.principals.iter().map(|it| it.name.as_str()),
            )?;
            let id = TenantId(config::number(&path, index)?);
            for (index, principal) in tenant.principals.iter().enumerate() {
                let quotas = config::quotas(&[principal.quotas, tenant.quotas], limits);
                directory.add(&format!("{path}.principals[{index}]"), id, principal, quotas)?;
            }
        }
        Ok(directory)
    }

    fn add(
        &mut self,
        path: &str,
        tenant: TenantId,
        principal: &PrincipalConfig,
        quotas: Quotas,
    ) -> Result<(), DirectoryError> {
        let id = PrincipalId(config::number(path, self.principals)?);
        self.principals += 1;
        let scopes = principal.scopes.iter().fold(0, |bits, &scope| bits | bit(scope));
        let operator = scopes & bit(Scope::Operate) != 0;
        let identity = Identity { caller: Caller { tenant, principal: id, operator }, quotas, scopes };
        if principal.keys.len() > KEYS_PER_PRINCIPAL_MAX {
            return Err(DirectoryError::new(format!("{path}.keys"), "at most 2 keys of one principal live"));
        }
        for (index, key) in principal.keys.iter().enumerate() {
            let path = format!("{path}.keys[{index}]");
            if !key::is_id(&key.id) {
                return Err(DirectoryError::new(format!("{path}.id"), key::ID_RULE));
            }
            let fingerprint = Fingerprint::from_hex(&key.secret_blake3).ok_or_else(|| {
                DirectoryError::new(format!("{path}.secret_blake3"), "expected 64 hexadecimal digits")
            })?;
            if self.keys.insert(key.id.clone(), KeyEntry { fingerprint, identity }).is_some() {
                return Err(DirectoryError::new(format!("{path}.id"), "is the id of another key"));
            }
        }
        Ok(())
    }

    /// The holder of `key`. An unknown id costs the same work as a wrong secret.
    #[must_use]
    pub fn authenticate(&self, key: &ApiKey) -> Option<Identity> {
        let entry = self.keys.get(key.id());
        let expected = entry.map_or(Fingerprint::NOBODY, |it| it.fingerprint);
        let matches = key.fingerprint().matches(&expected);
        entry.filter(|_| matches).map(|it| it.identity)
    }
}

const fn bit(scope: Scope) -> u8 {
    1 << scope as u8
}
