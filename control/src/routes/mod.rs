//! The routes, and what their handlers share.

mod attempts;
mod browse;
mod listings;
mod operate;
mod render;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post, put};
use rendezvous_shared::api::UdpBody;
use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::id::InstanceId;
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{Reply, Transition};
use tokio::sync::Semaphore;

use crate::ControlParts;
use crate::boundary::{Lane, Readiness, StoreGateway, Telemetry, Times};
use crate::directory::Directory;
use crate::http::canonical::CursorKey;
use crate::http::observe::{RequestDurations, observe};
use crate::http::problem::ApiError;
use crate::serve::{Gates, HttpOptions};

/// What all handlers share.
pub(crate) struct App {
    pub(crate) store: Arc<dyn StoreGateway>,
    pub(crate) telemetry: Arc<dyn Telemetry>,
    pub(crate) times: Arc<dyn Times>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) directory: Directory,
    pub(crate) master_key: MasterKey,
    pub(crate) cursor_key: CursorKey,
    pub(crate) instance: InstanceId,
    pub(crate) udp: UdpBody,
    pub(crate) version: &'static str,
    pub(crate) options: HttpOptions,
    pub(crate) durations: RequestDurations,
    pub(crate) gates: Gates,
    pub(crate) long_polls: Semaphore,
}

impl App {
    pub(crate) fn new(parts: ControlParts, gates: Gates) -> Self {
        Self {
            store: parts.store,
            telemetry: parts.telemetry,
            times: parts.times,
            readiness: parts.readiness,
            directory: parts.directory,
            cursor_key: CursorKey::new(parts.master_key.subkey("browse cursor", 0)),
            master_key: parts.master_key,
            instance: parts.instance,
            udp: parts.udp,
            version: parts.version,
            long_polls: Semaphore::new(parts.options.long_polls_max),
            options: parts.options,
            durations: RequestDurations::new(),
            gates,
        }
    }

    /// The store's reply to `transition`; a refusal is the error it maps to.
    async fn submit(&self, lane: Lane, transition: Transition) -> Result<Reply, ApiError> {
        let reply = tokio::time::timeout(self.options.store_timeout, self.store.submit(lane, transition))
            .await
            .unwrap_or(Err(Refusal::ServiceUnavailable));
        match reply {
            Ok(Reply::Refused(refusal)) | Err(refusal) => Err(ApiError::Refused(refusal)),
            Ok(reply) => Ok(reply),
        }
    }
}

/// The store answered with a reply of another transition's kind.
fn misplaced(reply: &Reply) -> ApiError {
    tracing::error!(outcome = ?reply.kind(), "the store's reply does not belong to the transition");
    ApiError::Internal
}

/// What the public listener serves.
pub(crate) fn public(app: Arc<App>) -> Router {
    let router = Router::new()
        .route("/v1/listings", get(browse::browse).post(listings::register))
        .route("/v1/listings/{id}", get(listings::get).delete(listings::delete))
        .route("/v1/listings/{id}/lease", put(listings::renew))
        .route("/v1/listings/{id}/attempts", get(attempts::pending).post(attempts::create))
        .route("/v1/join-codes/{code}", get(listings::get_by_join_code))
        .route("/v1/attempts/{id}", get(attempts::get).merge(delete(attempts::cancel)))
        .route("/v1/attempts/{id}/report", post(attempts::report))
        .route("/healthz", get(operate::healthz));
    finish(router, app)
}

/// What the admin listener serves. `open`: metrics and health detail need no key; only for a listener that
/// nobody but this machine reaches. Drain always needs one.
pub(crate) fn admin(app: Arc<App>, open: bool) -> Router {
    let router = Router::new().route("/v1/drain", get(operate::drain_state).post(operate::drain));
    let router = if open {
        router.route("/metrics", get(operate::metrics)).route("/healthz", get(operate::health_detail))
    } else {
        router
            .route("/metrics", get(operate::metrics_with_key))
            .route("/healthz", get(operate::health_detail_with_key))
    };
    finish(router, app)
}

fn finish(router: Router<Arc<App>>, app: Arc<App>) -> Router {
    router
        .route("/livez", get(operate::livez))
        .route("/readyz", get(operate::readyz))
        .route("/version", get(operate::version))
        .fallback(async || ApiError::NOT_FOUND)
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .layer(from_fn_with_state(Arc::clone(&app), observe))
        .with_state(app)
}
