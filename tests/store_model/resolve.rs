//! From what is meant to a transition that one store understands, and pages to their end.

use std::sync::Arc;

use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::{Handle, JoinCode, RevocationId, Role};
use rendezvous_shared::store::{
    BeginDrain, Bind, BrowseListings, Caller, CancelAttempt, Candidates, CreateAttempt, DeleteListing,
    DescriptionParts, EndPresence, EphemeralRendezvousStore, Filter, GetAttempt, GetListing, LiftRevocation,
    ListPending, ListRevocations, ListingDescription, ListingLocator, Page, RefreshPresence, RegisterListing,
    Remind, RenewLease, Reply, Report, Reporter, RevocationPage, Revoke, Subject, Transition, Visibility,
};
use rendezvous_shared::time::Instant;

use crate::side::{Side, endpoint, tenant_of};
use crate::steps::{Ask, Bar, Filtered, Pick, Published, Version};

/// More pages than any walk in these small stores can have.
const PAGES_MAX: usize = 1_000;

impl<S: EphemeralRendezvousStore> Side<S> {
    /// The transition; where it would speak of a datagram of what never was, one that only reads.
    pub(crate) fn resolve(&mut self, now: Instant, ask: &Ask) -> Transition {
        match *ask {
            Ask::Register { who, quotas, key, published, lease } => {
                let caller = self.caller(who, None);
                let (caller, idempotency) = self.idempotency(true, caller, key);
                let description = describe(published);
                Transition::RegisterListing(Box::new(RegisterListing {
                    caller,
                    quotas: quotas.0,
                    idempotency,
                    description,
                    lease,
                }))
            }
            Ask::Create { who, listing: pick, quotas, key, lifetime, note } => {
                let caller = self.caller(who, self.about_listing(pick));
                let (caller, idempotency) = self.idempotency(false, caller, key);
                let listing = self.listing_id(pick);
                let note = note.then(|| Arc::from("let me in"));
                Transition::CreateAttempt(Box::new(CreateAttempt {
                    caller,
                    quotas: quotas.0,
                    idempotency,
                    listing,
                    note,
                    lifetime,
                }))
            }
            Ask::Refresh { .. } | Ask::Bye { .. } | Ask::Bind { .. } | Ask::Report { .. } => {
                self.datagram(now, ask).unwrap_or(Transition::GetDrain)
            }
            Ask::BeginDrain { window } => Transition::BeginDrain(BeginDrain { window }),
            Ask::GetDrain => Transition::GetDrain,
            _ => self.request(ask),
        }
    }

    fn request(&self, ask: &Ask) -> Transition {
        match *ask {
            Ask::Renew { who, listing: pick, version, lease } => {
                let caller = self.caller(who, self.about_listing(pick));
                let current = self.listing(pick).map_or(1, |it| self.listings[it].version);
                let version = match version {
                    Version::Current => current,
                    Version::Previous => current.wrapping_sub(1),
                    Version::Next => current.wrapping_add(1),
                    Version::Zero => 0,
                    Version::Max => u64::MAX,
                };
                Transition::RenewLease(RenewLease { caller, listing: self.listing_id(pick), version, lease })
            }
            Ask::Delete { who, listing } => Transition::DeleteListing(DeleteListing {
                caller: self.caller(who, self.about_listing(listing)),
                listing: self.listing_id(listing),
            }),
            Ask::Get { who, listing, by_code } => {
                let code = self.listing(listing).and_then(|it| self.listings[it].code);
                let locator = if by_code {
                    ListingLocator::JoinCode(code.unwrap_or(JoinCode::from_random(0)))
                } else {
                    ListingLocator::Id(self.listing_id(listing))
                };
                let caller = self.caller(who, self.about_listing(listing));
                Transition::GetListing(GetListing { caller, locator })
            }
            Ask::Browse { who, owned, protocol, filter } => {
                let caller = self.caller(who, self.about_listing(Pick::Recent(0)));
                let request = Self::browse_request(caller, owned, protocol, filter, usize::MAX);
                Transition::BrowseListings(Box::new(request))
            }
            Ask::Pending { who, listing } => Transition::ListPending(ListPending {
                caller: self.caller(who, self.about_listing(listing)),
                listing: self.listing_id(listing),
            }),
            Ask::Revoke { who, bar, lifetime } => self.revoke(who, bar, lifetime),
            Ask::Revocations { who } => {
                let caller = self.caller(who, self.revocations.last().map(|it| tenant_of(it.1)));
                Transition::ListRevocations(ListRevocations { caller, after: None, limit: usize::MAX })
            }
            Ask::Lift { who, revocation } => {
                let known = match revocation {
                    Pick::Recent(ago) | Pick::OfAttempt(ago) => {
                        self.revocations.iter().rev().cycle().nth(ago.into()).copied()
                    }
                    Pick::Unknown => None,
                };
                let caller = self.caller(who, known.map(|it| tenant_of(it.1)));
                let revocation = known.map_or(RevocationId::new(3, Handle(5)), |it| it.0);
                Transition::LiftRevocation(LiftRevocation { caller, revocation })
            }
            _ => self.of_attempt(ask),
        }
    }

    fn of_attempt(&self, ask: &Ask) -> Transition {
        match *ask {
            Ask::GetAttempt { who, attempt } => Transition::GetAttempt(GetAttempt {
                caller: self.caller(who, self.about_attempt(attempt)),
                attempt: self.attempt_id(attempt),
            }),
            Ask::Cancel { who, attempt } => Transition::CancelAttempt(CancelAttempt {
                caller: self.caller(who, self.about_attempt(attempt)),
                attempt: self.attempt_id(attempt),
            }),
            Ask::Remind { attempt, role } => {
                Transition::Remind(Remind { attempt: self.attempt_id(attempt), role })
            }
            Ask::Tell { who, attempt, result } => Transition::Report(Report {
                reporter: Reporter::Caller(self.caller(who, self.about_attempt(attempt))),
                attempt: self.attempt_id(attempt),
                result,
            }),
            _ => Transition::GetDrain,
        }
    }

