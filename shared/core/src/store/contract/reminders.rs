//! Reminders: what is said once more, unasked, holds when it is said.

use super::{
    Harness, JOINER, LIFETIME, NANO, OPERATOR, OWNER, SECOND, World, introduced, is_waiting, v4, v6,
};
use crate::credential::KeyId;
use crate::endpoint::Endpoint;
use crate::id::{AttemptId, Role};
use crate::limits::{ATTEMPT_MAX, PROOF_AGE_MAX, REVOCATION_MIN};
use crate::store::{
    AttemptGrant, BeginDrain, BindAnswer, ListingGrant, Notice, Push, Remind, Reminder, Reply, Report,
    Reporter, Revoke, Subject, Transition,
};
use crate::wire::ReportResult;

fn remind<H: Harness>(w: &mut World<'_, H>, attempt: AttemptId, role: Role) -> Option<Reminder> {
    match w.apply(Transition::Remind(Remind { attempt, role })) {
        Reply::Reminded(reminder) => reminder,
        other => panic!("no answer to a reminder: {other:?}"),
    }
}

fn notice<H: Harness>(w: &mut World<'_, H>, attempt: AttemptId) -> Option<Notice> {
    match remind(w, attempt, Role::Host) {
        Some(Reminder::Notice(notice)) => Some(notice),
        None => None,
        Some(other) => panic!("no NOTICE: {other:?}"),
    }
}

/// Something done about a waiting joiner.
type Step<H> = fn(&mut World<'_, H>, &ListingGrant, &AttemptGrant);

/// A present host and an attempt whose joiner waits.
fn waiting<H: Harness>(w: &mut World<'_, H>) -> (ListingGrant, AttemptGrant) {
    let host = w.joinable(OWNER);
    let attempt = w.attempt(host.view.id);
    assert!(is_waiting(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5000))));
    (host, attempt)
}

/// "The newest proved endpoint replaces the old one, which gets nothing more": a host is reminded where it is now, in its
/// joiner's family if it is there.
pub fn a_host_is_reminded_where_it_is_now<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = waiting(&mut w);
    let key = host.lease.presence_key;
    let expected = |endpoint: Endpoint, remaining| {
        Some(Notice { attempt: attempt.id, host_key: key, endpoint, local: None, remaining })
    };
    assert_eq!(notice(&mut w, attempt.id), expected(v4(1, 4000), LIFETIME));
    w.sleep(SECOND);
    w.present(key, v6(1, 4000));
    w.present(key, v4(1, 4001));
    assert_eq!(notice(&mut w, attempt.id), expected(v4(1, 4001), LIFETIME - SECOND));
    assert_eq!(remind(&mut w, attempt.id, Role::Joiner), None, "who waits has nothing to be told");
    assert!(matches!(w.bye(key, v4(1, 4001)), Reply::Presence(_)));
    assert_eq!(notice(&mut w, attempt.id), None, "it took its leave");
}

/// A host is reminded until it binds, and of nothing that is over.
pub fn a_host_is_reminded_of_what_waits<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let attempt = w.attempt(host.view.id);
    assert_eq!(notice(&mut w, attempt.id), None, "its joiner is not bound");
    assert_eq!(notice(&mut w, AttemptId::new(1, attempt.id.handle())), None, "there is none");
    let (host, attempt) = waiting(&mut w);
    assert!(notice(&mut w, attempt.id).is_some());
    let never = AttemptId::new(attempt.id.tag() ^ 1, attempt.id.handle());
    assert_eq!(notice(&mut w, never), None, "there never was such a one");
    w.sleep(LIFETIME - NANO);
    w.present(host.lease.presence_key, v4(1, 4000));
    assert!(notice(&mut w, attempt.id).is_some());
    w.sleep(NANO);
    assert_eq!(notice(&mut w, attempt.id), None, "its time is over");
    let ends: [(&str, Step<H>); 5] = [
        ("withdrawn", |w, _, attempt| assert_eq!(w.cancel(JOINER, attempt.id), Reply::Cancelled)),
        ("declined", |w, _, attempt| assert_eq!(w.cancel(OWNER, attempt.id), Reply::Cancelled)),
        ("deleted", |w, host, _| assert_eq!(w.delete(OWNER, host.view.id), Reply::Deleted)),
        ("revoked", |w, host, _| {
            let subject = Subject::Listing(host.view.id);
            let revoke = Revoke { caller: OPERATOR, subject, lifetime: REVOCATION_MIN };
            assert!(matches!(w.apply(Transition::Revoke(revoke)), Reply::Revoked(_)));
        }),
        ("bound", |w, host, attempt| {
            w.bye(host.lease.presence_key, v4(1, 4000));
            assert!(is_waiting(&w.bind(host.lease.presence_key, attempt.id, v4(1, 4000))));
            w.present(host.lease.presence_key, v4(1, 4000));
        }),
    ];
    for (what, end) in ends {
        let (host, attempt) = waiting(&mut w);
        assert!(notice(&mut w, attempt.id).is_some());
        end(&mut w, &host, &attempt);
        assert_eq!(notice(&mut w, attempt.id), None, "{what}");
    }
}

