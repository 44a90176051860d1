//! What drivers do when something goes wrong, over real sockets on loopback.
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

use model::{Faults, calls, gather, host_options, join, refreshed, registered, start_with, until};
use rendezvous_client::driver::host::{self, HostNews};
use rendezvous_client::driver::joiner::JoinOutcome;
use rendezvous_client::host::HostEvent;
use rendezvous_shared::id::{Handle, ListingId};
use tokio::sync::{mpsc, watch};
use world::server::Server;

#[tokio::test]
async fn a_forged_challenge_makes_no_second_listing_and_stops_no_join() {
    let (model, http) = start_with(Faults { forge: true, ..Faults::default() }).await;
    let (sender, mut news) = mpsc::channel(1024);
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(host::run(host_options(&http, model.clock), sender, stopped));
    let listing = until(&mut news, registered).await;
    until(&mut news, refreshed).await;
    let report = join(&http, listing, model.clock).await;
    assert_eq!(report.outcome, JoinOutcome::Connected);
    // Asked, and answered that all is well.
    until(&mut news, |it| matches!(it, HostNews::Renewed { .. }).then_some(())).await;
    let rest = gather(&mut news, Duration::from_secs(1)).await;
    assert!(!rest.iter().any(|it| matches!(it, HostNews::Registering)));
    assert!(rest.iter().any(|it| refreshed(it).is_some()));
    assert_eq!(calls(&http, "POST", "/v1/listings"), 2, "a listing and an attempt");
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn registrations_are_a_second_apart_whatever_happens() {
    let faults = Faults { forge: true, renewal_status: Some(404), ..Faults::default() };
    let (model, http) = start_with(faults).await;
    let (sender, mut news) = mpsc::channel(4096);
    let (_stop, stopped) = watch::channel(false);
    let running = tokio::spawn(host::run(host_options(&http, model.clock), sender, stopped));
    until(&mut news, registered).await;
    gather(&mut news, Duration::from_millis(2_500)).await;
    let times = calls(&http, "POST", "/v1/listings");
    assert!((2..=3).contains(&times), "{times}");
    running.abort();
}

#[tokio::test]
async fn a_join_ends_when_the_restarted_server_says_that_it_does_not_know_it() {
    let (model, http) = start_with(Faults { restart_after_attempt: true, ..Faults::default() }).await;
    let listing = ListingId::new(1, Handle(7));
    let report = join(&http, listing, model.clock).await;
    assert_eq!(report.outcome, JoinOutcome::ServerRestarted);
    assert!((1..=2).contains(&calls(&http, "GET", "/v1/attempts/")));
}

#[tokio::test]
async fn a_listing_that_is_gone_already_is_no_trouble_at_the_end() {
    for status in [404, 410] {
        let (model, http) = start_with(Faults { delete_status: Some(status), ..Faults::default() }).await;
        let (sender, mut news) = mpsc::channel(1024);
        let (stop, stopped) = watch::channel(false);
        let running = tokio::spawn(host::run(host_options(&http, model.clock), sender, stopped));
        until(&mut news, refreshed).await;
        stop.send(true).unwrap();
        running.await.unwrap().unwrap();
        let rest = gather(&mut news, Duration::from_millis(100)).await;
        assert!(!rest.iter().any(|it| matches!(it, HostNews::Trouble { .. })), "{rest:?}");
        assert_eq!(calls(&http, "DELETE", "/v1/listings/"), 1);
    }
}

fn trouble(news: &HostNews) -> Option<()> {
    matches!(news, HostNews::Trouble { .. }).then_some(())
}

#[tokio::test]
async fn a_resolvers_bad_moment_ends_no_host() {
    let (model, http) = start_with(Faults { unresolved: 1, ..Faults::default() }).await;
    let (sender, mut news) = mpsc::channel(1024);
    let (_stop, stopped) = watch::channel(false);
    let running = tokio::spawn(host::run(host_options(&http, model.clock), sender, stopped));
    until(&mut news, trouble).await;
    let first = until(&mut news, registered).await;
    until(&mut news, refreshed).await;
    // The same when it registers again.
    let mut server = Server::new(2);
    server.refresh_ms = 300;
    *model.server.lock().unwrap() = server;
    model.faults.lock().unwrap().unresolved = 1;
    until(&mut news, trouble).await;
    assert_ne!(until(&mut news, registered).await, first);
    until(&mut news, refreshed).await;
    running.abort();
}

/// The registration was done, its answers were lost until its lease had ended, and the same key is answered `expired`
/// for as long as its record lives.
#[tokio::test]
async fn a_registration_whose_listing_is_over_already_is_made_anew() {
    let faults = Faults { registrations_over: 1, ..Faults::default() };
    let (model, http) = start_with(faults).await;
    let (sender, mut news) = mpsc::channel(1024);
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(host::run(host_options(&http, model.clock), sender, stopped));
    until(&mut news, registered).await;
    until(&mut news, refreshed).await;
    // The same when it registers again.
    let mut server = Server::new(2);
    server.refresh_ms = 300;
    *model.server.lock().unwrap() = server;
    model.faults.lock().unwrap().registrations_over = 1;
    until(&mut news, registered).await;
    until(&mut news, refreshed).await;
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_pause_before_the_next_registration_ends_when_told_to_stop() {
    let (model, http) = start_with(Faults { unresolved: usize::MAX, ..Faults::default() }).await;
    let (sender, mut news) = mpsc::channel(1024);
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(host::run(host_options(&http, model.clock), sender, stopped));
    until(&mut news, trouble).await;
    stop.send(true).unwrap();
    let ended = tokio::time::timeout(Duration::from_millis(250), running).await;
    ended.expect("at once").unwrap().unwrap();
}

#[tokio::test]
async fn a_key_that_a_renewal_under_way_superseded_is_no_reason_to_register() {
    let (model, http) = start_with(Faults { rotate: true, ..Faults::default() }).await;
    let (sender, mut news) = mpsc::channel(1024);
    let (_stop, stopped) = watch::channel(false);
    let running = tokio::spawn(host::run(host_options(&http, model.clock), sender, stopped));
    let refused = |it: &HostNews| matches!(it, HostNews::Event(it) if matches!(it.event, HostEvent::PresenceRefused(_)));
    until(&mut news, |it| refused(it).then_some(())).await;
    until(&mut news, |it| matches!(it, HostNews::Renewed { .. }).then_some(())).await;
    until(&mut news, refreshed).await;
    gather(&mut news, Duration::from_millis(1_500)).await;
    assert_eq!(calls(&http, "POST", "/v1/listings"), 1);
    running.abort();
}

#[tokio::test]
async fn a_key_that_stays_refused_is_replaced_by_a_registration() {
    let (model, http) = start_with(Faults::default()).await;
    let (sender, mut news) = mpsc::channel(1024);
    let (_stop, stopped) = watch::channel(false);
    let running = tokio::spawn(host::run(host_options(&http, model.clock), sender, stopped));
    until(&mut news, refreshed).await;
    model.server.lock().unwrap().refuse_presence = Some(1);
    until(&mut news, registered).await;
    model.server.lock().unwrap().refuse_presence = None;
    until(&mut news, refreshed).await;
    running.abort();
}

#[tokio::test]
async fn a_renewal_refused_for_good_is_told_once_and_repeated_slowly() {
    let faults = Faults { renewal_status: Some(403), forge: true, ..Faults::default() };
    let (model, http) = start_with(faults).await;
    let (sender, mut news) = mpsc::channel(1024);
    let (_stop, stopped) = watch::channel(false);
    let running = tokio::spawn(host::run(host_options(&http, model.clock), sender, stopped));
    until(&mut news, refreshed).await;
    let rest = gather(&mut news, Duration::from_secs(3)).await;
    assert_eq!(rest.iter().filter_map(trouble).count(), 1);
    assert_eq!((calls(&http, "PUT", "/"), calls(&http, "POST", "/")), (1, 1));
    assert!(rest.iter().filter_map(refreshed).count() >= 5, "the host goes on meanwhile");
    running.abort();
}

#[tokio::test]
async fn a_due_renewal_displaces_a_query_for_waiting_attempts() {
    let (model, http) = start_with(Faults { queries_hang: 1, ..Faults::default() }).await;
    model.server.lock().unwrap().ack_flags = 1;
    let (sender, mut news) = mpsc::channel(1024);
    let (_stop, stopped) = watch::channel(false);
    let running = tokio::spawn(host::run(host_options(&http, model.clock), sender, stopped));
    until(&mut news, registered).await;
    let rest = gather(&mut news, Duration::from_secs(2)).await;
    let renewals = rest.iter().filter(|it| matches!(it, HostNews::Renewed { .. })).count();
    assert!(renewals >= 2, "{renewals}: the lease is 1.5 s");
    assert!(calls(&http, "GET", "/v1/listings/") >= 2, "the query comes after");
    running.abort();
}
