//! Credentials as the machines take them, read from the bodies of the control plane.

use core::time::Duration;
use std::net::SocketAddr;

use rendezvous_shared::api::{AttemptResponse, PresenceBody, RegisterResponse};
use rendezvous_shared::credential::{KeyId, Secret};
use rendezvous_shared::endpoint::{Endpoint, Family};
use rendezvous_shared::id::{AttemptId, InstanceId};

/// An answer of the control plane whose credential cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer's {field} cannot be read")]
pub struct MalformedCredentials {
    field: &'static str,
}

/// A key id and its secret.
#[derive(Clone, Debug)]
pub struct RoleKey {
    /// The public name.
    pub id: KeyId,
    /// The secret.
    pub secret: Secret,
}

impl RoleKey {
    /// Reads 64 hexadecimal digits each.
    ///
    /// # Errors
    /// Which of the two is malformed.
    pub fn from_hex(id: &str, secret: &str) -> Result<Self, MalformedCredentials> {
        Ok(Self {
            id: KeyId::from_hex(id).ok_or(MalformedCredentials { field: "key_id" })?,
            secret: Secret::from_hex(secret).ok_or(MalformedCredentials { field: "secret" })?,
        })
    }

    /// The key of a presence, also as a renewal hands it out.
    ///
    /// # Errors
    /// Which field is malformed.
    pub fn from_presence(body: &PresenceBody) -> Result<Self, MalformedCredentials> {
        Self::from_hex(&body.key_id, &body.secret)
    }
}

/// What a machine knows of its own addresses, each with the port of the socket of its family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnAddresses {
    /// Where everybody sees it over IPv4: a global address of an interface of its own.
    pub v4: Option<Endpoint>,
    /// The same over IPv6.
    pub v6: Option<Endpoint>,
    /// Candidates within its own network; what is not private is left out.
    pub lan: [Option<Endpoint>; 2],
}

impl OwnAddresses {
    pub(crate) const fn in_family(&self, family: Family) -> Option<Endpoint> {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }
}

/// What a [`Host`](crate::host::Host) needs.
#[derive(Clone, Debug)]
pub struct HostCredentials {
    /// The presence key.
    pub key: RoleKey,
    /// The server instance that issued it.
    pub instance: InstanceId,
    /// The server's UDP endpoint.
    pub server: SocketAddr,
    /// How often to refresh presence, until the server says otherwise.
    pub refresh: Duration,
}

impl HostCredentials {
    /// From the answer to a registration; `server` is the endpoint chosen of those it names.
    ///
    /// # Errors
    /// Which field is malformed.
    pub fn from_response(body: &RegisterResponse, server: SocketAddr) -> Result<Self, MalformedCredentials> {
        Ok(Self {
            key: RoleKey::from_presence(&body.presence)?,
            instance: instance(&body.instance)?,
            server,
            refresh: Duration::from_millis(body.presence.refresh_ms),
        })
    }
}

/// What a [`Joiner`](crate::joiner::Joiner) needs.
#[derive(Clone, Debug)]
pub struct JoinerCredentials {
    /// The joiner's key.
    pub key: RoleKey,
    /// The attempt.
    pub attempt: AttemptId,
    /// The server instance that issued it.
    pub instance: InstanceId,
    /// The server's UDP endpoint.
    pub server: SocketAddr,
    /// Life of the attempt from now.
    pub lifetime: Duration,
    /// Candidates within the joiner's own network; what is not private is left out.
    pub lan: [Option<Endpoint>; 2],
}

impl JoinerCredentials {
    /// From the answer to the creation of an attempt; `server` is the endpoint chosen of those it names.
    ///
    /// # Errors
    /// Which field is malformed.
    pub fn from_response(body: &AttemptResponse, server: SocketAddr) -> Result<Self, MalformedCredentials> {
        Ok(Self {
            key: RoleKey::from_hex(&body.joiner.key_id, &body.joiner.secret)?,
            attempt: body.id,
            instance: instance(&body.instance)?,
            server,
            lifetime: Duration::from_millis(body.ttl_ms),
            lan: [None; 2],
        })
    }
}

fn instance(text: &str) -> Result<InstanceId, MalformedCredentials> {
    u64::from_str_radix(text, 16).map(InstanceId).map_err(|_| MalformedCredentials { field: "instance" })
}
