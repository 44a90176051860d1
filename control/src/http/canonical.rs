//! Unambiguous bytes for what a request means, and hashes of them: idempotency fingerprints and cursors.

use axum::http::HeaderMap;
use rendezvous_shared::id::ListingId;
use rendezvous_shared::limits::IDEMPOTENCY_KEY_LEN_MAX;
use rendezvous_shared::store::{
    BrowseListings, Caller, Filter, IdempotencyKey, ListingDescription, Visibility,
};
use subtle::ConstantTimeEq;

use super::problem::ApiError;

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const CURSOR_LEN: usize = 32;

/// Hashes fields each with its length or presence in front, so no two requests of different meaning are
/// written alike.
pub(crate) struct Canonical(blake3::Hasher);

impl Canonical {
    /// For what `domain` names.
    pub(crate) fn new(domain: &str) -> Self {
        Self(blake3::Hasher::new()).text(domain)
    }

    fn keyed(key: &[u8; 32], domain: &str) -> Self {
        Self(blake3::Hasher::new_keyed(key)).text(domain)
    }

    pub(crate) fn number(mut self, number: u64) -> Self {
        self.0.update(&number.to_be_bytes());
        self
    }

    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        let mut this = self.number(bytes.len() as u64);
        this.0.update(bytes);
        this
    }

    pub(crate) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn optional(self, text: Option<&str>) -> Self {
        match text {
            None => self.number(0),
            Some(text) => self.number(1).text(text),
        }
    }

    fn pairs<'a>(self, count: u64, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        pairs.fold(self.number(count), |this, (key, value)| this.text(key).text(value))
    }

    pub(crate) fn description(self, it: &ListingDescription) -> Self {
        let pairs = it.attributes();
        let count = pairs.clone().count() as u64;
        self.text(it.protocol())
            .text(it.name())
            .number(u64::from(it.visibility() == Visibility::Unlisted))
            .number(u64::from(it.player_capacity()))
            .pairs(count, pairs)
            .optional(it.slot())
    }

    fn filter(self, it: &Filter) -> Self {
        // 0 stands for absence: neither bound can be 0 once validated.
        let pairs = it.attributes.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        self.optional(it.name_prefix.as_deref())
            .pairs(it.attributes.len() as u64, pairs)
            .number(it.player_capacity_min.map_or(0, u64::from))
            .number(it.player_capacity_max.map_or(0, u64::from))
    }

    pub(crate) fn finish(self) -> [u8; 16] {
        let mut out = [0; 16];
        out.copy_from_slice(&self.0.finalize().as_bytes()[..16]);
        out
    }
}

/// The store's idempotency key for the header in `headers` and the fingerprint of a canonical request.
///
/// The key must be there once, of 1 to 128 visible ASCII characters.
pub(crate) fn idempotency(headers: &HeaderMap, request: Canonical) -> Result<IdempotencyKey, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(ApiError::IdempotencyKey);
    };
    let bytes = value.as_bytes();
    if bytes.is_empty() || bytes.len() > IDEMPOTENCY_KEY_LEN_MAX || !bytes.iter().all(u8::is_ascii_graphic) {
        return Err(ApiError::IdempotencyKey);
    }
    let key = Canonical::new("rendezvous/1 idempotency key").bytes(bytes).finish();
    Ok(IdempotencyKey { key, fingerprint: request.finish() })
}

/// Writes and reads cursors: an id and a MAC over it, the caller and what was asked. `limit` is not bound.
pub(crate) struct CursorKey([u8; 32]);

impl CursorKey {
    pub(crate) const fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    fn mac(&self, query: &BrowseListings, after: ListingId) -> [u8; 16] {
        let Caller { tenant, principal, .. } = query.caller;
        Canonical::keyed(&self.0, "rendezvous/1 cursor")
            .number(u64::from(tenant.0))
            .number(if query.owned { 1 + u64::from(principal.0) } else { 0 })
            .optional(query.protocol.as_deref())
            .filter(&query.filter)
            .bytes(&after.to_bytes())
            .finish()
    }

    /// The cursor that goes on with `query` after `after`.
    pub(crate) fn write(&self, query: &BrowseListings, after: ListingId) -> String {
        let mut bytes = [0; CURSOR_LEN];
        bytes[..16].copy_from_slice(&after.to_bytes());
        bytes[16..].copy_from_slice(&self.mac(query, after));
        data_encoding::BASE64URL_NOPAD.encode(&bytes)
    }

    /// Where `cursor` goes on, when it was written for the same caller and the same question.
    pub(crate) fn read(&self, query: &BrowseListings, cursor: &str) -> Result<ListingId, ApiError> {
        let bytes = data_encoding::BASE64URL_NOPAD.decode(cursor.as_bytes()).map_err(|_| ApiError::Cursor)?;
        let bytes: [u8; CURSOR_LEN] = bytes.try_into().map_err(|_| ApiError::Cursor)?;
        let (id, mac) = bytes.split_first_chunk::<16>().ok_or(ApiError::Cursor)?;
        let after = ListingId::from_bytes(*id);
        if self.mac(query, after).ct_eq(mac).into() { Ok(after) } else { Err(ApiError::Cursor) }
    }
}