    fn revoke(&self, who: crate::steps::Who, bar: Bar, lifetime: core::time::Duration) -> Transition {
        let (about, subject) = match bar {
            Bar::Listing(pick) => (self.about_listing(pick), Some(Subject::Listing(self.listing_id(pick)))),
            Bar::OwnerOf(pick) => {
                let about = self.about_listing(pick);
                (about, about.map(|it| Subject::Principal(it.owner.principal)))
            }
            Bar::JoinerOf(pick) => {
                let about = self.about_attempt(pick);
                (about, about.map(|it| Subject::Principal(it.joiner.principal)))
            }
        };
        let caller = self.caller(who, about);
        let subject = subject.unwrap_or(Subject::Principal(caller.principal));
        Transition::Revoke(Revoke { caller, subject, lifetime })
    }

    fn datagram(&self, now: Instant, ask: &Ask) -> Option<Transition> {
        match *ask {
            Ask::Refresh { listing, with, datagram } => {
                let proof = self.proof(now, Role::Host, (self.listing(listing)?, None), with, &datagram);
                Some(Transition::RefreshPresence(RefreshPresence { proof }))
            }
            Ask::Bye { listing, with, datagram } => {
                let proof = self.proof(now, Role::Host, (self.listing(listing)?, None), with, &datagram);
                Some(Transition::EndPresence(EndPresence { proof }))
            }
            Ask::Bind { attempt: pick, role, with, datagram, second, lan, round_trip, mapping } => {
                let attempt = self.attempt(pick)?;
                let of = (self.attempts[attempt].listing, Some(attempt));
                let proof = self.proof(now, role, of, with, &datagram);
                let lan = lan.then(|| Endpoint::new([192, 168, 0, role as u8].into(), 6_000));
                let second = second.map(|from| endpoint(role, from, !datagram.v6));
                let candidates = Candidates { second, lan: [lan, None] };
                let attempt = self.attempt_id(pick);
                Some(Transition::Bind(Bind { proof, attempt, candidates, round_trip, mapping }))
            }
            Ask::Report { attempt: pick, role, with, datagram, result } => {
                let attempt = self.attempt(pick)?;
                let of = (self.attempts[attempt].listing, Some(attempt));
                let reporter = Reporter::Datagram(self.proof(now, role, of, with, &datagram));
                Some(Transition::Report(Report { reporter, attempt: self.attempt_id(pick), result }))
            }
            _ => None,
        }
    }

    pub(crate) fn browse_request(
        caller: Caller,
        owned: bool,
        protocol: Option<u8>,
        filter: Filtered,
        limit: usize,
    ) -> BrowseListings {
        let mut wanted = Filter::default();
        match filter {
            Filtered::Nothing => {}
            Filtered::Name => wanted.name_prefix = Some("a session 1".to_owned()),
            Filtered::Attribute => wanted.attributes = vec![("map".to_owned(), "north".to_owned())],
            Filtered::AtLeast(players) => wanted.player_capacity_min = Some(players),
            Filtered::AtMost(players) => wanted.player_capacity_max = Some(players),
        }
        let protocol = protocol.map(|it| format!("game/{it}").into());
        BrowseListings { caller, protocol, owned, filter: wanted, after: None, limit }
    }

    /// Every page, as one: each listing once, in the order of the ids.
    pub(crate) fn walk(&mut self, now: Instant, mut request: BrowseListings) -> Reply {
        let mut listings = Vec::new();
        for _ in 0..PAGES_MAX {
            let reply = self.ask(now, &Transition::BrowseListings(Box::new(request.clone())));
            let Reply::Page(page) = reply else { return self.normal(reply) };
            assert!(page.listings.len() <= request.limit.max(1), "a page over its limit");
            listings.extend(page.listings);
            request.after = page.next_after;
            if request.after.is_none() {
                return self.normal(Reply::Page(Page { listings, next_after: None }));
            }
        }
        panic!("the walk does not end")
    }

    /// The same of revocations.
    pub(crate) fn walk_revocations(&mut self, now: Instant, caller: Caller, limit: usize) -> Reply {
        let (mut revocations, mut after) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let reply = self.ask(now, &Transition::ListRevocations(ListRevocations { caller, after, limit }));
            let Reply::Revocations(page) = reply else { return self.normal(reply) };
            assert!(page.revocations.len() <= limit.max(1), "a page over its limit");
            assert!(page.next_after.is_none() || page.revocations.len() == limit.max(1), "a page cut short");
            revocations.extend(page.revocations);
            after = page.next_after;
            if after.is_none() {
                return self.normal(Reply::Revocations(RevocationPage { revocations, next_after: None }));
            }
        }
        panic!("the walk does not end")
    }
}

fn describe(published: Published) -> ListingDescription {
    let Published { unlisted, protocol, slot, players, attribute } = published;
    let parts = DescriptionParts {
        protocol: format!("game/{protocol}"),
        name: format!("a session {}", players % 3),
        visibility: if unlisted { Visibility::Unlisted } else { Visibility::Public },
        player_capacity: players,
        attributes: if attribute { vec![("map".to_owned(), "north".to_owned())] } else { Vec::new() },
        slot: slot.map(|it| format!("server-{it}")),
    };
    ListingDescription::new(&parts).expect("a description within its limits")
}
