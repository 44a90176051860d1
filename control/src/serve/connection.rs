//! One connection, from its first byte to its end.
//!
//! hyper's header timeout covers HTTP/1 only and hyper-util's protocol sniffing has no timeout at all, so the
//! first bytes are read here, under a deadline, until they show which protocol it is.

use std::io::Cursor;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rendezvous_shared::limits;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tower::ServiceExt;

use super::{HttpOptions, stopped};

/// What an HTTP/2 client sends first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Streams of one HTTP/2 connection: as many as there are places for HTTP in front of the store.
const STREAMS_MAX: u32 = limits::HTTP_LANE_MAX as u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// Requests of one connection.
#[derive(Default)]
struct Activity {
    started: AtomicU64,
    running: AtomicU64,
}

/// Counts a request as running while it lives, however it ends.
struct Running(Arc<Activity>);

impl Running {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.started.fetch_add(1, Ordering::Relaxed);
        activity.running.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(activity))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves `stream` until either side has enough, `shutdown` fires, or a deadline passes.
pub(super) async fn run(
    mut stream: TcpStream,
    router: Router,
    options: &HttpOptions,
    mut shutdown: watch::Receiver<bool>,
) {
    let sniffed = tokio::select! {
        () = stopped(&mut shutdown) => return,
        sniffed = tokio::time::timeout(options.header_timeout, sniff(&mut stream)) => sniffed,
    };
    let Ok(Ok((protocol, first))) = sniffed else { return };
    let (read, write) = stream.into_split();
    let io = TokioIo::new(tokio::io::join(Cursor::new(first).chain(read), write));
    let activity = Arc::new(Activity::default());
    let of_requests = Arc::clone(&activity);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let running = Running::new(&of_requests);
        router.clone().oneshot(request.map(Body::new)).map(move |response| {
            drop(running);
            response
        })
    });
    match protocol {
        Protocol::Http1 => {
            let connection = http1_builder(options).serve_connection(io, service);
            drive(connection, &activity, options, shutdown).await;
        }
        Protocol::Http2 => {
            let connection = http2_builder(options).serve_connection(io, service);
            drive(connection, &activity, options, shutdown).await;
        }
    }
}

/// Reads until the bytes are the HTTP/2 preface or cannot become it.
async fn sniff(stream: &mut TcpStream) -> std::io::Result<(Protocol, Vec<u8>)> {
    let mut first = Vec::with_capacity(PREFACE.len());
    loop {
        let mut rest = [0; PREFACE.len()];
        let wanted = PREFACE.len() - first.len();
        let len = stream.read(&mut rest[..wanted]).await?;
        if len == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        first.extend_from_slice(&rest[..len]);
        if !PREFACE.starts_with(&first) {
            return Ok((Protocol::Http1, first));
        }
        if first.len() == PREFACE.len() {
            return Ok((Protocol::Http2, first));
        }
    }
}

fn http1_builder(options: &HttpOptions) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_timeout)
        .max_headers(limits::HEADERS_MAX)
        .max_header_size(limits::HEADER_BYTES_MAX)
        .max_buf_size(limits::HEADER_BYTES_MAX);
    builder
}

fn http2_builder(options: &HttpOptions) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(limits::HEADER_BYTES_MAX as u32)
        .max_concurrent_streams(STREAMS_MAX)
        // A stream's window is a body's ceiling, the connection's a few of them: what a client may make us hold.
        .initial_stream_window_size(limits::BODY_LEN_MAX as u32)
        .initial_connection_window_size(4 * limits::BODY_LEN_MAX as u32)
        .max_send_buf_size(limits::BODY_LEN_MAX)
        .keep_alive_interval(options.header_timeout)
        .keep_alive_timeout(options.header_timeout);
    builder
}

/// The two kinds of connections, which hyper gives no trait in common.
trait Ends: Future<Output = hyper::Result<()>> {
    fn end(self: Pin<&mut Self>);
}

impl<I, S> Ends for http1::Connection<TokioIo<I>, S>
where
    I: AsyncRead + AsyncWrite + Unpin + 'static,
    S: Service<hyper::Request<Incoming>, Response = Response>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn end(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, S> Ends for http2::Connection<TokioIo<I>, S, TokioExecutor>
where
    I: AsyncRead + AsyncWrite + Unpin + 'static,
    S: Service<hyper::Request<Incoming>, Response = Response>,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn end(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Runs `connection` to its end: its own, or a graceful one with a deadline on shutdown or idleness.
async fn drive(
    connection: impl Ends,
    activity: &Activity,
    options: &HttpOptions,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut connection = pin!(connection);
    tokio::select! {
        ended = &mut connection => return log_end(ended),
        () = stopped(&mut shutdown) => {}
        () = idle(activity, options.idle_timeout) => {}
    }
    connection.as_mut().end();
    // Dropping what is left closes it.
    if let Ok(ended) = tokio::time::timeout(options.shutdown_grace, connection).await {
        log_end(ended);
    }
}

/// Resolves when no request ran or started for a whole `timeout`.
async fn idle(activity: &Activity, timeout: Duration) {
    let mut started_before = None;
    loop {
        let started = activity.started.load(Ordering::Relaxed);
        if started_before == Some(started) && activity.running.load(Ordering::Relaxed) == 0 {
            return;
        }
        started_before = Some(started);
        tokio::time::sleep(timeout).await;
    }
}

/// A client that breaks off or dawdles is everyday life.
fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
