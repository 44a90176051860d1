//! Answers of two stores made comparable: each id, key and join code is replaced by the place in the order in which
//! things were granted.

use rendezvous_shared::credential::KeyId;
use rendezvous_shared::id::{AttemptId, Handle, InstanceId, JoinCode, ListingId, RevocationId, Role};
use rendezvous_shared::store::{
    BindAnswer, EphemeralRendezvousStore, Introduction, LeaseGrant, ListingView, Notice, Push, Reminder,
    Reply, RevocationView, Subject,
};

use crate::side::Side;

impl<S: EphemeralRendezvousStore> Side<S> {
    /// `reply` as any store that does the same would give it.
    pub(crate) fn normal(&self, mut reply: Reply) -> Reply {
        match &mut reply {
            Reply::Presence(grant) => grant.pending.iter_mut().for_each(|it| self.notice(it)),
            Reply::Bind(answer) => self.answer(answer),
            Reply::Registered(grant) => {
                self.view(&mut grant.view);
                self.lease(&mut grant.lease);
            }
            Reply::Renewed(lease) => self.lease(lease),
            Reply::Listing(view) => self.view(view),
            Reply::Page(page) => {
                assert!(page.listings.is_sorted_by(|one, next| one.id < next.id), "not in the order of ids");
                page.listings.iter_mut().for_each(|it| self.view(it));
                page.listings.sort_by_key(|it| it.id);
                page.next_after.iter_mut().for_each(|it| self.listing_place(it));
            }
            Reply::AttemptCreated(grant) => {
                self.attempt_place(&mut grant.id);
                self.listing_place(&mut grant.listing);
                self.key_place(&mut grant.joiner_key);
            }
            Reply::Attempt(view) => {
                self.attempt_place(&mut view.id);
                self.listing_place(&mut view.listing);
            }
            Reply::Pending(pending) => pending.iter_mut().for_each(|it| self.attempt_place(&mut it.id)),
            Reply::Revoked(view) => self.revocation(view),
            Reply::Revocations(page) => {
                assert!(
                    page.revocations.is_sorted_by(|one, next| one.id < next.id),
                    "not in the order of ids"
                );
                page.revocations.iter_mut().for_each(|it| self.revocation(it));
                page.revocations.sort_by_key(|it| it.id);
                page.next_after.iter_mut().for_each(|it| self.revocation_place(it));
            }
            Reply::Reminded(Some(Reminder::Notice(notice))) => self.notice(notice),
            Reply::Reminded(Some(Reminder::Introduce(push))) => self.push(push),
            Reply::Reminded(None)
            | Reply::Reported
            | Reply::Deleted
            | Reply::Cancelled
            | Reply::Lifted
            | Reply::Drain(_)
            | Reply::Refused(_) => {}
        }
        reply
    }

    fn answer(&self, answer: &mut BindAnswer) {
        match answer {
            BindAnswer::Waiting { notice, .. } => notice.iter_mut().for_each(|it| self.notice(it)),
            BindAnswer::Introduced { own, peer } => {
                self.introduction(own);
                self.push(peer);
            }
            BindAnswer::Replayed { own } => self.introduction(own),
        }
    }

    fn push(&self, push: &mut Push) {
        self.introduction(&mut push.introduction);
        self.key_place(&mut push.key_id);
    }

    fn introduction(&self, introduction: &mut Introduction) {
        self.attempt_place(&mut introduction.attempt);
    }

    fn notice(&self, notice: &mut Notice) {
        self.attempt_place(&mut notice.attempt);
        self.key_place(&mut notice.host_key);
    }

    fn lease(&self, lease: &mut LeaseGrant) {
        self.key_place(&mut lease.presence_key);
    }

    fn view(&self, view: &mut ListingView) {
        self.listing_place(&mut view.id);
        self.lease(&mut view.lease);
        if let Some(code) = &mut view.join_code {
            let place = self.listings.iter().position(|it| it.code == Some(*code));
            *code = JoinCode::from_random(place.expect("a join code that was granted") as u64);
        }
    }

    fn revocation(&self, view: &mut RevocationView) {
        self.revocation_place(&mut view.id);
        if let Subject::Listing(id) = &mut view.subject {
            self.listing_place(id);
        }
    }

    fn listing_place(&self, id: &mut ListingId) {
        let place = self.listings.iter().position(|it| it.id == *id).expect("a listing that was granted");
        *id = ListingId::new(0, Handle(place as u64));
    }

    fn attempt_place(&self, id: &mut AttemptId) {
        let place = self.attempts.iter().position(|it| it.id == *id).expect("an attempt that was granted");
        *id = AttemptId::new(0, Handle(place as u64));
    }

    fn revocation_place(&self, id: &mut RevocationId) {
        let place =
            self.revocations.iter().position(|it| it.0 == *id).expect("a revocation that was granted");
        *id = RevocationId::new(0, Handle(place as u64));
    }

    fn key_place(&self, key: &mut KeyId) {
        let role = key.role().expect("a key of a role");
        let place = match role {
            Role::Host => self.listings.iter().position(|it| it.id.handle() == key.handle()),
            Role::Joiner => self.attempts.iter().position(|it| it.id.handle() == key.handle()),
        };
        let place = Handle(place.expect("the key of something that was granted") as u64);
        *key = KeyId::new(role, key.tenant(), InstanceId(0), place, key.expires());
    }
}
