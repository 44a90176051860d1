//! The fixed inputs of the vectors, and what is derived from them.

use std::collections::BTreeMap;

use rendezvous_shared::counter::Label;
use rendezvous_shared::credential::{KeyId, MasterKey, PunchSecret, Secret};
use rendezvous_shared::id::{AttemptId, Handle, InstanceId, ListingId, Role, TenantId};
use rendezvous_shared::outcome::{ConflictReason, Pool, QuotaScope};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{Code, ReportResult};

use crate::file::{IdVector, KeyIdVector, MaskVector, Vectors, hex};

/// The fixed inputs all vectors are made from.
pub(crate) struct World {
    pub(crate) master: MasterKey,
    pub(crate) host: KeyId,
    pub(crate) joiner: KeyId,
    pub(crate) listing: ListingId,
    pub(crate) attempt: AttemptId,
}

pub(crate) const MASTER: [u8; 32] = {
    let mut bytes = [0; 32];
    let mut at = 0;
    while at < 32 {
        bytes[at] = at as u8;
        at += 1;
    }
    bytes
};
pub(crate) const INSTANCE: InstanceId = InstanceId(0x1122_3344_5566_7788);
pub(crate) const TENANT: TenantId = TenantId(7);
pub(crate) const HOST_SESSION: u64 = 0xa1a2_a3a4_a5a6_a7a8;
pub(crate) const JOINER_SESSION: u64 = 0xb1b2_b3b4_b5b6_b7b8;

impl World {
    pub(crate) fn new() -> Self {
        let listing = ListingId::new(0x0123_4567_89ab_cdef, Handle(0x0000_0001_0000_002a));
        let attempt = AttemptId::new(0xfedc_ba98_7654_3210, Handle(0x0000_0003_0000_0011));
        let key_id = |role, handle, expires_ms| {
            KeyId::new(role, TENANT, INSTANCE, handle, Instant::from_millis(expires_ms))
        };
        Self {
            master: MasterKey::from_bytes(MASTER),
            host: key_id(Role::Host, listing.handle(), 86_460_000),
            joiner: key_id(Role::Joiner, attempt.handle(), 145_000),
            listing,
            attempt,
        }
    }

    /// The secret that the file calls `name`.
    pub(crate) fn secret(&self, name: &str) -> Secret {
        match name {
            "presence_secret" => self.master.secret(&self.host),
            "attempt_right" => self.master.secret(&self.host).attempt_right(self.attempt),
            "joiner_secret" => self.master.secret(&self.joiner),
            "peer_key" => self.punch().peer_key(),
            _ => panic!("no secret is called {name}"),
        }
    }

    pub(crate) fn punch(&self) -> PunchSecret {
        self.master.punch_secret(self.attempt)
    }

    pub(crate) fn masked(&self, secret: &str) -> [u8; 16] {
        self.secret(secret).mask(self.attempt, self.punch()).to_bytes()
    }

    pub(crate) fn key_id(&self, role: Role) -> KeyId {
        match role {
            Role::Host => self.host,
            Role::Joiner => self.joiner,
        }
    }

    pub(crate) fn vectors(&self) -> Vectors {
        Vectors {
            about: "Golden vectors of the rendezvous UDP protocol, version 1; see docs/protocol.md. Made by \
                    tests/golden.rs, made again from the page by tests/golden/check.py. All keys are examples."
                .into(),
            ids: self.ids(),
            keys: self.keys(),
            key_ids: vec![self.key_id_vector("host", Role::Host), self.key_id_vector("joiner", Role::Joiner)],
            masks: ["attempt_right", "joiner_secret"].map(|it| self.mask(it)).into(),
            datagrams: self.datagrams(),
            tables: tables(),
        }
    }

    pub(crate) fn ids(&self) -> Vec<IdVector> {
        let listings = [
            ListingId::new(0, Handle(0)),
            ListingId::new(u64::MAX, Handle(u64::MAX)),
            ListingId::new(0, Handle(1)),
            self.listing,
        ]
        .map(|it| IdVector { text: it.to_string(), bytes: hex(&it.to_bytes()) });
        let attempts = [AttemptId::new(0x0123_4567_89ab_cdef, Handle(0xfedc_ba98_7654_3210)), self.attempt]
            .map(|it| IdVector { text: it.to_string(), bytes: hex(&it.to_bytes()) });
        listings.into_iter().chain(attempts).collect()
    }

    pub(crate) fn keys(&self) -> BTreeMap<String, String> {
        let mut keys = BTreeMap::from([
            ("master_key".into(), hex(&MASTER)),
            ("attempt".into(), hex(&self.attempt.to_bytes())),
            ("host_key_id".into(), self.host.to_hex()),
            ("joiner_key_id".into(), self.joiner.to_hex()),
            ("punch_secret".into(), hex(&self.punch().to_bytes())),
        ]);
        for name in ["presence_secret", "attempt_right", "joiner_secret", "peer_key"] {
            keys.insert(name.into(), self.secret(name).to_hex());
        }
        keys
    }

    pub(crate) fn key_id_vector(&self, name: &str, role: Role) -> KeyIdVector {
        let key_id = self.key_id(role);
        KeyIdVector {
            name: name.into(),
            role: role as u64,
            tenant: u64::from(key_id.tenant().0),
            instance: key_id.instance().to_string(),
            handle: hex(&key_id.handle().0.to_be_bytes()),
            expires_ms: key_id.expires().as_millis(),
            hex: key_id.to_hex(),
        }
    }

    pub(crate) fn mask(&self, secret: &str) -> MaskVector {
        MaskVector {
            secret: secret.into(),
            attempt: hex(&self.attempt.to_bytes()),
            punch_secret: hex(&self.punch().to_bytes()),
            masked: hex(&self.masked(secret)),
        }
    }
}

fn tables() -> BTreeMap<String, BTreeMap<String, u64>> {
    fn table<L: Label>(first: u64) -> BTreeMap<String, u64> {
        L::ALL.iter().map(|it| (it.name().into(), it.index() as u64 + first)).collect()
    }
    BTreeMap::from([
        ("code".into(), table::<Code>(0)),
        ("detail_conflict".into(), table::<ConflictReason>(1)),
        ("detail_capacity_exceeded".into(), table::<Pool>(1)),
        ("detail_quota_exceeded".into(), table::<QuotaScope>(1)),
        ("report_result".into(), table::<ReportResult>(1)),
    ])
}
