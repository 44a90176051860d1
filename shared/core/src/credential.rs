//! Credentials of the datagram path: a key id that speaks for itself, and the secret derived from it.
//!
//! Secrets are not stored anywhere: `secret = KDF(master key of this instance, key id)`. A datagram proves
//! possession by a MAC over all its other bytes. What a credential may do is the store's to say.
//!
//! All functions here are keyed BLAKE3 with a domain string of 16 bytes in front of what they cover.

use core::fmt;

use data_encoding::HEXLOWER_PERMISSIVE;
use subtle::ConstantTimeEq;
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::id::{AttemptId, Handle, InstanceId, Role, TenantId};
use crate::time::Instant;

/// Bytes of a MAC.
pub const MAC_LEN: usize = 16;

mod domain {
    pub(super) const KEY: &[u8; 16] = b"rendezvous/1 key";
    pub(super) const RIGHT: &[u8; 16] = b"rendezvous/1 rgt";
    pub(super) const TO_SERVER: &[u8; 16] = b"rendezvous/1 c2s";
    pub(super) const TO_CLIENT: &[u8; 16] = b"rendezvous/1 s2c";
    pub(super) const TO_PEER: &[u8; 16] = b"rendezvous/1 p2p";
    pub(super) const PEER_KEY: &[u8; 16] = b"rendezvous/1 pky";
    pub(super) const PUNCH: &[u8; 16] = b"rendezvous/1 pch";
    pub(super) const MASK: &[u8; 16] = b"rendezvous/1 msk";
    pub(super) const SUBKEY: &[u8; 16] = b"rendezvous/1 sub";
}

/// The direction of a datagram; covered by its MAC, so no datagram can be reflected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a client to the server.
    ToServer,
    /// From the server to a client.
    ToClient,
    /// From one peer to the other.
    ToPeer,
}

impl Direction {
    const fn domain(self) -> &'static [u8; 16] {
        match self {
            Self::ToServer => domain::TO_SERVER,
            Self::ToClient => domain::TO_CLIENT,
            Self::ToPeer => domain::TO_PEER,
        }
    }
}

/// Names a credential: 32 bytes, public, all the ring thread needs to derive the secret and the store needs to
/// find the object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct KeyId {
    role: u8,
    reserved: [u8; 3],
    tenant: U32,
    instance: U64,
    handle: U64,
    expires_ms: U64,
}

impl KeyId {
    /// Length in bytes.
    pub const LEN: usize = 32;

    /// The key of `role` for the object at `handle` (a host's listing, a joiner's attempt).
    #[must_use]
    pub fn new(role: Role, tenant: TenantId, instance: InstanceId, handle: Handle, expires: Instant) -> Self {
        Self {
            role: role as u8,
            reserved: [0; 3],
            tenant: U32::new(tenant.0),
            instance: U64::new(instance.0),
            handle: U64::new(handle.0),
            expires_ms: U64::new(expires.as_millis()),
        }
    }

    /// Its role; `None` when the byte is no role or a reserved byte is set.
    #[must_use]
    pub const fn role(&self) -> Option<Role> {
        match self.reserved {
            [0, 0, 0] => Role::from_byte(self.role),
            _ => None,
        }
    }

    /// The tenant it is scoped to.
    #[must_use]
    pub fn tenant(&self) -> TenantId {
        TenantId(self.tenant.get())
    }

    /// The instance that issued it.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        InstanceId(self.instance.get())
    }

    /// The object it is for.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle(self.handle.get())
    }

    /// When it ends, to the millisecond, on the issuing instance's clock.
    #[must_use]
    pub fn expires(&self) -> Instant {
        Instant::from_millis(self.expires_ms.get())
    }

    /// Its 64 hexadecimal digits, as given out over HTTP.
    #[must_use]
    pub fn to_hex(&self) -> String {
        HEXLOWER_PERMISSIVE.encode(self.as_bytes())
    }

    /// The key id those digits stand for.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        Self::read_from_bytes(&bytes).ok()
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyId")
            .field("role", &self.role())
            .field("tenant", &self.tenant())
            .field("instance", &self.instance())
            .field("handle", &self.handle())
            .field("expires_ms", &self.expires_ms.get())
            .finish()
    }
}

