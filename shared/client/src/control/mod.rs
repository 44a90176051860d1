//! The HTTP control plane, as a client sees it. HTTP/1.1, plain.
//!
//! Every method is one request with bounded retries: after a failed connection or a 503 it is sent again, with the
//! same idempotency key, after the server's `Retry-After` or a back-off, each with jitter. Keys are never logged.

mod error;
mod transport;

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use http::{Method, Uri};
use rendezvous_shared::api::{
    AttemptBody, AttemptRequest, AttemptResponse, DrainRequest, DrainResponse, ListingBody, PageResponse,
    PendingResponse, RegisterRequest, RegisterResponse, RenewRequest, RenewResponse, ReportRequest,
};
use rendezvous_shared::counter::Label;
use rendezvous_shared::id::{AttemptId, JoinCode, ListingId};
use rendezvous_shared::wire::ReportResult;

pub use error::ControlError;
use transport::{Call, Transport};

/// A client's own name for a create: the same on every retry, so that it is done once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// 128 random bits.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn random() -> Result<Self, ControlError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| ControlError::Unreachable(error.to_string()))?;
        Ok(Self(format!("{:032x}", u128::from_be_bytes(bytes))))
    }

    /// A key of the caller's own; ASCII, at most 128 bytes, or the server refuses it.
    #[must_use]
    pub fn from_text(text: String) -> Self {
        Self(text)
    }
}

/// How a [`ControlClient`] behaves.
#[derive(Clone, Debug)]
pub struct ControlOptions {
    /// Time for one try, beside what a long poll asks for.
    pub timeout: Duration,
    /// Tries of one request in all.
    pub tries: u32,
    /// Longest pause between two tries; a longer `Retry-After` ends the request with that problem.
    pub pause_max: Duration,
    /// Requests, and so connections, at once; the server takes 32 of one address.
    pub concurrency: usize,
}

impl Default for ControlOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            tries: 4,
            pause_max: Duration::from_secs(5),
            concurrency: 16,
        }
    }
}

/// What to browse for.
#[derive(Clone, Debug, Default)]
pub struct Browse {
    /// The game's protocol; mandatory unless `owned`.
    pub protocol: Option<String>,
    /// Only the caller's own listings, visible or not.
    pub owned: bool,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// Listings on the page, at most 100; 50 when left out.
    pub limit: Option<usize>,
    /// Further query parameters (filters), as the server documents them.
    pub filters: Vec<(String, String)>,
}

/// A client of the control plane. Clones share connections and the bound on them.
#[derive(Clone)]
pub struct ControlClient(Arc<Transport>);

impl fmt::Debug for ControlClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ControlClient").field(self.0.base()).finish()
    }
}

impl ControlClient {
    /// A client of the server at `base`, such as `http://127.0.0.1:7780`, that authenticates by `api_key`.
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// [`ControlError::Unsupported`] for `https`, or what is no such URL or key.
    pub fn new(base: &str, api_key: &str, options: ControlOptions) -> Result<Self, ControlError> {
        let uri: Uri =
            base.parse().map_err(|_| ControlError::Unsupported("the server's URL is malformed"))?;
        Transport::new(&uri, api_key, options).map(|transport| Self(Arc::new(transport)))
    }

    /// The same client, with the same connections and the same bound on them, that tries each request `tries` times
    /// in all: 1 for who repeats at a pace of its own.
    #[must_use]
    pub fn with_tries(&self, tries: u32) -> Self {
        Self(Arc::new(self.0.with_tries(tries)))
    }

    /// Publishes a listing. A repeat after an ambiguous failure takes the same `key`.
    ///
    /// # Errors
    /// See [`ControlError`]; so for every method.
    pub async fn register(
        &self,
        request: &RegisterRequest,
        key: &IdempotencyKey,
    ) -> Result<RegisterResponse, ControlError> {
        self.0.json(Call::post("/v1/listings").json(request)?.key(&key.0)).await
    }

    /// Renews a lease from the version named. After a lost answer the retry is refused as `stale_version` with
    /// `latest_version`: see [`ControlError::latest_version`].
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn renew(&self, id: ListingId, request: &RenewRequest) -> Result<RenewResponse, ControlError> {
        self.0.json(Call::new(Method::PUT, format!("/v1/listings/{id}/lease")).json(request)?).await
    }

    /// Removes a listing.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn delete(&self, id: ListingId) -> Result<(), ControlError> {
        self.0.empty(Call::new(Method::DELETE, format!("/v1/listings/{id}"))).await
    }

    /// One listing.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn get(&self, id: ListingId) -> Result<ListingBody, ControlError> {
        self.0.json(Call::get(format!("/v1/listings/{id}"))).await
    }

    /// The listing with a join code.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn get_by_join_code(&self, code: JoinCode) -> Result<ListingBody, ControlError> {
        self.0.json(Call::get(format!("/v1/join-codes/{code}"))).await
    }

    /// A page of listings; go on with its `next_cursor` until there is none, also past short pages.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn browse(&self, browse: &Browse) -> Result<PageResponse, ControlError> {
        let mut call = Call::get("/v1/listings".to_owned());
        let limit = browse.limit.map(|limit| limit.to_string());
        let own = browse.owned.then_some("me");
        let named = [
            ("protocol", browse.protocol.as_deref()),
            ("owner", own),
            ("cursor", browse.cursor.as_deref()),
            ("limit", limit.as_deref()),
        ];
        for (name, value) in named.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            call = call.query(name, value);
        }
        for (name, value) in &browse.filters {
            call = call.query(name, value);
        }
        self.0.json(call).await
    }

    /// Opens an attempt at a listing. A repeat after an ambiguous failure takes the same `key`.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn create_attempt(
        &self,
        id: ListingId,
        request: &AttemptRequest,
        key: &IdempotencyKey,
    ) -> Result<AttemptResponse, ControlError> {
        let call = Call::post(format!("/v1/listings/{id}/attempts"));
        self.0.json(call.json(request)?.key(&key.0)).await
    }

    /// One attempt: phase, times, families, reason.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn get_attempt(&self, id: AttemptId) -> Result<AttemptBody, ControlError> {
        self.0.json(Call::get(format!("/v1/attempts/{id}"))).await
    }

    /// Attempts that wait for the host; waits up to `wait` for one.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn pending(&self, id: ListingId, wait: Duration) -> Result<PendingResponse, ControlError> {
        let mut call = Call::get(format!("/v1/listings/{id}/attempts")).wait(wait);
        if !wait.is_zero() {
            call = call.query("wait_ms", &wait.as_millis().to_string());
        }
        self.0.json(call).await
    }

    /// Cancels (joiner) or declines (host) an attempt.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn cancel(&self, id: AttemptId) -> Result<(), ControlError> {
        self.0.empty(Call::new(Method::DELETE, format!("/v1/attempts/{id}"))).await
    }

    /// Reports over HTTP how a punch went.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn report(&self, id: AttemptId, result: ReportResult) -> Result<(), ControlError> {
        let body = ReportRequest { result: result.name().to_owned() };
        self.0.empty(Call::post(format!("/v1/attempts/{id}/report")).json(&body)?).await
    }

    /// Starts the drain; `window` of at most 30 s, which is also the default.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn begin_drain(&self, window: Option<Duration>) -> Result<DrainResponse, ControlError> {
        let window_ms = window.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        self.0.json(Call::post("/v1/drain").json(&DrainRequest { window_ms })?).await
    }
}
