//! Browsing.

use std::collections::BTreeSet;

use super::{Harness, JOINER, OWNER, STRANGER, THIRD, World, description};
use crate::id::ListingId;
use crate::limits::{ATTRIBUTES_MAX, PAGE_EXAMINED_MAX, PAGE_LEN_MAX};
use crate::outcome::Pool;
use crate::store::{DescriptionParts, ListingGrant, Reply, Visibility};

fn with_description<H: Harness>(
    w: &mut World<'_, H>,
    change: impl FnOnce(&mut DescriptionParts),
) -> ListingGrant {
    let mut request = w.registration(OWNER);
    request.description = description(change);
    let grant = w.registered(&request);
    w.present(grant.lease.presence_key, super::v4(1, 4000));
    grant
}

fn ids(page: &crate::store::Page) -> Vec<ListingId> {
    page.listings.iter().map(|it| it.id).collect()
}

/// "Public browsing is tenant/protocol scoped."
pub fn scoped_by_tenant_and_protocol<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let id = w.joinable(OWNER).view.id;
    let other = with_description(&mut w, |it| it.protocol = "game/2".into()).view.id;
    assert_eq!(ids(&w.browse(JOINER, |_| ())), [id]);
    assert_eq!(ids(&w.browse(JOINER, |it| it.protocol = Some("game/2".into()))), [other]);
    assert!(w.browse(JOINER, |it| it.protocol = Some("game".into())).listings.is_empty());
    assert!(w.browse(JOINER, |it| it.protocol = None).listings.is_empty());
    assert!(w.browse(STRANGER, |_| ()).listings.is_empty());
    // A protocol that nothing speaks any more leaves its place to no other's listings.
    assert_eq!(w.delete(OWNER, id), Reply::Deleted);
    assert_eq!(w.used(Pool::Listings), 1);
    let third = with_description(&mut w, |it| it.protocol = "game/3".into()).view.id;
    assert_eq!(ids(&w.browse(JOINER, |it| it.protocol = Some("game/2".into()))), [other]);
    assert_eq!(ids(&w.browse(JOINER, |it| it.protocol = Some("game/3".into()))), [third]);
}

/// "Excludes unlisted sessions."
pub fn unlisted_are_excluded<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    with_description(&mut w, |it| it.visibility = Visibility::Unlisted);
    assert!(w.browse(JOINER, |_| ()).listings.is_empty());
    assert!(w.browse(OWNER, |_| ()).listings.is_empty());
    assert_eq!(w.browse(OWNER, |it| it.owned = true).listings.len(), 1);
}

/// "Uses a stable listing-ID order."
pub fn order_is_stable<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let all: BTreeSet<_> = (0..20).map(|_| w.joinable(OWNER).view.id).collect();
    let sorted: Vec<_> = all.into_iter().collect();
    for _ in 0..2 {
        assert_eq!(ids(&w.browse(JOINER, |_| ())), sorted);
    }
}

/// "With the contract page ceiling."
pub fn pages_have_a_ceiling<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    (0..=PAGE_LEN_MAX).for_each(|_| drop(w.joinable(OWNER)));
    for (limit, expected) in [(1, 1), (7, 7), (PAGE_LEN_MAX, PAGE_LEN_MAX), (usize::MAX, PAGE_LEN_MAX)] {
        let page = w.browse(JOINER, |it| it.limit = limit);
        assert_eq!(page.listings.len(), expected);
        assert_eq!(page.next_after, page.listings.last().map(|it| it.id));
    }
    let all: Vec<_> = ids(&w.browse(JOINER, |it| it.limit = PAGE_LEN_MAX));
    let rest = w.browse(JOINER, |it| it.after = all.last().copied());
    assert_eq!((rest.listings.len(), rest.next_after), (1, None));
}

/// "A page examines at most 512 entries and may come back short with a cursor."
pub fn a_page_examines_a_bounded_number<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let picky = |it: &mut crate::store::BrowseListings| it.filter.player_capacity_min = Some(1_000);
    let all: BTreeSet<_> = (0..PAGE_EXAMINED_MAX).map(|_| w.joinable(OWNER).view.id).collect();
    let page = w.browse(JOINER, picky);
    assert_eq!((page.listings.len(), page.next_after), (0, None), "512 are one page");
    let extra = w.joinable(OWNER).view.id;
    let page = w.browse(JOINER, picky);
    let last =
        all.iter().chain([&extra]).copied().collect::<BTreeSet<_>>().into_iter().nth(PAGE_EXAMINED_MAX - 1);
    assert_eq!((page.listings.len(), page.next_after), (0, last));
    let rest = w.browse(JOINER, |it| {
        picky(it);
        it.after = last;
    });
    assert_eq!((rest.listings.len(), rest.next_after), (0, None));
}

