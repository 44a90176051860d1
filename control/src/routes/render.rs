//! The store's replies as JSON bodies.

use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_TYPE, ETAG};
use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use rendezvous_shared::api;
use rendezvous_shared::counter::Label;
use rendezvous_shared::credential::KeyId;
use rendezvous_shared::endpoint::Mapping;
use rendezvous_shared::limits;
use rendezvous_shared::store::{
    AttemptGrant, AttemptView, DrainView, LeaseGrant, ListingGrant, ListingView, PendingAttempt, Phase,
    PhaseTimes, Visibility,
};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::ReportResult;
use serde::Serialize;

use super::App;
use crate::http::problem::ApiError;

const REPLAYED: &str = "idempotency-replayed";
static RFC3339_MS: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// `value` as a JSON answer.
pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => {
            (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            ApiError::Internal.into_response()
        }
    }
}

/// `response` with the lease's version as its entity tag.
pub(super) fn with_etag(mut response: Response, version: u64) -> Response {
    if let Ok(value) = HeaderValue::try_from(format!("\"{version}\"")) {
        response.headers_mut().insert(ETAG, value);
    }
    response
}

/// `response`, marked when it repeats an earlier one.
pub(super) fn with_replayed(mut response: Response, replayed: bool) -> Response {
    if replayed {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

fn ms(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl App {
    /// `deadline` by wall time; the same deadline always gives the same text.
    fn wall(&self, deadline: Instant) -> String {
        let offset = i64::try_from(deadline.as_millis()).unwrap_or(i64::MAX);
        let unix_ms = self.times.wall().unix_ms_at_zero.saturating_add(offset);
        let timestamp = Timestamp::from_millisecond(unix_ms).unwrap_or(Timestamp::MAX);
        RFC3339_MS.timestamp_to_string(&timestamp)
    }

    /// A lease; `remaining_ms` only where `now` is given.
    fn lease(&self, lease: &LeaseGrant, now: Option<Instant>) -> api::LeaseBody {
        api::LeaseBody {
            version: lease.version,
            ttl_ms: ms(lease.lifetime),
            remaining_ms: now.map(|now| ms(lease.deadline.since(now))),
            expires_at: self.wall(lease.deadline),
        }
    }

    fn presence(&self, key_id: &KeyId) -> api::PresenceBody {
        api::PresenceBody {
            key_id: key_id.to_hex(),
            secret: self.master_key.secret(key_id).to_hex(),
            refresh_ms: ms(limits::PRESENCE_REFRESH),
            ttl_ms: ms(limits::PRESENCE_LIFETIME),
            expires_at: self.wall(key_id.expires()),
        }
    }

    /// A listing as `view` shows it, with the owner's part for its owner.
    pub(super) fn listing(&self, view: &ListingView, now: Instant) -> api::ListingBody {
        let presence_end = view.presence_deadlines.iter().flatten().max();
        api::ListingBody {
            lease: view.owned.then(|| self.lease(&view.lease, Some(now))),
            presence_remaining_ms: presence_end
                .filter(|_| view.owned)
                .map(|&deadline| ms(deadline.since(now))),
            ..described(view)
        }
    }

    /// The answer to a registration. It holds nothing that depends on the present time, so it repeats.
    pub(super) fn registered(&self, grant: &ListingGrant) -> api::RegisterResponse {
        api::RegisterResponse {
            listing: described(&grant.view),
            lease: self.lease(&grant.lease, None),
            presence: self.presence(&grant.lease.presence_key),
            udp: self.udp.clone(),
            instance: self.instance.to_string(),
        }
    }

    pub(super) fn renewed(&self, lease: &LeaseGrant, now: Instant) -> api::RenewResponse {
        api::RenewResponse {
            lease: self.lease(lease, Some(now)),
            presence: self.presence(&lease.presence_key),
        }
    }

    /// The answer to the creation of an attempt; repeats like [`App::registered`].
    pub(super) fn attempt_created(&self, grant: &AttemptGrant) -> api::AttemptResponse {
        api::AttemptResponse {
            id: grant.id,
            listing_id: grant.listing,
            joiner: api::JoinerBody {
                key_id: grant.joiner_key.to_hex(),
                secret: self.master_key.secret(&grant.joiner_key).to_hex(),
            },
            ttl_ms: ms(grant.lifetime),
            expires_at: self.wall(grant.deadline),
            udp: self.udp.clone(),
            instance: self.instance.to_string(),
        }
    }
}

/// What everybody sees, and what an owner sees that does not depend on the present time.
fn described(view: &ListingView) -> api::ListingBody {
    let description = &view.description;
    api::ListingBody {
        id: view.id,
        protocol: description.protocol().to_owned(),
        name: description.name().to_owned(),
        visibility: match description.visibility() {
            Visibility::Public => api::VisibilityBody::Public,
            Visibility::Unlisted => api::VisibilityBody::Unlisted,
        },
        player_capacity: description.player_capacity(),
        attributes: description.attributes().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        visible: view.visible,
        owned: view.owned,
        slot: description.slot().filter(|_| view.owned).map(str::to_owned),
        join_code: view.join_code.filter(|_| view.owned).map(|it| it.to_string()),
        lease: None,
        presence_remaining_ms: None,
    }
}

pub(super) fn pending(attempt: &PendingAttempt, now: Instant) -> api::PendingBody {
    api::PendingBody {
        id: attempt.id,
        note: attempt.note.as_deref().map(str::to_owned),
        joiner_bound: attempt.joiner_bound,
        remaining_ms: ms(attempt.deadline.since(now)),
    }
}

pub(super) fn attempt(view: &AttemptView, now: Instant) -> api::AttemptBody {
    let (phase, reason) = match view.phase {
        Phase::Created => ("created", None),
        Phase::Bound => ("bound", None),
        Phase::Introduced => ("introduced", None),
        Phase::Ended(reason) => ("ended", Some(reason.name().to_owned())),
    };
    let remaining_ms = if reason.is_some() { 0 } else { ms(view.deadline.since(now)) };
    api::AttemptBody {
        id: view.id,
        listing_id: view.listing,
        phase: phase.to_owned(),
        reason,
        times_ms: phase_times(&view.times),
        remaining_ms,
        host: side(view.host_families, view.host_report, view.host_mapping),
        joiner: side(view.joiner_families, view.joiner_report, view.joiner_mapping),
    }
}

fn phase_times(times: &PhaseTimes) -> api::PhaseTimesBody {
    let since_created = |it: Option<Instant>| it.map(|it| ms(it.since(times.created)));
    api::PhaseTimesBody {
        host_bound: since_created(times.host_bound),
        joiner_bound: since_created(times.joiner_bound),
        introduced: since_created(times.introduced),
        reported: since_created(times.reported),
        ended: since_created(times.ended),
    }
}

fn side(families: [bool; 2], report: Option<ReportResult>, mapping: Mapping) -> api::SideBody {
    let names = ["ipv4", "ipv6"].into_iter().zip(families).filter(|it| it.1).map(|it| it.0.to_owned());
    let mapping = mapping.known().map(|it| it.name().to_owned());
    api::SideBody { families: names.collect(), report: report.map(|it| it.name().to_owned()), mapping }
}

pub(super) fn drain(view: DrainView, now: Instant) -> api::DrainResponse {
    let (state, remaining_ms, attempts) = match view {
        DrainView::Serving => ("serving", None, None),
        DrainView::Draining { deadline, attempts } => {
            ("draining", Some(ms(deadline.since(now))), Some(attempts))
        }
        DrainView::Drained => ("drained", None, None),
    };
    api::DrainResponse { state: state.to_owned(), remaining_ms, attempts }
}
