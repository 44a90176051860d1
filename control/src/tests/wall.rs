//! The wall clock informs, and decides nothing.

use std::sync::atomic::Ordering;

use rendezvous_shared::api;
use rendezvous_shared::store::{Reply, Transition};

use super::sample::{REGISTER, grant, listing, listing_id};
use super::{HOST, Server, WALL_MS};

/// A day.
const DAY_MS: i64 = 24 * 3600 * 1000;

/// "Wall time is used only to return an informational ExpiresAt value. Moving the wall clock forward or backward cannot
/// expire or prolong authority": what the store is asked, and what is left of a lease, stay the same.
#[tokio::test]
async fn the_wall_clock_decides_nothing() {
    let server = Server::start().await;
    let path = format!("/v1/listings/{}", listing_id());
    let mut told = Vec::new();
    for moved in [0, DAY_MS, -DAY_MS] {
        server.wall.store(WALL_MS + moved, Ordering::Relaxed);
        server.answer(Ok(Reply::Registered(Box::new(grant(false)))));
        assert_eq!(server.call(HOST, "POST", "/v1/listings", REGISTER).await.status, 201);
        let Transition::RegisterListing(asked) = server.last() else { panic!("something else was asked") };
        server.answer(Ok(Reply::Listing(Box::new(listing(true)))));
        let body: api::ListingBody =
            serde_json::from_str(&server.call(HOST, "GET", &path, "").await.body).unwrap();
        let lease = body.lease.unwrap();
        let presence = body.presence_remaining_ms;
        told.push((format!("{asked:?}"), lease.remaining_ms, presence, lease.expires_at));
    }
    let decided = |it: &(String, _, _, String)| (it.0.clone(), it.1, it.2);
    assert!(told.iter().all(|it| decided(it) == decided(&told[0])), "{told:?}");
    let dates: Vec<_> = told.iter().map(|it| &it.3[..10]).collect();
    assert_eq!(dates, ["2027-01-15", "2027-01-16", "2027-01-14"], "it informs");
}