/// "A listing that existed throughout a paging walk is seen exactly once", whatever comes and goes meanwhile.
pub fn a_walk_sees_each_exactly_once<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let stable: BTreeSet<_> = (0..40).map(|_| w.joinable(OWNER).view.id).collect();
    let mut fleeting = Vec::new();
    let (mut seen, mut after) = (Vec::new(), None);
    for _ in 0..1_000 {
        let page = w.browse(JOINER, |it| (it.limit, it.after) = (3, after));
        seen.extend(ids(&page));
        fleeting.push(w.joinable(THIRD).view.id);
        if let Some(gone) = (fleeting.len() > 3).then(|| fleeting.remove(0)) {
            assert_eq!(w.delete(THIRD, gone), Reply::Deleted);
        }
        after = page.next_after;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(after, None, "the walk ends");
    assert!(seen.is_sorted() && seen.windows(2).all(|pair| pair[0] != pair[1]), "nothing is seen twice");
    assert!(stable.iter().all(|id| seen.contains(id)), "nothing that stayed is missed");
}

/// "Filters on attributes, player capacity, name prefix."
pub fn filters_hold<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let id = with_description(&mut w, |it| {
        it.name = "Castle siege".to_owned();
        it.player_capacity = 16;
        it.attributes = vec![("map".to_owned(), "north".to_owned()), ("mode".to_owned(), "ctf".to_owned())];
    })
    .view
    .id;
    w.joinable(OWNER);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(ids(&w.browse(JOINER, |it| it.filter.name_prefix = Some("Castle".to_owned()))), [id]);
    assert!(ids(&w.browse(JOINER, |it| it.filter.name_prefix = Some("siege".to_owned()))).is_empty());
    assert_eq!(ids(&w.browse(JOINER, |it| it.filter.attributes = vec![pair("mode", "ctf")])), [id]);
    assert!(ids(&w.browse(JOINER, |it| it.filter.attributes = vec![pair("mode", "c")])).is_empty());
    for (map, found) in [("north", vec![id]), ("south", vec![])] {
        let both = || vec![pair("mode", "ctf"), pair("map", map)];
        assert_eq!(ids(&w.browse(JOINER, |it| it.filter.attributes = both())), found, "each must fit");
    }
    // One that has many attributes seems to have others, too, to whoever takes a short cut.
    let many = with_description(&mut w, |it| {
        it.name = "All of it".to_owned();
        it.player_capacity = 16;
        it.attributes = (0..ATTRIBUTES_MAX).map(|it| pair(&format!("k{it:02}"), "on")).collect();
    });
    for value in 0..64 {
        let both = |value: &str| vec![pair("k00", "on"), pair("k01", value)];
        let other = value.to_string();
        assert!(ids(&w.browse(JOINER, |it| it.filter.attributes = both(&other))).is_empty(), "{value}");
        assert_eq!(ids(&w.browse(JOINER, |it| it.filter.attributes = both("on"))), [many.view.id]);
    }
    assert_eq!(w.delete(OWNER, many.view.id), Reply::Deleted);
    assert_eq!(ids(&w.browse(JOINER, |it| it.filter.player_capacity_min = Some(16))), [id]);
    assert!(ids(&w.browse(JOINER, |it| it.filter.player_capacity_min = Some(17))).is_empty());
    assert_eq!(w.browse(JOINER, |it| it.filter.player_capacity_max = Some(16)).listings.len(), 2);
    assert_eq!(w.browse(JOINER, |it| it.filter.player_capacity_max = Some(15)).listings.len(), 1);
}

/// "`owner=me` lists one's own, visible or not."
pub fn owned_shows_what_is_not_visible<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let id = w.register(OWNER).view.id;
    assert!(
        w.browse(OWNER, |_| ()).listings.is_empty(),
        "not visible without presence, to its owner neither"
    );
    let page = w.browse(OWNER, |it| (it.owned, it.protocol) = (true, None));
    assert_eq!(ids(&page), [id]);
    assert!(page.listings.iter().all(|it| !it.visible && it.owned));
    assert!(w.browse(THIRD, |it| it.owned = true).listings.is_empty());
    assert!(w.browse(OWNER, |it| (it.owned, it.protocol) = (true, Some("x".into()))).listings.is_empty());
}
