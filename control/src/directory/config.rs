//! The directory as written in a configuration file.

use rendezvous_shared::limits::Limits;
use rendezvous_shared::store::Quotas;
use serde::{Deserialize, Serialize};

use super::Scope;

/// Bytes of the name of a tenant or a principal.
const NAME_LEN_MAX: usize = 64;

/// All tenants.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectoryConfig {
    /// Numbered by position.
    #[serde(default)]
    pub tenants: Vec<TenantConfig>,
}

/// A tenant.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// Unique, 1–64 bytes.
    pub name: String,
    /// For each of its principals, unless the principal has its own.
    #[serde(default)]
    pub quotas: Option<QuotaConfig>,
    /// Its principals.
    #[serde(default)]
    pub principals: Vec<PrincipalConfig>,
}

/// A principal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrincipalConfig {
    /// Unique in its tenant, 1–64 bytes.
    pub name: String,
    /// What it may do; nothing when left out.
    #[serde(default)]
    pub scopes: Vec<Scope>,
    /// At most two.
    #[serde(default)]
    pub keys: Vec<KeyConfig>,
    /// Its own quotas; what is left out is the tenant's.
    #[serde(default)]
    pub quotas: Option<QuotaConfig>,
}

/// An API key, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// The part after `rvk_`, unique over all tenants.
    pub id: String,
    /// BLAKE3 of the secret's text, 64 hexadecimal digits.
    pub secret_blake3: String,
}

/// Quotas; what is left out is inherited.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaConfig {
    /// Listings of one principal.
    #[serde(default)]
    pub listings_per_owner: Option<u32>,
    /// Listings of the tenant.
    #[serde(default)]
    pub listings_per_tenant: Option<u32>,
    /// Active attempts in the tenant.
    #[serde(default)]
    pub attempts_per_tenant: Option<u32>,
}

/// A field of the directory that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct DirectoryError {
    /// Its path, as in `tenants[0].principals[1].keys[0].id`.
    pub field: String,
    /// What it breaks.
    pub rule: &'static str,
}

impl DirectoryError {
    pub(super) const fn new(field: String, rule: &'static str) -> Self {
        Self { field, rule }
    }
}

/// Checks the names of one list: their lengths and that each stands there once.
pub(super) fn check_names<'a>(
    path: &str,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), DirectoryError> {
    let mut seen = std::collections::HashSet::new();
    for (index, name) in names.enumerate() {
        let error = |rule| Err(DirectoryError::new(format!("{path}[{index}].name"), rule));
        if name.is_empty() || name.len() > NAME_LEN_MAX || name.chars().any(char::is_control) {
            return error("expected 1 to 64 bytes without control characters");
        }
        if !seen.insert(name) {
            return error("stands there twice");
        }
    }
    Ok(())
}

pub(super) fn number(path: &str, index: usize) -> Result<u32, DirectoryError> {
    u32::try_from(index).map_err(|_| DirectoryError::new(path.to_owned(), "there are more than 2^32"))
}

/// The first of `layers` that sets a quota decides it, then `limits`.
pub(super) fn quotas(layers: &[Option<QuotaConfig>], limits: &Limits) -> Quotas {
    let pick = |field: fn(&QuotaConfig) -> Option<u32>, default| {
        layers.iter().flatten().find_map(field).unwrap_or(default)
    };
    Quotas {
        listings_per_owner: pick(|it| it.listings_per_owner, limits.listings_per_owner),
        listings_per_tenant: pick(|it| it.listings_per_tenant, limits.listings_per_tenant),
        attempts_per_tenant: pick(|it| it.attempts_per_tenant, limits.attempts_per_tenant),
    }
}
