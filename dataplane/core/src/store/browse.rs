//! Browsing: pages of listings in the stable order of their ids.

use core::hint::black_box;

use rendezvous_shared::limits::{PAGE_EXAMINED_MAX, PAGE_LEN_MAX};
use rendezvous_shared::store::{AttributeMask, BrowseListings, Page, Reply};
use rendezvous_shared::time::Instant;

use super::MemoryStore;
use super::records::Listing;
use super::tenants::Place;

/// Listings that are looked at side by side. What a listing holds is in no cache, so most of a page is waiting for
/// memory, for the listing and then for its text: looked at one after the other, each would be waited for alone.
const LOOKED_AT_TOGETHER: usize = 32;

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
        let attributes = request.filter.attributes.iter().map(|(key, value)| (&**key, &**value)).collect();
        let limit = request.limit.clamp(1, PAGE_LEN_MAX);
        let mut page = Page { listings: Vec::with_capacity(limit), next_after: None };
        // One more than are examined, to know whether there is more.
        let mut places = places.take(PAGE_EXAMINED_MAX + 1).peekable();
        let (mut examined, mut last) = (0, None);
        while places.peek().is_some() {
            let group: [Option<Place>; LOOKED_AT_TOGETHER] = core::array::from_fn(|_| places.next());
            let word = |listing: &Listing| {
                listing.joinable_until.as_nanos() ^ u64::from(listing.description.player_capacity())
            };
            let words = group.iter().flatten().map(|it| word(&self.listings[it.slot]));
            black_box(words.fold(0, |words, word| words ^ word));
            let shown = group.map(|it| it.filter(|&place| self.is_shown(now, request, attributes, place)));
            for place in shown.iter().flatten() {
                black_box(self.listings[place.slot].description.name().as_bytes().first());
            }
            let wanted = shown.map(|it| it.is_some_and(|place| self.is_wanted(request, place)));
            for (place, wanted) in group.into_iter().flatten().zip(wanted) {
                if page.listings.len() == limit || examined == PAGE_EXAMINED_MAX {
                    page.next_after = last.map(|slot| self.listings[slot].id(self.listings.handle(slot)));
                    return Reply::Page(page);
                }
                examined += 1;
                last = Some(place.slot);
                if wanted {
                    page.listings.push(self.view(now, place.slot, request.caller));
                }
            }
        }
        Reply::Page(page)
    }

    /// Whether a listing is there for whoever browses, and in the scope of what is asked; its text is not looked at.
    fn is_shown(
        &self,
        now: Instant,
        request: &BrowseListings,
        attributes: AttributeMask,
        place: Place,
    ) -> bool {
        let listing = &self.listings[place.slot];
        let capacity = listing.description.player_capacity();
        let until = if request.owned { listing.lease_deadline } else { listing.joinable_until };
        until > now
            && listing.description.may_have(attributes)
            && request.filter.player_capacity_min.is_none_or(|min| capacity >= min)
            && request.filter.player_capacity_max.is_none_or(|max| capacity <= max)
    }

    /// What the text of its description decides. Only an owner's listings are of several protocols.
    fn is_wanted(&self, request: &BrowseListings, place: Place) -> bool {
        let (filter, description) = (&request.filter, &self.listings[place.slot].description);
        let protocol = request.protocol.as_deref().filter(|_| request.owned);
        protocol.is_none_or(|name| description.protocol() == name)
            && filter.name_prefix.as_ref().is_none_or(|it| description.name().starts_with(it.as_str()))
            && filter.attributes.iter().all(|(key, value)| description.attribute(key) == Some(value))
    }
}
