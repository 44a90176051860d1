//! `GET /v1/listings`

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use http::StatusCode;
use rendezvous_shared::api::PageResponse;
use rendezvous_shared::limits;
use rendezvous_shared::store::{BrowseListings, Caller, Filter, Reply, Transition};

use super::render::json;
use super::{App, misplaced};
use crate::boundary::Lane;
use crate::directory::{Identity, Scope};
use crate::http::extract::query;
use crate::http::problem::ApiError;
use crate::http::validate;

/// `GET /v1/listings`
pub(super) async fn browse(
    State(app): State<Arc<App>>,
    identity: Identity,
    uri: Uri,
) -> Result<Response, ApiError> {
    identity.require(&[Scope::Read, Scope::ListingWrite, Scope::Operate])?;
    let (mut request, cursor) = parse(identity.caller, query(&uri)?)?;
    if !request.owned {
        identity.require(&[Scope::Read, Scope::Operate])?;
    }
    request.after = cursor.map(|it| app.cursor_key.read(&request, &it)).transpose()?;
    let transition = Transition::BrowseListings(Box::new(request.clone()));
    match app.submit(Lane::Http, transition).await? {
        Reply::Page(page) => {
            let now = app.times.now();
            let body = PageResponse {
                listings: page.listings.iter().map(|view| app.listing(view, now)).collect(),
                next_cursor: page.next_after.map(|after| app.cursor_key.write(&request, after)),
            };
            Ok(json(StatusCode::OK, &body))
        }
        other => Err(misplaced(&other)),
    }
}

fn parse(caller: Caller, pairs: Vec<(String, String)>) -> Result<(BrowseListings, Option<String>), ApiError> {
    let mut request = BrowseListings {
        caller,
        protocol: None,
        owned: false,
        filter: Filter::default(),
        after: None,
        limit: limits::PAGE_LEN_DEFAULT,
    };
    let filter = &mut request.filter;
    let mut cursor = None;
    for (key, value) in pairs {
        match key.as_str() {
            "protocol" => {
                validate::label("protocol", &value, limits::PROTOCOL_LEN_MAX)?;
                request.protocol = Some(value.into());
            }
            "owner" if value == "me" => request.owned = true,
            "owner" => return Err(ApiError::field("owner", "expected me")),
            "limit" => {
                let wanted = validate::parse_number("limit", &value)?;
                let limit = validate::number("limit", wanted, 1, limits::PAGE_LEN_MAX as u64)?;
                request.limit = usize::try_from(limit).unwrap_or(limits::PAGE_LEN_MAX);
            }
            "cursor" => cursor = Some(value),
            "name_prefix" => {
                validate::label("name_prefix", &value, limits::NAME_LEN_MAX)?;
                filter.name_prefix = Some(value);
            }
            "player_capacity_min" => filter.player_capacity_min = Some(players(&key, &value)?),
            "player_capacity_max" => filter.player_capacity_max = Some(players(&key, &value)?),
            _ => match key.strip_prefix("attr.") {
                Some(attribute) => {
                    validate::attribute(attribute, &value)?;
                    filter.attributes.push((attribute.to_owned(), value));
                }
                None => return Err(ApiError::field(key, "there is no such parameter")),
            },
        }
    }
    // In one order, so that a cursor holds however the next query is written.
    filter.attributes.sort_unstable();
    check(&request)?;
    Ok((request, cursor))
}

fn check(request: &BrowseListings) -> Result<(), ApiError> {
    let filter = &request.filter;
    if request.protocol.is_none() && !request.owned {
        return Err(ApiError::field("protocol", "is needed unless owner=me"));
    }
    if filter.attributes.len() > limits::ATTRIBUTES_MAX {
        return Err(ApiError::field(
            "attr",
            format!("expected at most {} attributes", limits::ATTRIBUTES_MAX),
        ));
    }
    if let (Some(min), Some(max)) = (filter.player_capacity_min, filter.player_capacity_max)
        && min > max
    {
        return Err(ApiError::field("player_capacity_max", "is below player_capacity_min"));
    }
    Ok(())
}

fn players(key: &str, value: &str) -> Result<u32, ApiError> {
    validate::players(key, validate::parse_number(key, value)?)
}
