//! Every error answer, as RFC 9457 `application/problem+json` with a stable code.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use rendezvous_shared::api::Problem;
use rendezvous_shared::counter::Label;
use rendezvous_shared::labels;
use rendezvous_shared::outcome::{ConflictReason, Refusal};

use crate::boundary::ReadyState;

/// Seconds after which a full pool or an unavailable store is worth another try.
const RETRY_AFTER_BUSY_SECONDS: u64 = 1;
/// Seconds after which a quota is worth another try: leases and attempts end within tens of seconds.
const RETRY_AFTER_QUOTA_SECONDS: u64 = 5;
/// Bytes of a parser's message that are repeated to the caller.
const DETAIL_LEN_MAX: usize = 256;

labels! {
    /// The stable codes of error answers.
    pub(crate) enum Code {
        NotFound = "not_found",
        Expired = "expired",
        Conflict = "conflict",
        CapacityExceeded = "capacity_exceeded",
        QuotaExceeded = "quota_exceeded",
        Draining = "draining",
        ServiceUnavailable = "service_unavailable",
        Revoked = "revoked",
        Unauthorized = "unauthorized",
        Forbidden = "forbidden",
        MethodNotAllowed = "method_not_allowed",
        InvalidJson = "invalid_json",
        InvalidBody = "invalid_body",
        InvalidBodyLength = "invalid_body_length",
        InvalidBodyTimeout = "invalid_body_timeout",
        InvalidContentType = "invalid_content_type",
        InvalidField = "invalid_field",
        InvalidCursor = "invalid_cursor",
        InvalidIdempotencyKey = "invalid_idempotency_key",
        InvalidPrecondition = "invalid_precondition",
        InvalidHeaders = "invalid_headers",
        Internal = "internal",
    }
}

/// Why a request is not answered as it hoped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// The store refused.
    Refused(Refusal),
    /// The store refused a renewal whose version came as `If-Match`.
    PreconditionFailed { latest: u64 },
    /// No valid API key; one answer for every cause.
    Unauthorized,
    /// The key lacks the scope.
    Forbidden,
    /// The path exists and the method does not.
    MethodNotAllowed,
    /// The body is not JSON.
    Json(String),
    /// The body broke off.
    BodyBroken,
    /// The body is too long.
    BodyLength,
    /// The body came too slowly.
    BodyTimeout,
    /// The body is not declared as JSON.
    ContentType,
    /// A field breaks a rule.
    Field { field: String, rule: String },
    /// The cursor is not one of ours for this query.
    Cursor,
    /// The header is missing or not usable.
    IdempotencyKey,
    /// Neither a version in the body nor `If-Match`.
    PreconditionMissing,
    /// Too many header fields.
    Headers,
    /// `/readyz` while it is not.
    NotReady(ReadyState),
    /// We are broken.
    Internal,
}

impl ApiError {
    /// The answer to everything that is absent or not the caller's to see.
    pub(crate) const NOT_FOUND: Self = Self::Refused(Refusal::NotFound);

    pub(crate) fn field(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Field { field: field.into(), rule: rule.into() }
    }

