//! Answers, as layouts with the secret that seals them; bytes only when they are written into an engine's buffer.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use rendezvous_shared::counter::Label;
use rendezvous_shared::credential::{Direction, PunchSecret, Secret};
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::{AttemptId, InstanceId};
use rendezvous_shared::limits::{PRESENCE_REFRESH, PUNCH_INTERVAL, PUNCHES_MAX, RESEND_INTERVAL};
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{Introduction, Notice, PresenceGrant};
use rendezvous_shared::wire::{
    self, Ack, AckFlags, BoundAnswer, BoundFlags, Challenge, Code, Cookie, Header, Introduce, Kind,
    WireEndpoint,
};
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::{U16, U32, U64};

use super::{Pending, RequestKind, SelfProbe};

/// A datagram to be sent.
#[derive(Clone, Debug)]
pub struct Answer {
    to: Endpoint,
    from: Option<IpAddr>,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    Challenge(Challenge),
    Ack(Ack, Secret),
    Notice(wire::Notice, Secret),
    Bound(BoundAnswer, Secret),
    Introduce(Introduce, Secret),
    SelfProbe([u8; SelfProbe::ANSWER_LEN]),
}

impl Answer {
    /// Where it goes: an address that proved itself, or the source of a HELLO.
    #[must_use]
    pub fn to(&self) -> SocketAddr {
        self.to.into()
    }

    /// The local address it should leave from; `None` when the socket is bound to one.
    #[must_use]
    pub const fn from(&self) -> Option<IpAddr> {
        self.from
    }

