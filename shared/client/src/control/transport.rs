//! One request over HTTP/1.1 with its retries.

use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rendezvous_shared::api::Problem;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::{ControlError, ControlOptions};

/// Longest answer read: a page of 100 listings with all their attributes is below it.
const ANSWER_LEN_MAX: usize = 2 * 1024 * 1024;
/// Pause before the first retry when the server names none; doubles.
const PAUSE_MIN: Duration = Duration::from_millis(250);

/// A request to be made.
pub(super) struct Call {
    method: Method,
    path: String,
    body: Bytes,
    key: Option<HeaderValue>,
    wait: Duration,
}

impl Call {
    pub(super) fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), body: Bytes::new(), key: None, wait: Duration::ZERO }
    }

    pub(super) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(super) fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    pub(super) fn json(mut self, body: &impl Serialize) -> Result<Self, ControlError> {
        let bytes = serde_json::to_vec(body).map_err(|error| ControlError::Malformed(error.to_string()))?;
        self.body = bytes.into();
        Ok(self)
    }

    /// A key that is no header value is left out, and the server says that it is missing.
    pub(super) fn key(mut self, key: &str) -> Self {
        self.key = HeaderValue::from_str(key).ok();
        self
    }

    pub(super) const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    pub(super) fn query(mut self, name: &str, value: &str) -> Self {
        self.path.push(if self.path.contains('?') { '&' } else { '?' });
        encode(name, &mut self.path);
        self.path.push('=');
        encode(value, &mut self.path);
        self
    }
}

/// Percent-encodes all but the unreserved characters of RFC 3986.
fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[derive(Clone)]
pub(super) struct Transport {
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
    bearer: HeaderValue,
    options: ControlOptions,
    slots: Arc<Semaphore>,
}

impl Transport {
    pub(super) fn new(base: &Uri, api_key: &str, options: ControlOptions) -> Result<Self, ControlError> {
        match base.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(ControlError::Unsupported(
                    "https; this client speaks plain http, use a local proxy",
                ));
            }
            _ => return Err(ControlError::Unsupported("a URL that does not begin with http://")),
        }
        let authority = base.authority().ok_or(ControlError::Unsupported("a URL without a host"))?;
        let mut bearer = HeaderValue::from_str(&format!("Bearer {api_key}"))
            .map_err(|_| ControlError::Unsupported("an API key with characters no header can carry"))?;
        bearer.set_sensitive(true);
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(options.timeout));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(20))
            .pool_max_idle_per_host(options.concurrency)
            .build(connector);
        let slots = Arc::new(Semaphore::new(options.concurrency.max(1)));
        let base = format!("http://{authority}{}", base.path().trim_end_matches('/'));
        Ok(Self { client, base, bearer, options, slots })
    }

    pub(super) fn with_tries(&self, tries: u32) -> Self {
        let mut other = self.clone();
        other.options.tries = tries;
        other
    }

    pub(super) const fn base(&self) -> &String {
        &self.base
    }

    pub(super) async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T, ControlError> {
        let body = self.with_retries(&call).await?;
        serde_json::from_slice(&body).map_err(|error| ControlError::Malformed(error.to_string()))
    }

    pub(super) async fn empty(&self, call: Call) -> Result<(), ControlError> {
        self.with_retries(&call).await.map(|_| ())
    }

    async fn with_retries(&self, call: &Call) -> Result<Bytes, ControlError> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| ControlError::Unreachable(error.to_string()))?;
        let mut rng = SmallRng::seed_from_u64(u64::from_be_bytes(seed));
        let mut pause = PAUSE_MIN;
        for _ in 1..self.options.tries.max(1) {
            let error = match self.once(call).await {
                Ok(body) => return Ok(body),
                Err(error) => error,
            };
            let asked = match &error {
                ControlError::Unreachable(_) => None,
                ControlError::Problem { problem, retry_after } if problem.status == 503 => *retry_after,
                _ => return Err(error),
            };
            // The server's hint is the least to wait; jitter comes on top, so that a crowd spreads.
            let wait = asked.unwrap_or(pause).mul_f64(rng.random_range(1.0..1.5));
            if asked.is_some_and(|asked| asked > self.options.pause_max) {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(self.options.pause_max);
        }
        self.once(call).await
    }

    async fn once(&self, call: &Call) -> Result<Bytes, ControlError> {
        let _slot =
            self.slots.acquire().await.map_err(|error| ControlError::Unreachable(error.to_string()))?;
        let request = self.request(call)?;
        let exchange = async {
            let response = self.client.request(request).await.map_err(|error| unreachable(&error))?;
            read(response).await
        };
        tokio::time::timeout(self.options.timeout + call.wait, exchange)
            .await
            .unwrap_or_else(|_| Err(ControlError::Unreachable("no answer in time".to_owned())))
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>, ControlError> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", self.base, call.path))
            .header(AUTHORIZATION, self.bearer.clone());
        if let Some(key) = &call.key {
            request = request.header("idempotency-key", key.clone());
        }
        if !call.body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        request.body(Full::new(call.body.clone())).map_err(|error| ControlError::Malformed(error.to_string()))
    }
}

async fn read(response: Response<Incoming>) -> Result<Bytes, ControlError> {
    let status = response.status();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok())
        .map(Duration::from_secs);
    let body = Limited::new(response.into_body(), ANSWER_LEN_MAX)
        .collect()
        .await
        .map_err(|error| ControlError::Unreachable(error.to_string()))?
        .to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    Err(ControlError::Problem { problem: Box::new(problem(status, &body)), retry_after })
}

/// The problem in `body`; where there is none (a proxy answered), what the status says.
fn problem(status: StatusCode, body: &[u8]) -> Problem {
    serde_json::from_slice(body).unwrap_or_else(|_| Problem {
        kind: "about:blank".to_owned(),
        title: status.canonical_reason().unwrap_or_default().to_owned(),
        status: status.as_u16(),
        code: "unknown".to_owned(),
        detail: "the answer is no problem document".to_owned(),
        ..Problem::default()
    })
}

/// The error with its causes, which name the address and what the system said.
fn unreachable(error: &hyper_util::client::legacy::Error) -> ControlError {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    ControlError::Unreachable(text)
}
