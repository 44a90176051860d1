//! A tiny HTTP server whose answers the test writes.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rendezvous_client::control::{ControlClient, ControlOptions};
use tokio::net::TcpListener;

#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Status, `Retry-After`, body. Status 0 closes the connection without an answer, 1 never answers, and 1000 more than
/// a status answers with that after 700 ms.
pub type Answer = (u16, Option<u32>, String);

pub struct Http {
    pub url: String,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

impl Http {
    pub async fn serve(answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), seen.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answer, log) = (answer.clone(), log.clone());
                let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let (answer, log) = (answer.clone(), log.clone());
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let path = head.uri.to_string();
                        let seen = Seen { method: head.method, path, headers: head.headers, body };
                        log.lock().unwrap().push(seen.clone());
                        let (mut status, retry_after, body) = answer(&seen);
                        if status == 1 {
                            std::future::pending::<()>().await;
                        }
                        if status > 1000 {
                            status -= 1000;
                            tokio::time::sleep(std::time::Duration::from_millis(700)).await;
                        }
                        if status == 0 {
                            return Err(std::io::Error::other("closed as the test wants"));
                        }
                        let mut response = Response::builder().status(status);
                        if let Some(seconds) = retry_after {
                            response = response.header("retry-after", seconds);
                        }
                        Ok(response.body(Full::new(Bytes::from(body))).unwrap())
                    }
                });
                tokio::spawn(async move {
                    let io = TokioIo::new(stream);
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                    Ok::<(), Infallible>(())
                });
            }
        });
        Self { url, seen }
    }

    pub fn client(&self) -> ControlClient {
        ControlClient::new(&self.url, "rvk_test_secret", ControlOptions::default()).unwrap()
    }
}
