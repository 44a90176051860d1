//! The rules each field keeps. The store takes typed values and relies on them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rendezvous_shared::api::{RegisterRequest, VisibilityBody};
use rendezvous_shared::limits;
use rendezvous_shared::store::{DescriptionParts, ListingDescription, Visibility};

use super::problem::ApiError;

/// A text of 1 to `len_max` bytes without control characters.
pub(crate) fn label(field: &str, text: &str, len_max: usize) -> Result<(), ApiError> {
    if text.is_empty() || text.len() > len_max || text.chars().any(char::is_control) {
        return Err(ApiError::field(
            field,
            format!("expected 1 to {len_max} bytes of UTF-8 without control characters"),
        ));
    }
    Ok(())
}

/// A number within `min..=max`.
pub(crate) fn number(field: &str, value: u64, min: u64, max: u64) -> Result<u64, ApiError> {
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(ApiError::field(field, format!("expected a number from {min} to {max}")))
    }
}

/// Milliseconds within `min..=max`.
pub(crate) fn duration_ms(
    field: &str,
    value: u64,
    min: Duration,
    max: Duration,
) -> Result<Duration, ApiError> {
    // Our own constants, far below 2^64 ms.
    let ms = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
    number(field, value, ms(min), ms(max)).map(Duration::from_millis)
}

/// A lease.
pub(crate) fn lease_ms(value: u64) -> Result<Duration, ApiError> {
    duration_ms("lease_ms", value, limits::LEASE_MIN, limits::LEASE_MAX)
}

/// A number of players.
pub(crate) fn players(field: &str, value: u64) -> Result<u32, ApiError> {
    let value = number(field, value, 1, u64::from(limits::PLAYERS_MAX))?;
    u32::try_from(value).map_err(|_| ApiError::Internal)
}

/// A number written in a query.
pub(crate) fn parse_number(field: &str, text: &str) -> Result<u64, ApiError> {
    let digits = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    digits
        .then(|| text.parse().ok())
        .flatten()
        .ok_or_else(|| ApiError::field(field, "expected a whole number"))
}

/// One attribute.
pub(crate) fn attribute(key: &str, value: &str) -> Result<(), ApiError> {
    // The key may itself be what breaks the rule, so the field names it only when it is printable.
    label("attributes", key, limits::ATTRIBUTE_KEY_LEN_MAX).map_err(|_| {
        ApiError::field("attributes", "expected keys of 1 to 64 bytes without control characters")
    })?;
    if value.len() > limits::ATTRIBUTE_VALUE_LEN_MAX {
        return Err(ApiError::field(
            format!("attributes.{key}"),
            format!("expected at most {} bytes", limits::ATTRIBUTE_VALUE_LEN_MAX),
        ));
    }
    Ok(())
}

fn attributes(attributes: BTreeMap<String, String>) -> Result<Vec<(String, String)>, ApiError> {
    if attributes.len() > limits::ATTRIBUTES_MAX {
        return Err(ApiError::field(
            "attributes",
            format!("expected at most {} attributes", limits::ATTRIBUTES_MAX),
        ));
    }
    attributes.iter().try_for_each(|(key, value)| attribute(key, value))?;
    // A BTreeMap gives them sorted by key, as the store wants them.
    Ok(attributes.into_iter().collect())
}

/// A joiner's note: shown to people, so only line breaks and tabs of all control characters.
pub(crate) fn note(text: String) -> Result<Arc<str>, ApiError> {
    let shown = |it: char| !it.is_control() || it == '\n' || it == '\t';
    if text.len() > limits::NOTE_LEN_MAX || !text.chars().all(shown) {
        return Err(ApiError::field(
            "note",
            format!("expected at most {} bytes without control characters", limits::NOTE_LEN_MAX),
        ));
    }
    Ok(text.into())
}

/// A registration's description and lease.
pub(crate) fn registration(request: RegisterRequest) -> Result<(ListingDescription, Duration), ApiError> {
    label("protocol", &request.protocol, limits::PROTOCOL_LEN_MAX)?;
    label("name", &request.name, limits::NAME_LEN_MAX)?;
    if let Some(slot) = &request.slot {
        label("slot", slot, limits::SLOT_LEN_MAX)?;
    }
    let parts = DescriptionParts {
        protocol: request.protocol,
        name: request.name,
        visibility: match request.visibility {
            VisibilityBody::Public => Visibility::Public,
            VisibilityBody::Unlisted => Visibility::Unlisted,
        },
        player_capacity: players("player_capacity", u64::from(request.player_capacity))?,
        attributes: attributes(request.attributes)?,
        slot: request.slot,
    };
    // Each part was checked above, with an answer that names it.
    let description = ListingDescription::new(&parts).map_err(|_| ApiError::Internal)?;
    let lease = request.lease_ms.map_or(Ok(limits::LEASE_DEFAULT), lease_ms)?;
    Ok((description, lease))
}