    /// Writes it into `out` and returns its length, at most `limits::ANSWER_LEN_MAX`.
    ///
    /// # Panics
    /// When `out` is shorter than that.
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let direction = Direction::ToClient;
        match &self.body {
            Body::Challenge(layout) => {
                let bytes = layout.as_bytes();
                out[..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            }
            Body::SelfProbe(bytes) => {
                out[..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            }
            Body::Ack(layout, secret) => wire::seal(layout, 0, direction, secret, out),
            Body::Notice(layout, secret) => wire::seal(layout, 0, direction, secret, out),
            Body::Bound(layout, secret) => wire::seal(layout, 0, direction, secret, out),
            Body::Introduce(layout, secret) => wire::seal(layout, 0, direction, secret, out),
        }
    }

    /// To the server itself, so to no address that has to prove anything.
    pub(super) fn self_probe(
        to: SocketAddr,
        from: Option<IpAddr>,
        answer: [u8; SelfProbe::ANSWER_LEN],
    ) -> Self {
        Self { to: to.into(), from, body: Body::SelfProbe(answer) }
    }

    pub(super) fn challenge(
        to: Endpoint,
        from: Option<IpAddr>,
        nonce: U64,
        instance: InstanceId,
        cookie: Cookie,
    ) -> Self {
        let header = Header::new(Kind::Challenge, size_of::<Challenge>());
        Self {
            to,
            from,
            body: Body::Challenge(Challenge { header, nonce, instance: U64::new(instance.0), cookie }),
        }
    }

    pub(super) fn presence(pending: &Pending, cookie: Cookie, grant: &PresenceGrant) -> Self {
        let mut ack = acknowledgement(pending, cookie);
        if grant.pending.is_some() {
            ack.flags |= AckFlags::ATTEMPT_PENDING;
        }
        if grant.draining {
            ack.flags |= AckFlags::DRAINING;
        }
        ack.lease_remaining_ms = millis(grant.lease_remaining);
        ack.presence_remaining_ms = millis(grant.presence_remaining);
        ack.refresh_ms = millis(PRESENCE_REFRESH);
        Self::to_sender(pending, Body::Ack(ack, pending.secret.clone()))
    }

    pub(super) fn reported(pending: &Pending, cookie: Cookie) -> Self {
        Self::to_sender(pending, Body::Ack(acknowledgement(pending, cookie), pending.secret.clone()))
    }

    pub(super) fn bound(
        pending: &Pending,
        attempt: AttemptId,
        cookie: Cookie,
        peer_bound: bool,
        remaining: Duration,
    ) -> Self {
        let mut bound = bound_answer(pending, attempt, cookie);
        if peer_bound {
            bound.flags |= BoundFlags::PEER_BOUND;
        }
        bound.remaining_ms = millis(remaining);
        bound.retry_ms = millis(RESEND_INTERVAL);
        Self::to_sender(pending, Body::Bound(bound, pending.secret.clone()))
    }

    /// A refusal, in the shape of the answer that was hoped for.
    pub(super) fn refusal(pending: &Pending, cookie: Cookie, refusal: Refusal) -> Self {
        let (code, detail) = code_of(refusal);
        let secret = pending.secret.clone();
        let body = match pending.request {
            RequestKind::Bind(attempt) => {
                let mut bound = bound_answer(pending, attempt, cookie);
                (bound.code, bound.detail) = (code as u8, detail);
                Body::Bound(bound, secret)
            }
            RequestKind::Presence | RequestKind::Bye | RequestKind::Report(_) => {
                let mut ack = acknowledgement(pending, cookie);
                (ack.code, ack.detail) = (code as u8, detail);
                Body::Ack(ack, secret)
            }
        };
        Self::to_sender(pending, body)
    }

    pub(super) fn notice(secret: Secret, cookie: Cookie, notice: &Notice, ordinal: u8) -> Self {
        let layout = wire::Notice {
            header: Header::new(Kind::Notice, wire::sealed_len::<wire::Notice>(0)),
            attempt: notice.attempt.to_bytes(),
            cookie,
            remaining_ms: millis(notice.remaining),
            ordinal,
            reserved: [0; 3],
        };
        Self { to: notice.endpoint, from: notice.local, body: Body::Notice(layout, secret) }
    }

    pub(super) fn introduce(
        to: Endpoint,
        from: Option<IpAddr>,
        secret: &Secret,
        punch: PunchSecret,
        cookie: Cookie,
        told: &Introduction,
    ) -> Self {
        let layout = Introduce {
            header: Header::new(Kind::Introduce, wire::sealed_len::<Introduce>(0)),
            attempt: told.attempt.to_bytes(),
            peer: Some(told.peer).into(),
            peer_second: told.peer_second.into(),
            lan: told.lan.map(WireEndpoint::from),
            punch_masked: secret.mask(told.attempt, punch).to_bytes(),
            start_in_ms: U16::new(u16::try_from(told.start_in.as_millis()).unwrap_or(u16::MAX)),
            retry_ms: U16::new(PUNCH_INTERVAL.as_millis() as u16),
            retry_max: PUNCHES_MAX,
            reserved: [0; 3],
            cookie,
        };
        Self { to, from, body: Body::Introduce(layout, secret.clone()) }
    }

    fn to_sender(pending: &Pending, body: Body) -> Self {
        Self { to: pending.source, from: pending.local, body }
    }
}

fn acknowledgement(pending: &Pending, cookie: Cookie) -> Ack {
    Ack {
        header: Header::new(Kind::Ack, wire::sealed_len::<Ack>(0)),
        session: U64::new(pending.session.0),
        sequence: U64::new(pending.sequence),
        cookie,
        code: Code::Ok as u8,
        detail: 0,
        flags: 0,
        reserved: 0,
        lease_remaining_ms: U32::ZERO,
        presence_remaining_ms: U32::ZERO,
        refresh_ms: U32::ZERO,
    }
}

fn bound_answer(pending: &Pending, attempt: AttemptId, cookie: Cookie) -> BoundAnswer {
    BoundAnswer {
        header: Header::new(Kind::Bound, wire::sealed_len::<BoundAnswer>(0)),
        session: U64::new(pending.session.0),
        sequence: U64::new(pending.sequence),
        attempt: attempt.to_bytes(),
        cookie,
        code: Code::Ok as u8,
        detail: 0,
        flags: 0,
        reserved: 0,
        remaining_ms: U32::ZERO,
        retry_ms: U32::ZERO,
    }
}

/// The code on the wire, and as detail the index of what the code leaves open, plus one.
fn code_of(refusal: Refusal) -> (Code, u8) {
    let detail = |index: usize| u8::try_from(index + 1).unwrap_or(u8::MAX);
    match refusal {
        // What a revocation removed is gone; who is barred learns it over HTTP.
        Refusal::NotFound | Refusal::Revoked => (Code::NotFound, 0),
        Refusal::Expired => (Code::Expired, 0),
        Refusal::Conflict(reason) => (Code::Conflict, detail(reason.index())),
        Refusal::StaleVersion { .. } | Refusal::StaleSequence => (Code::Conflict, 0),
        Refusal::CapacityExceeded(pool) => (Code::CapacityExceeded, detail(pool.index())),
        Refusal::QuotaExceeded(scope) => (Code::QuotaExceeded, detail(scope.index())),
        Refusal::Draining { .. } => (Code::Draining, 0),
        Refusal::ServiceUnavailable => (Code::ServiceUnavailable, 0),
    }
}

fn millis(duration: Duration) -> U32 {
    U32::new(u32::try_from(duration.as_millis()).unwrap_or(u32::MAX))
}
