//! Around every request: its duration, one line of log, and an answer even when its handler panics.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hdrhistogram::Histogram;
use rendezvous_shared::counter::Label;
use rendezvous_shared::labels;
use rendezvous_shared::limits::HEADERS_MAX;

use super::problem::{ApiError, Code};
use crate::routes::App;
use crate::snapshot::latency_histogram;

labels! {
    /// The routes that durations are recorded for: path templates, a closed set.
    pub(crate) enum Route {
        Listings = "/v1/listings",
        Listing = "/v1/listings/{id}",
        Lease = "/v1/listings/{id}/lease",
        ListingAttempts = "/v1/listings/{id}/attempts",
        JoinCode = "/v1/join-codes/{code}",
        Attempt = "/v1/attempts/{id}",
        AttemptReport = "/v1/attempts/{id}/report",
        Drain = "/v1/drain",
        Livez = "/livez",
        Readyz = "/readyz",
        Healthz = "/healthz",
        Version = "/version",
        Metrics = "/metrics",
        Unmatched = "unmatched",
    }
}

impl Route {
    fn of(request: &Request) -> Self {
        let Some(path) = request.extensions().get::<MatchedPath>() else { return Self::Unmatched };
        let template = path.as_str();
        Self::ALL.iter().copied().find(|it| it.name() == template).unwrap_or(Self::Unmatched)
    }
}

/// Nanoseconds of requests by route.
pub(crate) struct RequestDurations(Mutex<Vec<Histogram<u64>>>);

impl RequestDurations {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Route::ALL.iter().map(|_| latency_histogram()).collect()))
    }

    fn record(&self, route: Route, nanos: u64) {
        // Only ever held for one record or one copy; a panic in between leaves whole figures behind.
        let mut histograms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        histograms[route.index()].saturating_record(nanos);
    }

    pub(crate) fn copy(&self) -> Vec<(&'static str, Histogram<u64>)> {
        let histograms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Route::ALL.iter().map(|it| (it.name(), histograms[it.index()].clone())).collect()
    }
}

/// The outermost layer of every router.
pub(crate) async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let started = app.times.now();
    let route = Route::of(&request);
    let method = request.method().clone();
    let response = answer(request, next).await;
    let taken = app.times.now().since(started);
    app.durations.record(route, u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX));
    let code = response.extensions().get::<Code>().map_or("", |it| it.name());
    let status = response.status().as_u16();
    let micros = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX);
    tracing::debug!(%method, route = route.name(), status, code, micros, "request");
    response
}

async fn answer(request: Request, next: Next) -> Response {
    // HTTP/1 counts while it parses; HTTP/2 limits the bytes only.
    if request.headers().len() > HEADERS_MAX {
        return ApiError::Headers.into_response();
    }
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            tracing::error!("the handler of a request panicked");
            ApiError::Internal.into_response()
        }
    }
}
