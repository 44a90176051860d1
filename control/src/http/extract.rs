//! What handlers take out of a request.

use std::str::FromStr;
use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use http::header::{AUTHORIZATION, CONTENT_TYPE};

use http_body_util::{BodyExt, LengthLimitError, Limited};
use rendezvous_shared::limits::{BODY_LEN_MAX, QUERY_PARAMETERS_MAX};
use serde::de::DeserializeOwned;

use super::problem::ApiError;
use crate::directory::{ApiKey, Identity, Scope};
use crate::routes::App;

impl Identity {
    /// Refuses unless the caller has one of `scopes`.
    pub(crate) fn require(&self, scopes: &[Scope]) -> Result<(), ApiError> {
        if self.has_any(scopes) { Ok(()) } else { Err(ApiError::Forbidden) }
    }
}

impl FromRequestParts<Arc<App>> for Identity {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        bearer(&parts.headers).and_then(|key| app.directory.authenticate(&key)).ok_or(ApiError::Unauthorized)
    }
}

fn bearer(headers: &HeaderMap) -> Option<ApiKey> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    ApiKey::parse(key.trim_start_matches(' ')).ok()
}

/// The id in the path. What is no id is not found, with the same bytes as an id that finds nothing.
pub(crate) struct Target<T>(pub(crate) T);

impl<T: FromStr> FromRequestParts<Arc<App>> for Target<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let Path(text) =
            Path::<String>::from_request_parts(parts, app).await.map_err(|_| ApiError::NOT_FOUND)?;
        text.parse().map(Self).map_err(|_| ApiError::NOT_FOUND)
    }
}

/// A request's body, whole, within its length and its time.
pub(crate) struct Payload {
    bytes: Bytes,
    is_json: bool,
}

impl FromRequest<Arc<App>> for Payload {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let is_json = is_json(request.headers());
        let bytes = tokio::time::timeout(app.options.body_timeout, collect(request.into_body()))
            .await
            .map_err(|_| ApiError::BodyTimeout)??;
        Ok(Self { bytes, is_json })
    }
}

async fn collect(body: Body) -> Result<Bytes, ApiError> {
    if body.size_hint().lower() > BODY_LEN_MAX as u64 {
        return Err(ApiError::BodyLength);
    }
    match Limited::new(body, BODY_LEN_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::BodyLength),
        Err(_) => Err(ApiError::BodyBroken),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

impl Payload {
    /// The body as `T`; unknown fields are refused by `T` itself.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        if !self.is_json {
            return Err(ApiError::ContentType);
        }
        // An array of the fields' values would be read as the fields; the API speaks of objects.
        if self.bytes.trim_ascii_start().starts_with(b"[") {
            return Err(ApiError::field("body", "expected an object"));
        }
        let mut json = serde_json::Deserializer::from_slice(&self.bytes);
        let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            json_error(path, error.inner())
        })?;
        json.end().map_err(|error| json_error(".".to_owned(), &error))?;
        Ok(value)
    }

    /// The body as `T`, or its default when there is none.
    pub(crate) fn parse_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, ApiError> {
        if self.bytes.is_empty() { Ok(T::default()) } else { self.parse() }
    }
}

/// Malformed JSON names its place, well-formed JSON of another shape names the field.
fn json_error(path: String, error: &serde_json::Error) -> ApiError {
    if !error.is_data() {
        return ApiError::Json(error.to_string());
    }
    let rule = error.to_string();
    // A missing field is reported at its parent; serde names it in the text only.
    let missing = rule.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    let field = match (path.as_str(), missing) {
        (".", Some(field)) => field.to_owned(),
        (".", None) => "body".to_owned(),
        _ => path,
    };
    ApiError::Field { field, rule }
}

/// The query's parameters, each at most once, in the order given.
pub(crate) fn query(uri: &Uri) -> Result<Vec<(String, String)>, ApiError> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|_| ApiError::field("query", "expected key=value&…"))?;
    if pairs.len() > QUERY_PARAMETERS_MAX {
        return Err(ApiError::field("query", format!("at most {QUERY_PARAMETERS_MAX} parameters")));
    }
    for (index, (key, _)) in pairs.iter().enumerate() {
        if pairs[..index].iter().any(|(earlier, _)| earlier == key) {
            return Err(ApiError::field(key.as_str(), "is given twice"));
        }
    }
    Ok(pairs)
}