/// An introduced pair, and what its joiner was told unasked.
fn met<H: Harness>(w: &mut World<'_, H>) -> (KeyId, AttemptGrant, Push) {
    let (host, attempt) = waiting(w);
    let key = host.lease.presence_key;
    let reply = w.bind(key, attempt.id, v4(1, 4000));
    let Reply::Bind(BindAnswer::Introduced { peer, .. }) = reply else { panic!("not introduced: {reply:?}") };
    (key, attempt, peer)
}

/// "The stored answer", to the bound endpoint only, of either role, until that one reports.
pub fn peers_are_reminded_until_they_report<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (key, attempt, told) = met(&mut w);
    assert_eq!(remind(&mut w, attempt.id, Role::Joiner), Some(Reminder::Introduce(told)));
    w.present(key, v4(1, 4001));
    let Some(Reminder::Introduce(push)) = remind(&mut w, attempt.id, Role::Host) else { panic!("nothing") };
    assert_eq!((push.key_id, push.endpoint, push.introduction.peer), (key, v4(1, 4000), v4(2, 5000)));
    let result = ReportResult::PeerSilent;
    for (caller, role) in [(JOINER, Role::Joiner), (OWNER, Role::Host)] {
        assert!(remind(&mut w, attempt.id, role).is_some());
        let reporter = Reporter::Caller(caller);
        let report = Report { reporter, attempt: attempt.id, result };
        assert_eq!(w.apply(Transition::Report(report)), Reply::Reported);
        assert_eq!(remind(&mut w, attempt.id, role), None, "{role:?} has heard");
    }
    assert_eq!(remind(&mut w, attempt.id, Role::Joiner), None, "it is over");
}

/// "To a proved address": one that was proved more than 30 s ago may be somebody else's by now.
pub fn an_address_no_longer_proved_is_not_reminded<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let mut request = w.creation(JOINER, host.view.id);
    request.lifetime = ATTEMPT_MAX;
    let attempt = w.created(&request);
    assert!(is_waiting(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5000))));
    w.sleep(10 * SECOND);
    introduced(&w.bind(host.lease.presence_key, attempt.id, v4(1, 4000)));
    w.sleep(PROOF_AGE_MAX - 10 * SECOND);
    assert!(remind(&mut w, attempt.id, Role::Joiner).is_some());
    w.sleep(NANO);
    assert_eq!(remind(&mut w, attempt.id, Role::Joiner), None);
    assert!(remind(&mut w, attempt.id, Role::Host).is_some(), "it bound later");
}

/// Whatever it says, a reminder leaves no trace; and a drained store says nothing.
pub fn they_change_nothing<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (_, waits) = waiting(&mut w);
    let (_, met, _) = met(&mut w);
    let before = w.harness.snapshot(&w.store);
    for attempt in [waits.id, met.id, AttemptId::new(1, met.id.handle())] {
        for role in [Role::Host, Role::Joiner] {
            remind(&mut w, attempt, role);
        }
    }
    assert!(w.harness.snapshot(&w.store) == before, "a reminder left a trace");
    w.apply(Transition::BeginDrain(BeginDrain { window: SECOND }));
    assert!(remind(&mut w, met.id, Role::Host).is_some(), "what was begun is finished");
    w.sleep(SECOND);
    assert_eq!(remind(&mut w, met.id, Role::Host), None);
}