    const fn status_and_code(&self) -> (StatusCode, Code) {
        match self {
            Self::Refused(refusal) => refusal_status_and_code(*refusal),
            Self::PreconditionFailed { .. } => (StatusCode::PRECONDITION_FAILED, Code::Conflict),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, Code::Unauthorized),
            Self::Forbidden => (StatusCode::FORBIDDEN, Code::Forbidden),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, Code::MethodNotAllowed),
            Self::Json(_) => (StatusCode::BAD_REQUEST, Code::InvalidJson),
            Self::BodyBroken => (StatusCode::BAD_REQUEST, Code::InvalidBody),
            Self::BodyLength => (StatusCode::PAYLOAD_TOO_LARGE, Code::InvalidBodyLength),
            Self::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, Code::InvalidBodyTimeout),
            Self::ContentType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidContentType),
            Self::Field { .. } => (StatusCode::UNPROCESSABLE_ENTITY, Code::InvalidField),
            Self::Cursor => (StatusCode::UNPROCESSABLE_ENTITY, Code::InvalidCursor),
            Self::IdempotencyKey => (StatusCode::BAD_REQUEST, Code::InvalidIdempotencyKey),
            Self::PreconditionMissing => (StatusCode::PRECONDITION_REQUIRED, Code::InvalidPrecondition),
            Self::Headers => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, Code::InvalidHeaders),
            Self::NotReady(ReadyState::Draining) => (StatusCode::SERVICE_UNAVAILABLE, Code::Draining),
            Self::NotReady(_) => (StatusCode::SERVICE_UNAVAILABLE, Code::ServiceUnavailable),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, Code::Internal),
        }
    }

    fn detail(&self) -> String {
        let text = match self {
            Self::Refused(refusal) => refusal_detail(*refusal),
            Self::PreconditionFailed { .. } => "the lease has another version by now",
            Self::Unauthorized => "a valid API key is needed: Authorization: Bearer rvk_<id>_<secret>",
            Self::Forbidden => "the API key lacks the scope for this",
            Self::MethodNotAllowed => "see the header Allow",
            Self::Json(text) => return shorten(text),
            Self::BodyBroken => "the body broke off",
            Self::BodyLength => "a body has at most 65536 bytes",
            Self::BodyTimeout => "the body did not arrive in time",
            Self::ContentType => "expected Content-Type: application/json",
            Self::Field { field, rule } => return shorten(&format!("{field}: {rule}")),
            Self::Cursor => "the cursor was not given out for this query by this instance",
            Self::IdempotencyKey => "expected one Idempotency-Key of 1 to 128 visible ASCII characters",
            Self::PreconditionMissing => "send the lease's version in the body or as If-Match",
            Self::Headers => "a request has at most 64 header fields",
            Self::NotReady(ReadyState::Draining) => "the server is draining",
            Self::NotReady(ReadyState::Starting) => "the server is starting",
            Self::NotReady(ReadyState::Deaf) => "the server does not hear its own datagrams",
            Self::NotReady(_) => "the server cannot answer now",
            Self::Internal => "the server is at fault",
        };
        text.to_owned()
    }

    fn retry_after_seconds(&self) -> Option<u64> {
        match self {
            Self::Refused(Refusal::QuotaExceeded(_)) => Some(RETRY_AFTER_QUOTA_SECONDS),
            Self::Refused(Refusal::Draining { remaining }) => {
                Some(remaining.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX).max(1))
            }
            Self::Refused(Refusal::CapacityExceeded(_) | Refusal::ServiceUnavailable) | Self::NotReady(_) => {
                Some(RETRY_AFTER_BUSY_SECONDS)
            }
            _ => None,
        }
    }

    fn problem(&self, status: StatusCode, code: Code) -> Problem {
        let mut problem = Problem {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or_default().to_owned(),
            status: status.as_u16(),
            code: code.name().to_owned(),
            detail: self.detail(),
            ..Problem::default()
        };
        match self {
            Self::Refused(Refusal::Conflict(reason)) => problem.reason = Some(reason.name().to_owned()),
            Self::Refused(Refusal::StaleVersion { latest }) | Self::PreconditionFailed { latest } => {
                problem.reason = Some(ConflictReason::StaleVersion.name().to_owned());
                problem.latest_version = Some(*latest);
            }
            Self::Refused(Refusal::CapacityExceeded(pool)) => problem.pool = Some(pool.name().to_owned()),
            Self::Refused(Refusal::QuotaExceeded(scope)) => problem.scope = Some(scope.name().to_owned()),
            Self::Field { field, .. } => problem.field = Some(shorten(field)),
            _ => {}
        }
        problem
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code) = self.status_and_code();
        let body = serde_json::to_vec(&self.problem(status, code)).unwrap_or_default();
        let mut response = (status, body).into_response();
        response.extensions_mut().insert(code);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        match self {
            Self::Unauthorized => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"rendezvous\""));
            }
            // What remains of such a request on the connection is not worth reading.
            Self::BodyLength | Self::BodyTimeout | Self::BodyBroken => {
                headers.insert(http::header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

const fn refusal_status_and_code(refusal: Refusal) -> (StatusCode, Code) {
    match refusal {
        Refusal::NotFound => (StatusCode::NOT_FOUND, Code::NotFound),
        Refusal::Expired => (StatusCode::GONE, Code::Expired),
        Refusal::Conflict(_) | Refusal::StaleVersion { .. } => (StatusCode::CONFLICT, Code::Conflict),
        Refusal::CapacityExceeded(_) => (StatusCode::SERVICE_UNAVAILABLE, Code::CapacityExceeded),
        Refusal::QuotaExceeded(_) => (StatusCode::TOO_MANY_REQUESTS, Code::QuotaExceeded),
        Refusal::Draining { .. } => (StatusCode::SERVICE_UNAVAILABLE, Code::Draining),
        Refusal::ServiceUnavailable => (StatusCode::SERVICE_UNAVAILABLE, Code::ServiceUnavailable),
        Refusal::Revoked => (StatusCode::FORBIDDEN, Code::Revoked),
        // Only a datagram can be stale in this way; over HTTP it means that we are broken.
        Refusal::StaleSequence => (StatusCode::INTERNAL_SERVER_ERROR, Code::Internal),
    }
}

const fn refusal_detail(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NotFound => "there is no such thing, or it is not yours to see",
        Refusal::Expired => "its time is over",
        Refusal::Conflict(reason) => conflict_detail(reason),
        Refusal::StaleVersion { .. } => "the lease has another version by now",
        Refusal::CapacityExceeded(_) => "the server is full; nothing was done",
        Refusal::QuotaExceeded(_) => "the quota is used up; nothing was done",
        Refusal::Draining { .. } => "the server is draining and takes nothing new; nothing was done",
        Refusal::ServiceUnavailable => "the server cannot answer now",
        Refusal::Revoked => "an operator revoked the caller or the listing",
        Refusal::StaleSequence => "the server is at fault",
    }
}

const fn conflict_detail(reason: ConflictReason) -> &'static str {
    match reason {
        ConflictReason::StaleVersion => "the lease has another version by now",
        ConflictReason::IdempotencyKeyReused => "the idempotency key belongs to another request",
        ConflictReason::SlotTaken => "the slot belongs to a live listing of another owner",
        ConflictReason::EndpointAlreadyBound => "the role is bound to another endpoint",
        ConflictReason::AlreadyIntroduced => "the peers have been introduced",
        ConflictReason::NotIntroduced => "the peers have not been introduced",
        ConflictReason::AlreadyReported => "another report was given before",
        ConflictReason::NoCommonFamily => "the peers have no address family in common",
        ConflictReason::SameEndpoint => "the peers have the same endpoint",
        ConflictReason::NotJoinable => "the host's lease or presence is not fresh",
    }
}

fn shorten(text: &str) -> String {
    let mut end = text.len().min(DETAIL_LEN_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
