//! Listings and their leases.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::IF_MATCH;
use rendezvous_shared::api::RenewRequest;
use rendezvous_shared::id::{JoinCode, ListingId};
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{
    DeleteListing, GetListing, ListingLocator, RegisterListing, RenewLease, Reply, Transition,
};

use super::render::{json, with_etag, with_replayed};
use super::{App, misplaced};
use crate::boundary::Lane;
use crate::directory::{Identity, Scope};
use crate::http::canonical::{Canonical, idempotency};
use crate::http::extract::{Payload, Target};
use crate::http::problem::ApiError;
use crate::http::validate;

/// `POST /v1/listings`
pub(super) async fn register(
    State(app): State<Arc<App>>,
    identity: Identity,
    headers: HeaderMap,
    payload: Payload,
) -> Result<Response, ApiError> {
    identity.require(&[Scope::ListingWrite])?;
    let (description, lease) = validate::registration(payload.parse()?)?;
    let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    let canonical = Canonical::new("POST /v1/listings").description(&description).number(lease_ms);
    let transition = Transition::RegisterListing(Box::new(RegisterListing {
        caller: identity.caller,
        quotas: identity.quotas,
        idempotency: idempotency(&headers, canonical)?,
        description,
        lease,
    }));
    match app.submit(Lane::Http, transition).await? {
        Reply::Registered(grant) => {
            let response = json(StatusCode::CREATED, &app.registered(&grant));
            Ok(with_replayed(with_etag(response, grant.lease.version), grant.replayed))
        }
        other => Err(misplaced(&other)),
    }
}

/// `GET /v1/listings/{id}`
pub(super) async fn get(
    State(app): State<Arc<App>>,
    identity: Identity,
    Target(id): Target<ListingId>,
) -> Result<Response, ApiError> {
    get_one(&app, &identity, ListingLocator::Id(id)).await
}

/// `GET /v1/join-codes/{code}`
pub(super) async fn get_by_join_code(
    State(app): State<Arc<App>>,
    identity: Identity,
    Target(code): Target<JoinCode>,
) -> Result<Response, ApiError> {
    get_one(&app, &identity, ListingLocator::JoinCode(code)).await
}

async fn get_one(app: &App, identity: &Identity, locator: ListingLocator) -> Result<Response, ApiError> {
    identity.require(&[Scope::Read, Scope::ListingWrite, Scope::Operate])?;
    let transition = Transition::GetListing(GetListing { caller: identity.caller, locator });
    match app.submit(Lane::Http, transition).await? {
        Reply::Listing(view) => {
            let response = json(StatusCode::OK, &app.listing(&view, app.times.now()));
            Ok(if view.owned { with_etag(response, view.lease.version) } else { response })
        }
        other => Err(misplaced(&other)),
    }
}

/// `DELETE /v1/listings/{id}`
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    identity: Identity,
    Target(listing): Target<ListingId>,
) -> Result<Response, ApiError> {
    identity.require(&[Scope::ListingWrite, Scope::Operate])?;
    let transition = Transition::DeleteListing(DeleteListing { caller: identity.caller, listing });
    match app.submit(Lane::Http, transition).await? {
        Reply::Deleted => Ok(StatusCode::NO_CONTENT.into_response()),
        other => Err(misplaced(&other)),
    }
}

/// `PUT /v1/listings/{id}/lease`
pub(super) async fn renew(
    State(app): State<Arc<App>>,
    identity: Identity,
    Target(listing): Target<ListingId>,
    headers: HeaderMap,
    payload: Payload,
) -> Result<Response, ApiError> {
    identity.require(&[Scope::ListingWrite])?;
    let request: RenewRequest = payload.parse_or_default()?;
    let lease = request.lease_ms.map(validate::lease_ms).transpose()?;
    let tag = if_match(&headers)?;
    let version = match (tag, request.version) {
        (None, None) => return Err(ApiError::PreconditionMissing),
        (Some(tag), Some(version)) if tag != version => {
            return Err(ApiError::field("version", "contradicts If-Match"));
        }
        (Some(version), _) | (None, Some(version)) => version,
    };
    let transition = Transition::RenewLease(RenewLease { caller: identity.caller, listing, version, lease });
    match app.submit(Lane::Http, transition).await {
        Ok(Reply::Renewed(grant)) => {
            let response = json(StatusCode::OK, &app.renewed(&grant, app.times.now()));
            Ok(with_etag(response, grant.version))
        }
        Ok(other) => Err(misplaced(&other)),
        Err(ApiError::Refused(Refusal::StaleVersion { latest })) if tag.is_some() => {
            Err(ApiError::PreconditionFailed { latest })
        }
        Err(error) => Err(error),
    }
}

/// The version in `If-Match`: one strong entity tag, as we give them out.
fn if_match(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let mut values = headers.get_all(IF_MATCH).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => value.to_str().unwrap_or_default(),
        (Some(_), Some(_)) => "",
    };
    let malformed = || ApiError::field("If-Match", "expected one entity tag, as in \"7\"");
    let digits = value.strip_prefix('"').and_then(|it| it.strip_suffix('"')).ok_or_else(malformed)?;
    validate::parse_number("If-Match", digits).map(Some).map_err(|_| malformed())
}
