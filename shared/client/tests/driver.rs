//! The whole course over real sockets on loopback, with the modelled server behind them.
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test; clippy takes only test functions for one"
)]
#![expect(dead_code, reason = "the world is used in part")]

mod http;
mod model;
mod world;

use std::time::Duration;

use model::{calls, host_options, join, refreshed, registered, start, until};
use rendezvous_client::AttemptEvent;
use rendezvous_client::driver::host::{self, HostNews};
use rendezvous_client::driver::joiner::JoinOutcome;
use rendezvous_client::host::HostEvent;
use rendezvous_shared::time::Clock;
use tokio::sync::{mpsc, watch};
use world::server::Server;

#[tokio::test]
async fn hosts_serve_joiners_renew_survive_a_restart_and_leave() {
    let (model, http) = start().await;
    let (sender, mut news) = mpsc::channel(1024);
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(host::run(host_options(&http, model.clock), sender, stopped));
    let listing = until(&mut news, registered).await;
    until(&mut news, refreshed).await;
    // Three at once.
    let (a, b, c) = tokio::join!(
        join(&http, listing, model.clock),
        join(&http, listing, model.clock),
        join(&http, listing, model.clock)
    );
    for report in [a, b, c] {
        assert_eq!((report.outcome, report.sent, report.received), (JoinOutcome::Connected, 3, 3));
        assert!(report.introduced > Some(report.created) && report.connected >= report.introduced);
    }
    until(&mut news, |it| matches!(it, HostNews::Renewed { version: 6 }).then_some(())).await;
    // Another instance, which knows nothing.
    let mut server = Server::new(2);
    server.refresh_ms = 300;
    *model.server.lock().unwrap() = server;
    model.faults.lock().unwrap().renewals_lost = 2;
    let restarted = model.clock.now();
    let again = until(&mut news, registered).await;
    assert_ne!(again, listing);
    until(&mut news, refreshed).await;
    let took = model.clock.now().since(restarted);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(calls(&http, "POST", "/v1/listings"), 1 + 3 + 1);
    let report = join(&http, again, model.clock).await;
    assert_eq!((report.outcome, report.received), (JoinOutcome::Connected, 3));
    until(&mut news, |it| match it {
        HostNews::Event(it) => {
            matches!(&it.event, HostEvent::Attempt { event: AttemptEvent::Message { .. }, .. }).then_some(())
        }
        _ => None,
    })
    .await;
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
    assert_eq!(model.server.lock().unwrap().byes, 1);
    let seen = http.seen.lock().unwrap();
    assert_eq!(seen.last().map(|it| it.method.as_str()), Some("DELETE"));
}
