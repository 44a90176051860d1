//! Cookies: stateless proof that an address can be reached, for one key at one address and port.
//!
//! A cookie defends against forged sources; it authenticates nobody. Its secret changes every minute and is
//! derived from the instance's master key, so two are live at a time and none outlives the instance.

use std::hash::Hasher;

use rendezvous_shared::credential::{KeyId, MasterKey};
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::limits::{COOKIE_FUTURE_MAX, COOKIE_SECRET_LIFETIME, PROOF_AGE_MAX};
use rendezvous_shared::outcome::DatagramOutcome;
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::Cookie;
use siphasher::sip128::{Hasher128, SipHasher24};
use subtle::ConstantTimeEq;
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U64;

const DOMAIN: &[u8; 16] = b"rendezvous/1 cky";
const EPOCH_MS: u64 = COOKIE_SECRET_LIFETIME.as_millis() as u64;
/// Domain, key id, address, port, time, listener.
const COVERED: usize = DOMAIN.len() + KeyId::LEN + 16 + 2 + 8 + 2;

/// Makes and checks the cookies of one listener.
#[derive(Debug)]
pub struct Cookies {
    master: MasterKey,
    /// The port of the listener: a cookie of one is no cookie of another.
    listener: u16,
    /// The secrets of two minutes, by the parity of the minute.
    secrets: [(u64, [u8; 16]); 2],
}

impl Cookies {
    /// For the listener on port `listener` of this instance.
    #[must_use]
    pub fn new(master: &MasterKey, listener: u16) -> Self {
        let master = MasterKey::from_bytes(master.subkey("cookies", listener.into()));
        let secrets = [0, 1].map(|epoch| (epoch, secret_of(&master, epoch)));
        Self { master, listener, secrets }
    }

    /// A cookie for `key_id` at `endpoint`, issued at `now`.
    pub fn issue(&mut self, now: Instant, key_id: &KeyId, endpoint: Endpoint) -> Cookie {
        let issued_ms = now.as_millis();
        let epoch = issued_ms / EPOCH_MS;
        let cached = &mut self.secrets[(epoch % 2) as usize];
        if cached.0 != epoch {
            *cached = (epoch, secret_of(&self.master, epoch));
        }
        let secret = cached.1;
        Cookie { issued_ms: U64::new(issued_ms), mac: self.mac(&secret, issued_ms, key_id, endpoint) }
    }

    /// When a current cookie of ours was issued.
    ///
    /// # Errors
    /// `StaleCookie` when its time is out of range, `BadCookie` when it is not ours for this key and endpoint.
    pub fn check(
        &self,
        now: Instant,
        key_id: &KeyId,
        endpoint: Endpoint,
        cookie: &Cookie,
    ) -> Result<Instant, DatagramOutcome> {
        let issued_ms = cookie.issued_ms.get();
        let issued = Instant::from_millis(issued_ms);
        if now.since(issued) > PROOF_AGE_MAX || issued.since(now) > COOKIE_FUTURE_MAX {
            return Err(DatagramOutcome::StaleCookie);
        }
        let epoch = issued_ms / EPOCH_MS;
        let (cached, secret) = self.secrets[(epoch % 2) as usize];
        let secret = if cached == epoch { secret } else { secret_of(&self.master, epoch) };
        let ours = self.mac(&secret, issued_ms, key_id, endpoint).ct_eq(&cookie.mac);
        if ours.into() { Ok(issued) } else { Err(DatagramOutcome::BadCookie) }
    }

    fn mac(&self, secret: &[u8; 16], issued_ms: u64, key_id: &KeyId, endpoint: Endpoint) -> [u8; 16] {
        let mut covered = [0; COVERED];
        let mut rest = covered.as_mut_slice();
        for part in [
            DOMAIN.as_slice(),
            key_id.as_bytes(),
            &endpoint.ip_bytes(),
            &endpoint.port().to_be_bytes(),
            &issued_ms.to_be_bytes(),
            &self.listener.to_be_bytes(),
        ] {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
        let mut hasher = SipHasher24::new_with_key(secret);
        hasher.write(&covered);
        hasher.finish128().as_bytes()
    }
}

fn secret_of(master: &MasterKey, epoch: u64) -> [u8; 16] {
    let mut secret = [0; 16];
    secret.copy_from_slice(&master.subkey("cookie secret", epoch)[..16]);
    secret
}

#[cfg(test)]
mod tests {
    use super::*;
    use rendezvous_shared::id::{Handle, InstanceId, Role, TenantId};

    fn key_id(handle: u64) -> KeyId {
        KeyId::new(Role::Host, TenantId(1), InstanceId(2), Handle(handle), Instant::MAX)
    }

    fn at(port: u16) -> Endpoint {
        Endpoint::new([127, 0, 0, 1].into(), port)
    }

    #[test]
    fn a_cookie_is_for_one_key_at_one_address_of_one_listener() {
        let master = MasterKey::from_bytes([3; 32]);
        let mut cookies = Cookies::new(&master, 7777);
        let now = Instant::from_millis(1_000_000);
        let cookie = cookies.issue(now, &key_id(1), at(4000));
        assert_eq!(cookies.check(now, &key_id(1), at(4000), &cookie), Ok(now));
        assert_eq!(cookies.check(now, &key_id(2), at(4000), &cookie), Err(DatagramOutcome::BadCookie));
        assert_eq!(cookies.check(now, &key_id(1), at(4001), &cookie), Err(DatagramOutcome::BadCookie));
        let other = Cookies::new(&master, 7778);
        assert_eq!(other.check(now, &key_id(1), at(4000), &cookie), Err(DatagramOutcome::BadCookie));
        let other = Cookies::new(&MasterKey::from_bytes([4; 32]), 7777);
        assert_eq!(other.check(now, &key_id(1), at(4000), &cookie), Err(DatagramOutcome::BadCookie));
    }

    #[test]
    fn a_cookie_lasts_thirty_seconds_across_a_change_of_secret() {
        let mut cookies = Cookies::new(&MasterKey::from_bytes([3; 32]), 7777);
        let check = |cookies: &Cookies, issued: u64, now: u64, cookie: &Cookie| {
            let found = cookies.check(Instant::from_millis(now), &key_id(1), at(4000), cookie);
            assert!(found.is_err() || found == Ok(Instant::from_millis(issued)));
            found.is_ok()
        };
        for issued in (0..400_000).step_by(7_001) {
            let cookie = cookies.issue(Instant::from_millis(issued), &key_id(1), at(4000));
            // Others ask for cookies meanwhile; the secret may change under this one.
            cookies.issue(Instant::from_millis(issued + 29_000), &key_id(9), at(4009));
            assert!(check(&cookies, issued, issued + 30_000, &cookie), "{issued}");
            assert!(!check(&cookies, issued, issued + 30_001, &cookie), "{issued}");
            if issued >= 2_001 {
                assert!(check(&cookies, issued, issued - 2_000, &cookie), "{issued}");
                assert!(!check(&cookies, issued, issued - 2_001, &cookie), "{issued}");
            }
        }
    }
}
