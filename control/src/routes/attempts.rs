//! Attempts.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use rendezvous_shared::api::{AttemptRequest, PendingResponse, ReportRequest};
use rendezvous_shared::counter::Label;
use rendezvous_shared::id::{AttemptId, ListingId};
use rendezvous_shared::limits;
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{
    CancelAttempt, CreateAttempt, GetAttempt, ListPending, PendingAttempt, Reply, Report, Reporter,
    Transition,
};
use rendezvous_shared::wire::ReportResult;

use super::render::{self, json, with_replayed};
use super::{App, misplaced};
use crate::boundary::{Lane, ReadyState};
use crate::directory::{Identity, Scope};
use crate::http::canonical::{Canonical, idempotency};
use crate::http::extract::{Payload, Target, query};
use crate::http::problem::ApiError;
use crate::http::validate;

/// Both sides of an attempt: the joiner has the one scope, the host the other.
const PARTY: [Scope; 2] = [Scope::AttemptWrite, Scope::ListingWrite];

/// `POST /v1/listings/{id}/attempts`
pub(super) async fn create(
    State(app): State<Arc<App>>,
    identity: Identity,
    Target(listing): Target<ListingId>,
    headers: HeaderMap,
    payload: Payload,
) -> Result<Response, ApiError> {
    identity.require(&[Scope::AttemptWrite])?;
    let request: AttemptRequest = payload.parse_or_default()?;
    let note = request.note.map(validate::note).transpose()?;
    let lifetime = request.ttl_ms.map_or(Ok(limits::ATTEMPT_DEFAULT), |it| {
        validate::duration_ms("ttl_ms", it, limits::ATTEMPT_MIN, limits::ATTEMPT_MAX)
    })?;
    let canonical = Canonical::new("POST /v1/listings/{id}/attempts")
        .bytes(&listing.to_bytes())
        .optional(note.as_deref())
        .number(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX));
    let transition = Transition::CreateAttempt(Box::new(CreateAttempt {
        caller: identity.caller,
        quotas: identity.quotas,
        idempotency: idempotency(&headers, canonical)?,
        listing,
        note,
        lifetime,
    }));
    match app.submit(Lane::Http, transition).await? {
        Reply::AttemptCreated(grant) => {
            let response = json(StatusCode::CREATED, &app.attempt_created(&grant));
            Ok(with_replayed(response, grant.replayed))
        }
        other => Err(misplaced(&other)),
    }
}

/// `GET /v1/attempts/{id}`
pub(super) async fn get(
    State(app): State<Arc<App>>,
    identity: Identity,
    Target(attempt): Target<AttemptId>,
) -> Result<Response, ApiError> {
    identity.require(&[Scope::AttemptWrite, Scope::ListingWrite, Scope::Read, Scope::Operate])?;
    let transition = Transition::GetAttempt(GetAttempt { caller: identity.caller, attempt });
    match app.submit(Lane::Http, transition).await? {
        Reply::Attempt(view) => Ok(json(StatusCode::OK, &render::attempt(&view, app.times.now()))),
        other => Err(misplaced(&other)),
    }
}

/// `GET /v1/listings/{id}/attempts?wait_ms=`
///
/// Answers as soon as an attempt waits, when the time is over, or when the server stops being ready. The
/// store is asked again at intervals; a full lane in between is no reason to end.
pub(super) async fn pending(
    State(app): State<Arc<App>>,
    identity: Identity,
    Target(listing): Target<ListingId>,
    uri: Uri,
) -> Result<Response, ApiError> {
    identity.require(&[Scope::ListingWrite])?;
    let deadline = app.times.now().after(wait(&uri)?);
    let ask = || list_pending(&app, ListPending { caller: identity.caller, listing });
    let mut attempts = ask().await?;
    // Above the ceiling on waiting requests, one is answered at once with what there is.
    let permit = app.long_polls.try_acquire().ok();
    loop {
        let remaining = deadline.since(app.times.now());
        let served = permit.is_some() && app.readiness.get() == ReadyState::Ready;
        if !attempts.is_empty() || remaining.is_zero() || !served {
            break;
        }
        tokio::time::sleep(remaining.min(app.options.poll_interval)).await;
        attempts = match ask().await {
            Err(ApiError::Refused(Refusal::ServiceUnavailable)) => continue,
            other => other?,
        };
    }
    let now = app.times.now();
    let body = PendingResponse { attempts: attempts.iter().map(|it| render::pending(it, now)).collect() };
    Ok(json(StatusCode::OK, &body))
}

fn wait(uri: &Uri) -> Result<Duration, ApiError> {
    let mut wait = Duration::ZERO;
    for (key, value) in query(uri)? {
        if key != "wait_ms" {
            return Err(ApiError::field(key, "there is no such parameter"));
        }
        let value = validate::parse_number("wait_ms", &value)?;
        wait = validate::duration_ms("wait_ms", value, Duration::ZERO, limits::LONG_POLL_MAX)?;
    }
    Ok(wait)
}

async fn list_pending(app: &App, question: ListPending) -> Result<Vec<PendingAttempt>, ApiError> {
    match app.submit(Lane::Http, Transition::ListPending(question)).await? {
        Reply::Pending(attempts) => Ok(attempts),
        other => Err(misplaced(&other)),
    }
}

/// `DELETE /v1/attempts/{id}`
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    identity: Identity,
    Target(attempt): Target<AttemptId>,
) -> Result<Response, ApiError> {
    identity.require(&[Scope::AttemptWrite, Scope::ListingWrite, Scope::Operate])?;
    let transition = Transition::CancelAttempt(CancelAttempt { caller: identity.caller, attempt });
    match app.submit(Lane::Http, transition).await? {
        Reply::Cancelled => Ok(StatusCode::NO_CONTENT.into_response()),
        other => Err(misplaced(&other)),
    }
}

/// `POST /v1/attempts/{id}/report`
pub(super) async fn report(
    State(app): State<Arc<App>>,
    identity: Identity,
    Target(attempt): Target<AttemptId>,
    payload: Payload,
) -> Result<Response, ApiError> {
    identity.require(&PARTY)?;
    let request: ReportRequest = payload.parse()?;
    let result =
        ReportResult::ALL.iter().copied().find(|it| it.name() == request.result).ok_or_else(|| {
            ApiError::field("result", "expected connected, peer_silent, peer_unrecognised or aborted")
        })?;
    let reporter = Reporter::Caller(identity.caller);
    match app.submit(Lane::Http, Transition::Report(Report { reporter, attempt, result })).await? {
        Reply::Reported => Ok(StatusCode::NO_CONTENT.into_response()),
        other => Err(misplaced(&other)),
    }
}
