//! Browsing: pages of listings in the stable order of their ids.

use rendezvous_shared::limits::{PAGE_EXAMINED_MAX, PAGE_LEN_MAX};
use rendezvous_shared::store::{BrowseListings, Filter, ListingDescription, Page, Reply};
use rendezvous_shared::time::Instant;

use super::MemoryStore;
use super::tenants::Place;

impl MemoryStore {
    pub(super) fn browse(&self, now: Instant, request: &BrowseListings) -> Reply {
        let nothing = Reply::Page(Page { listings: Vec::new(), next_after: None });
        let Some(tenant) = self.tenants.get(&request.caller.tenant) else { return nothing };
        let after = request.after.map(|it| it.tag());
        if request.owned {
            return self.page(now, request, tenant.owned_by(request.caller.principal, after));
        }
        match request.protocol.as_deref().and_then(|name| tenant.protocols.get(name)) {
            Some(protocol) => self.page(now, request, tenant.published(protocol.number, after)),
            None => nothing,
        }
    }

    fn page(&self, now: Instant, request: &BrowseListings, places: impl Iterator<Item = Place>) -> Reply {
        let limit = request.limit.clamp(1, PAGE_LEN_MAX);
        let mut page = Page { listings: Vec::with_capacity(limit), next_after: None };
        let mut last = None;
        for (examined, place) in places.enumerate() {
            if page.listings.len() == limit || examined == PAGE_EXAMINED_MAX {
                page.next_after = last;
                break;
            }
            let listing = &self.listings[place.slot];
            last = Some(listing.id(self.listings.handle(place.slot)));
            let live = listing.lease_deadline > now && (request.owned || listing.is_joinable(now));
            let in_scope =
                request.protocol.as_deref().is_none_or(|name| name == listing.description.protocol());
            if live && in_scope && wants(&request.filter, &listing.description) {
                page.listings.push(self.view(now, place.slot, request.caller));
            }
        }
        Reply::Page(page)
    }
}

fn wants(filter: &Filter, description: &ListingDescription) -> bool {
    filter.player_capacity_min.is_none_or(|min| description.player_capacity() >= min)
        && filter.player_capacity_max.is_none_or(|max| description.player_capacity() <= max)
        && filter.name_prefix.as_ref().is_none_or(|prefix| description.name().starts_with(prefix.as_str()))
        && filter.attributes.iter().all(|(key, value)| description.attribute(key) == Some(value))
}
