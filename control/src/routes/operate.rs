//! Drain, health, version and metrics.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use rendezvous_shared::api::{DrainRequest, DrainResponse};
use rendezvous_shared::counter::Label;
use rendezvous_shared::limits;
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{BeginDrain, DrainView, Reply, Transition};
use serde::Serialize;

use super::render::{self, json};
use super::{App, misplaced};
use crate::boundary::{Lane, ReadyState};
use crate::directory::{Identity, Scope};
use crate::http::extract::Payload;
use crate::http::problem::ApiError;
use crate::http::validate;
use crate::metrics::{self, Figures};
use crate::snapshot::Snapshot;

/// Who may read figures where a key is asked for.
const FIGURES: [Scope; 2] = [Scope::Metrics, Scope::Operate];

#[derive(Serialize)]
struct StatusBody {
    status: &'static str,
}

#[derive(Serialize)]
struct VersionBody {
    name: &'static str,
    version: &'static str,
    instance: String,
}

#[derive(Serialize)]
struct HealthBody {
    status: &'static str,
    version: &'static str,
    instance: String,
    engine: EngineBody,
    store_queue_depth: u64,
    connections: u64,
    /// Absent when the store does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<StoreBody>,
}

#[derive(Serialize)]
struct EngineBody {
    name: &'static str,
    reason: &'static str,
}

#[derive(Serialize)]
struct StoreBody {
    drain: DrainResponse,
    presence_fresh: usize,
    listings_visible: usize,
    pools: Vec<PoolBody>,
}

#[derive(Serialize)]
struct PoolBody {
    pool: &'static str,
    used: usize,
    limit: usize,
    high_water: usize,
}

/// `POST /v1/drain`
pub(super) async fn drain(
    State(app): State<Arc<App>>,
    identity: Identity,
    payload: Payload,
) -> Result<Response, ApiError> {
    identity.require(&[Scope::Operate])?;
    let request: DrainRequest = payload.parse_or_default()?;
    let window = request.window_ms.map_or(Ok(limits::DRAIN_MAX), |it| {
        validate::duration_ms("window_ms", it, Duration::ZERO, limits::DRAIN_MAX)
    })?;
    let view = ask_drain(&app, Transition::BeginDrain(BeginDrain { window })).await?;
    app.readiness.set(ReadyState::Draining);
    tracing::info!(?view, "drain asked for over HTTP");
    Ok(json(StatusCode::OK, &render::drain(view, app.times.now())))
}

/// `GET /v1/drain`
pub(super) async fn drain_state(
    State(app): State<Arc<App>>,
    identity: Identity,
) -> Result<Response, ApiError> {
    identity.require(&[Scope::Operate])?;
    let view = ask_drain(&app, Transition::GetDrain).await?;
    Ok(json(StatusCode::OK, &render::drain(view, app.times.now())))
}

async fn ask_drain(app: &App, transition: Transition) -> Result<DrainView, ApiError> {
    match app.submit(Lane::Operator, transition).await? {
        Reply::Drain(view) => Ok(view),
        other => Err(misplaced(&other)),
    }
}

/// `GET /livez`: the control thread answers.
pub(super) async fn livez() -> Response {
    json(StatusCode::OK, &StatusBody { status: "live" })
}

/// `GET /readyz`: whether to send work here.
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    match app.readiness.get() {
        ReadyState::Ready => Ok(json(StatusCode::OK, &StatusBody { status: "ready" })),
        state => Err(ApiError::NotReady(state)),
    }
}

/// `GET /healthz` in public: the state and nothing else.
pub(super) async fn healthz(State(app): State<Arc<App>>) -> Response {
    json(StatusCode::OK, &StatusBody { status: status(app.readiness.get()) })
}

/// `GET /version`
pub(super) async fn version(State(app): State<Arc<App>>) -> Response {
    let instance = app.instance.to_string();
    json(StatusCode::OK, &VersionBody { name: "rendezvous", version: app.version, instance })
}

const fn status(state: ReadyState) -> &'static str {
    match state {
        ReadyState::Starting => "starting",
        ReadyState::Ready => "ready",
        ReadyState::Draining => "draining",
        ReadyState::Unavailable => "unavailable",
        ReadyState::Deaf => "deaf",
    }
}

/// `GET /healthz` for operators.
pub(super) async fn health_detail(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let snapshot = snapshot(&app).await?;
    let now = app.times.now();
    let store = snapshot.store.map(|stats| StoreBody {
        drain: render::drain(stats.drain, now),
        presence_fresh: stats.presence_fresh,
        listings_visible: stats.listings_visible,
        pools: stats
            .pools
            .iter()
            .map(|it| PoolBody {
                pool: it.pool.name(),
                used: it.used,
                limit: it.limit,
                high_water: it.high_water,
            })
            .collect(),
    });
    let body = HealthBody {
        status: status(app.readiness.get()),
        version: app.version,
        instance: app.instance.to_string(),
        engine: EngineBody { name: snapshot.engine.engine, reason: snapshot.engine.reason },
        store_queue_depth: snapshot.store_queue_depth,
        connections: app.gates.figures().open,
        store,
    };
    Ok(json(StatusCode::OK, &body))
}

/// `GET /healthz` for operators, with a key.
pub(super) async fn health_detail_with_key(
    state: State<Arc<App>>,
    identity: Identity,
) -> Result<Response, ApiError> {
    identity.require(&FIGURES)?;
    health_detail(state).await
}

/// `GET /metrics`
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let figures = Figures {
        snapshot: snapshot(&app).await?,
        requests: app.durations.copy(),
        connections: app.gates.figures(),
    };
    let text = metrics::encode(figures).map_err(|_| ApiError::Internal)?;
    Ok(([(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE))], text).into_response())
}

/// `GET /metrics`, with a key.
pub(super) async fn metrics_with_key(
    state: State<Arc<App>>,
    identity: Identity,
) -> Result<Response, ApiError> {
    identity.require(&FIGURES)?;
    metrics(state).await
}

async fn snapshot(app: &App) -> Result<Snapshot, ApiError> {
    tokio::time::timeout(app.options.store_timeout, app.telemetry.snapshot())
        .await
        .map_err(|_| ApiError::Refused(Refusal::ServiceUnavailable))
}
