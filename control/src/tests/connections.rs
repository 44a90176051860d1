//! What slow, silent, fat and many clients get, and how a listener ends.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rendezvous_shared::limits;
use rendezvous_shared::store::Reply;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::sample::attempt_id;
use super::{ALL, Answered, Server, key, to_end};
use crate::{HttpOptions, Surface};

fn quick() -> HttpOptions {
    HttpOptions {
        header_timeout: Duration::from_millis(200),
        body_timeout: Duration::from_millis(200),
        idle_timeout: Duration::from_millis(300),
        shutdown_grace: Duration::from_millis(300),
        ..HttpOptions::default()
    }
}

async fn quick_server() -> Server {
    Server::with(Surface::Public, quick()).await
}

/// Sends `bytes`, then nothing; the server must close, and not before half the deadline.
async fn ends_after(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = server.connect().await;
    stream.write_all(bytes).await.unwrap();
    let mut probe = [0; 1];
    let early = timeout(Duration::from_millis(100), stream.peek(&mut probe)).await;
    assert!(!matches!(early, Ok(Ok(0))), "closed before its deadline");
    timeout(Duration::from_secs(2), to_end(&mut stream)).await.expect("closed by its deadline")
}

#[tokio::test]
async fn silence_ends_at_the_deadline_wherever_it_starts() {
    let server = quick_server().await;
    for bytes in [
        &b""[..],
        b"P",
        b"PRI * HTTP",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\n",
    ] {
        ends_after(&server, bytes).await;
    }
    // An idle kept-alive connection too, after its answer.
    let answer = ends_after(&server, b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(Answered::parse(&answer).status, 200);
    assert_eq!(server.control.gates.figures().open, 0);
}

#[tokio::test]
async fn a_dripped_head_ends_at_the_deadline() {
    let server = quick_server().await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
    let drip = async {
        for number in 0_u64.. {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if stream.write_all(format!("x-{number}: y\r\n").as_bytes()).await.is_err() {
                return;
            }
        }
    };
    timeout(Duration::from_secs(2), drip).await.expect("closed while it dripped");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_408() {
    let server = quick_server().await;
    let head = format!(
        "POST /v1/listings HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         idempotency-key: k\r\ncontent-length: 10\r\n\r\n{{",
        key(ALL)
    );
    let answer = ends_after(&server, head.as_bytes()).await;
    Answered::parse(&answer).problem(408, "invalid_body_timeout");
}

#[tokio::test]
async fn too_many_and_too_long_headers_are_431() {
    let server = quick_server().await;
    let names: Vec<String> = (0..63).map(|it| format!("x-{it}")).collect();
    let headers: Vec<(&str, &str)> = names.iter().map(|it| (it.as_str(), "y")).collect();
    // host, connection and content-length come on top.
    assert_eq!(server.send("GET", "/livez", &headers[..61], b"").await.status, 200, "64");
    assert_eq!(server.send("GET", "/livez", &headers[..62], b"").await.status, 431, "65");
    let long = "y".repeat(17 * 1024);
    assert_eq!(server.send("GET", "/livez", &[("x", long.as_str())], b"").await.status, 431);
    let fits = "y".repeat(15 * 1024);
    assert_eq!(server.send("GET", "/livez", &[("x", fits.as_str())], b"").await.status, 200);
}

#[tokio::test]
async fn too_long_a_body_is_413_announced_or_not() {
    let server = quick_server().await;
    let long = vec![b' '; 65 * 1024];
    let authorization = format!("Bearer {}", key(ALL));
    let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
    server.send("POST", "/v1/listings", &headers, &long).await.problem(413, "invalid_body_length");

    let mut stream = server.connect().await;
    let head = format!(
        "POST /v1/listings HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\n\
         content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..66 {
        if stream.write_all(format!("400\r\n{}\r\n", " ".repeat(1024)).as_bytes()).await.is_err() {
            break;
        }
    }
    Answered::parse(&to_end(&mut stream).await).problem(413, "invalid_body_length");

    let exact = super::sample::REGISTER.to_owned();
    let exact = exact.clone() + &" ".repeat(limits::BODY_LEN_MAX - exact.len());
    server.call(ALL, "POST", "/v1/listings", &exact).await.problem(503, "service_unavailable");
}

#[tokio::test]
async fn connections_above_a_ceiling_are_closed_at_once_and_counted() {
    let options = HttpOptions { connections_per_address_max: 2, ..HttpOptions::default() };
    let server = Server::with(Surface::Public, options).await;
    let held = [server.connect().await, server.connect().await];
    let mut third = server.connect().await;
    assert!(timeout(Duration::from_secs(2), to_end(&mut third)).await.unwrap().is_empty());
    let figures = server.control.gates.figures();
    assert_eq!((figures.open, figures.refused_per_address, figures.refused_total), (2, 1, 0));
    drop(held);
    // A place is free again once the server saw the ends.
    let freed = async {
        while server.control.gates.figures().open > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(2), freed).await.unwrap();
    assert_eq!(server.call(ALL, "GET", "/livez", "").await.status, 200);
}

#[tokio::test]
async fn shutdown_ends_idle_connections_and_lets_a_running_request_finish() {
    let mut server = Server::start().await;
    let release = Arc::new(Notify::new());
    let released = Arc::clone(&release);
    server.script(move |_| {
        let released = Arc::clone(&released);
        Box::pin(async move {
            released.notified().await;
            Ok(Reply::Cancelled)
        })
    });
    let mut silent = server.connect().await;
    let mut idle = server.connect().await;
    idle.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 1024];
    assert!(idle.read(&mut first).await.unwrap() > 0);
    let mut running = server.connect().await;
    let head = format!(
        "DELETE /v1/attempts/{} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        attempt_id(),
        key(ALL)
    );
    running.write_all(head.as_bytes()).await.unwrap();
    while server.store.seen.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.shutdown.send(true).unwrap();
    assert!(to_end(&mut idle).await.is_empty());
    assert!(to_end(&mut silent).await.is_empty());
    release.notify_one();
    assert_eq!(Answered::parse(&to_end(&mut running).await).status, 204);
    timeout(Duration::from_secs(1), &mut server.task).await.expect("serve returns").unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn shutdown_does_not_wait_for_ever() {
    let mut server = quick_server().await;
    server.script(|_| Box::pin(std::future::pending()));
    let mut held = server.connect().await;
    let head =
        format!("GET /v1/attempts/{} HTTP/1.1\r\nauthorization: Bearer {}\r\n\r\n", attempt_id(), key(ALL));
    held.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.shutdown.send(true).unwrap();
    timeout(Duration::from_secs(2), &mut server.task).await.expect("serve returns").unwrap();
}

#[tokio::test]
async fn http2_is_spoken_and_counts_headers_too() {
    let server = quick_server().await;
    let io = TokioIo::new(server.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake::<_, _, Empty<hyper::body::Bytes>>(TokioExecutor::new(), io)
            .await
            .unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{}/livez", server.address);
    let answer = sender.send_request(http::Request::get(&uri).body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_2));
    let mut request = http::Request::get(&uri);
    for number in 0..65 {
        request = request.header(format!("x-{number}"), "y");
    }
    let answer = sender.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(answer.status().as_u16(), 431);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"{\"type\":\"about:blank\""), "{body:?}");
}

#[tokio::test]
async fn a_long_body_over_http2_is_413() {
    let server = quick_server().await;
    let io = TokioIo::new(server.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{}/v1/listings", server.address))
        .header("authorization", format!("Bearer {}", key(ALL)))
        .header("content-type", "application/json")
        .body(Full::new(hyper::body::Bytes::from(vec![b' '; 65 * 1024])))
        .unwrap();
    let answer = timeout(Duration::from_secs(2), sender.send_request(request)).await.unwrap().unwrap();
    assert_eq!(answer.status().as_u16(), 413);
}
