//! Browsing: pages of listings in the stable order of their ids.

use core::ops::Bound;

use rendezvous_shared::id::ListingId;
use rendezvous_shared::limits::{PAGE_EXAMINED_MAX, PAGE_LEN_MAX};
use rendezvous_shared::store::{BrowseListings, Filter, ListingDescription, Page, Reply};

use super::MemoryStore;

impl MemoryStore {
    pub(super) fn browse(&self, request: &BrowseListings) -> Reply {
        let caller = request.caller;
        let ids = match (&request.protocol, request.owned) {
            (_, true) => self.owned.get(&(caller.tenant, caller.principal)),
            (Some(protocol), false) => self.public.get(&(caller.tenant, protocol.clone())),
            (None, false) => None,
        };
        let mut page = Page { listings: Vec::new(), next_after: None };
        let Some(ids) = ids else { return Reply::Page(page) };
        let from = request.after.map_or(Bound::Unbounded, Bound::Excluded);
        let limit = request.limit.clamp(1, PAGE_LEN_MAX);
        let mut last = None;
        for (examined, &id) in ids.range((from, Bound::Unbounded)).enumerate() {
            if page.listings.len() == limit || examined == PAGE_EXAMINED_MAX {
                page.next_after = last;
                break;
            }
            last = Some(id);
            self.add_if_wanted(&mut page, id, request);
        }
        Reply::Page(page)
    }

    fn add_if_wanted(&self, page: &mut Page, id: ListingId, request: &BrowseListings) {
        let Some(key) = self.find_listing(id) else { return };
        let listing = &self.listings[key];
        let in_scope =
            request.protocol.as_ref().is_none_or(|protocol| **protocol == *listing.description.protocol());
        let shown = request.owned || listing.is_joinable();
        if in_scope && shown && wants(&request.filter, &listing.description) {
            page.listings.push(self.view(key, request.caller));
        }
    }
}

fn wants(filter: &Filter, description: &ListingDescription) -> bool {
    let has = |(key, value): &(String, String)| description.attribute(key) == Some(value);
    filter.name_prefix.as_ref().is_none_or(|prefix| description.name().starts_with(prefix.as_str()))
        && filter.player_capacity_min.is_none_or(|min| description.player_capacity() >= min)
        && filter.player_capacity_max.is_none_or(|max| description.player_capacity() <= max)
        && filter.attributes.iter().all(has)
}
