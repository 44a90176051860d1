//! How long does a page take that filters, out of a full store?

use rendezvous_shared::limits::{Limits, PAGE_LEN_DEFAULT};
use rendezvous_shared::store::{BrowseListings, Caller, Filter, Reply, Transition};

use crate::fleet::{Fleet, Lifetimes, limits};
use crate::rounds::{Floor, ROUNDS, seconds, summary};

const PAGES: usize = 200;

pub(crate) fn print() {
    println!(
        "µs a page of {PAGE_LEN_DEFAULT}, median of {ROUNDS} rounds (min-max); every listing is visible, of one"
    );
    println!("protocol and tenant, with attributes. A picky filter examines 512 entries and finds none.\n");
    println!("| listings | every second matches | the last attribute matches | picky |");
    println!("|---|---|---|---|");
    for listings in [1_000, Limits::DEFAULT.listings, Limits::LISTINGS_MAX] {
        let mut fleet = Fleet::new(limits(listings, 1_000), Lifetimes::FEW);
        fleet.register_browsable(listings);
        let caller = fleet.hosts[0].caller;
        let filters = [
            Filter { player_capacity_min: Some(17), ..Filter::default() },
            Filter {
                name_prefix: Some("listing".to_owned()),
                attributes: vec![("region".to_owned(), "eu".to_owned())],
                ..Filter::default()
            },
            Filter { attributes: vec![("region".to_owned(), "nowhere".to_owned())], ..Filter::default() },
        ];
        let mut floor = Floor::new(listings);
        let cells = filters.map(|filter| {
            let rounds = (0..ROUNDS).map(|_| walk(&mut fleet, caller, &filter) * 1e6 / PAGES as f64);
            let it = summary(rounds.collect());
            let floor = floor.measure(10_000) * 1e6;
            format!("{:.1} ({:.1}-{:.1}) [{:.0}]", it.median, it.min, it.max, it.median / floor)
        });
        println!("| {listings} | {} |", cells.join(" | "));
    }
}

/// Seconds of the store for [`PAGES`] pages, one behind the other.
fn walk(fleet: &mut Fleet, caller: Caller, filter: &Filter) -> f64 {
    let (mut spent, mut after) = (0.0, None);
    for _ in 0..PAGES {
        let page = Transition::BrowseListings(Box::new(BrowseListings {
            caller,
            protocol: Some("game/1".into()),
            owned: false,
            filter: filter.clone(),
            after,
            limit: PAGE_LEN_DEFAULT,
        }));
        let mut reply = None;
        spent += seconds(|| reply = Some(fleet.one(page)));
        let Some(Reply::Page(page)) = reply else { panic!("no page") };
        after = page.next_after;
    }
    spent
}