/// A derived secret of 32 bytes. Never printed, wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A secret from its bytes, as received over HTTP.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret those 64 hexadecimal digits stand for.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        Some(Self(bytes.try_into().ok()?))
    }

    /// Its hexadecimal digits, for the one HTTP answer that hands it out.
    #[must_use]
    pub fn to_hex(&self) -> String {
        HEXLOWER_PERMISSIVE.encode(&self.0)
    }

    /// The host's right in one attempt, derived from its presence secret.
    #[must_use]
    pub fn attempt_right(&self, attempt: AttemptId) -> Self {
        Self(keyed(&self.0, domain::RIGHT, &attempt.to_bytes()))
    }

    /// The MAC of `bytes` travelling in `direction`.
    #[must_use]
    pub fn mac(&self, direction: Direction, bytes: &[u8]) -> [u8; MAC_LEN] {
        truncate(&keyed(&self.0, direction.domain(), bytes))
    }

    /// Whether `mac` is the MAC of `bytes`; takes the same time whatever the answer.
    #[must_use]
    pub fn verify(&self, direction: Direction, bytes: &[u8], mac: &[u8; MAC_LEN]) -> bool {
        self.mac(direction, bytes).ct_eq(mac).into()
    }

    /// Hides, or uncovers, the punch secret of `attempt` for the holder of this role secret: the joiner's own, or the
    /// host's [right](Self::attempt_right) in the attempt.
    #[must_use]
    pub fn mask(&self, attempt: AttemptId, punch: PunchSecret) -> PunchSecret {
        let pad = keyed(&self.0, domain::MASK, &attempt.to_bytes());
        let mut bytes = punch.0;
        bytes.iter_mut().zip(pad).for_each(|(byte, pad)| *byte ^= pad);
        PunchSecret(bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What two introduced peers know and nobody else: they recognise each other by it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PunchSecret([u8; 16]);

impl PunchSecret {
    /// From its bytes on the wire, masked or not.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The key that peers compute MACs with: BLAKE3 of the domain string and the punch secret.
    #[must_use]
    pub fn peer_key(self) -> Secret {
        let mut hasher = blake3::Hasher::new();
        hasher.update(domain::PEER_KEY).update(&self.0);
        Secret(*hasher.finalize().as_bytes())
    }
}

impl fmt::Debug for PunchSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PunchSecret(..)")
    }
}

/// The root of every secret of one server instance: random at its start, never leaves the process.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct MasterKey([u8; 32]);

impl MasterKey {
    /// From 32 random bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret that belongs to `key_id`.
    #[must_use]
    pub fn secret(&self, key_id: &KeyId) -> Secret {
        Secret(keyed(&self.0, domain::KEY, key_id.as_bytes()))
    }

    /// The punch secret of `attempt`.
    #[must_use]
    pub fn punch_secret(&self, attempt: AttemptId) -> PunchSecret {
        PunchSecret(truncate(&keyed(&self.0, domain::PUNCH, &attempt.to_bytes())))
    }

    /// 32 bytes for another use within this instance, named by `purpose` and `number`.
    #[must_use]
    pub fn subkey(&self, purpose: &'static str, number: u64) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(domain::SUBKEY).update(&number.to_be_bytes()).update(purpose.as_bytes());
        *hasher.finalize().as_bytes()
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

fn keyed(key: &[u8; 32], domain: &[u8; 16], bytes: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(domain).update(bytes);
    *hasher.finalize().as_bytes()
}

fn truncate(hash: &[u8; 32]) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&hash[..16]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_id() -> KeyId {
        KeyId::new(Role::Host, TenantId(7), InstanceId(9), Handle(11), Instant::from_millis(13))
    }

    #[test]
    fn a_key_id_says_what_it_is() {
        let key_id = KeyId::from_hex(&key_id().to_hex()).unwrap();
        assert_eq!(key_id.role(), Some(Role::Host));
        assert_eq!(key_id.tenant(), TenantId(7));
        assert_eq!(key_id.instance(), InstanceId(9));
        assert_eq!(key_id.handle(), Handle(11));
        assert_eq!(key_id.expires(), Instant::from_millis(13));
    }

    #[test]
    fn direction_role_and_attempt_each_change_what_is_derived() {
        let master = MasterKey::from_bytes([1; 32]);
        let secret = master.secret(&key_id());
        let mac = secret.mac(Direction::ToServer, b"bytes");
        assert!(secret.verify(Direction::ToServer, b"bytes", &mac));
        assert!(!secret.verify(Direction::ToClient, b"bytes", &mac));
        assert!(!secret.verify(Direction::ToServer, b"Bytes", &mac));
        let attempt = AttemptId::new(1, Handle(2));
        assert!(!secret.attempt_right(attempt).verify(Direction::ToServer, b"bytes", &mac));
        let punch = master.punch_secret(attempt);
        assert_ne!(secret.mask(attempt, punch), punch);
        assert_eq!(secret.mask(attempt, secret.mask(attempt, punch)), punch);
    }

    #[test]
    fn no_secret_is_printed() {
        let master = MasterKey::from_bytes([0xab; 32]);
        let secret = master.secret(&key_id());
        let text = format!("{master:?} {secret:?} {:?}", master.punch_secret(AttemptId::new(0, Handle(0))));
        assert_eq!(text, "MasterKey(..) Secret(..) PunchSecret(..)");
    }
}
