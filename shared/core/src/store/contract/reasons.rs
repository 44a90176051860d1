//! Why attempts end: each reason there is, and those of failed punches told apart.

use super::{Harness, JOINER, LIFETIME, OPERATOR, OWNER, SECOND, World, introduced, is_waiting, v4, v6};
use crate::counter::Label;
use crate::endpoint::{Endpoint, Mapping};
use crate::id::AttemptId;
use crate::limits::REVOCATION_MIN;
use crate::outcome::AttemptReason;
use crate::store::{
    BeginDrain, Bind, Caller, Candidates, ListingGrant, Phase, Reply, Report, Reporter, Revoke, Subject,
    Transition,
};
use crate::wire::ReportResult;

fn report<H: Harness>(w: &mut World<'_, H>, caller: Caller, attempt: AttemptId, result: ReportResult) {
    let report = Report { reporter: Reporter::Caller(caller), attempt, result };
    assert_eq!(w.apply(Transition::Report(report)), Reply::Reported);
}

/// A BIND of the host, or else of the joiner, whose mapping is known or not.
fn bind<H: Harness>(
    w: &mut World<'_, H>,
    key_id: crate::credential::KeyId,
    attempt: AttemptId,
    (source, mapping): (Endpoint, Mapping),
) -> Reply {
    let proof = w.proof(key_id, source);
    let (candidates, round_trip) = (Candidates::default(), SECOND);
    w.apply(Transition::Bind(Bind { proof, attempt, candidates, round_trip, mapping }))
}

/// A present host and an attempt at it.
fn pair<H: Harness>(w: &mut World<'_, H>) -> (ListingGrant, crate::store::AttemptGrant) {
    let host = w.joinable(OWNER);
    let attempt = w.attempt(host.view.id);
    (host, attempt)
}

/// Peers that were introduced and report this; with the mappings of host and joiner.
fn reported<H: Harness>(
    w: &mut World<'_, H>,
    mappings: [Mapping; 2],
    results: [ReportResult; 2],
) -> AttemptId {
    let (host, attempt) = pair(w);
    assert!(is_waiting(&bind(w, attempt.joiner_key, attempt.id, (v4(2, 5000), mappings[1]))));
    introduced(&bind(w, host.lease.presence_key, attempt.id, (v4(1, 4000), mappings[0])));
    for (caller, result) in [OWNER, JOINER].into_iter().zip(results) {
        report(w, caller, attempt.id, result);
    }
    attempt.id
}

/// An attempt that ended for `reason`.
fn ended_for<H: Harness>(w: &mut World<'_, H>, reason: AttemptReason) -> AttemptId {
    use ReportResult::{Aborted, Connected, PeerSilent};
    let unknown = [Mapping::Unknown; 2];
    match reason {
        AttemptReason::Connected => return reported(w, unknown, [PeerSilent, Connected]),
        AttemptReason::MappingVaries => {
            return reported(w, [Mapping::Varies, Mapping::Stable], [PeerSilent, Aborted]);
        }
        AttemptReason::PeerSilent => return reported(w, unknown, [Aborted, PeerSilent]),
        AttemptReason::ReportedFailed => {
            return reported(w, unknown, [Aborted, ReportResult::PeerUnrecognised]);
        }
        AttemptReason::Unreported => {
            let attempt = w.introduced_pair().1;
            w.sleep(LIFETIME);
            return attempt.id;
        }
        _ => {}
    }
    let (host, attempt) = pair(w);
    let (id, key) = (attempt.id, host.lease.presence_key);
    let joined = |w: &mut World<'_, H>, source| assert!(is_waiting(&w.bind(attempt.joiner_key, id, source)));
    match reason {
        AttemptReason::Cancelled => assert_eq!(w.cancel(JOINER, id), Reply::Cancelled),
        AttemptReason::Declined => assert_eq!(w.cancel(OWNER, id), Reply::Cancelled),
        AttemptReason::HostSilent => joined(w, v4(2, 5000)),
        AttemptReason::JoinerSilent => assert!(is_waiting(&w.bind(key, id, v4(1, 4000)))),
        AttemptReason::HostPresenceStale => assert!(matches!(w.bye(key, v4(1, 4000)), Reply::Presence(_))),
        AttemptReason::NoCommonFamily | AttemptReason::SameEndpoint => {
            joined(w, if reason == AttemptReason::SameEndpoint { v4(1, 4000) } else { v6(2, 5000) });
            w.bind(key, id, v4(1, 4000));
        }
        AttemptReason::ListingGone => assert_eq!(w.delete(OWNER, host.view.id), Reply::Deleted),
        AttemptReason::Revoked => {
            let subject = Subject::Principal(JOINER.principal);
            let revoke = Revoke { caller: OPERATOR, subject, lifetime: REVOCATION_MIN };
            assert!(matches!(w.apply(Transition::Revoke(revoke)), Reply::Revoked(_)));
        }
        AttemptReason::Drained => {
            w.apply(Transition::BeginDrain(BeginDrain { window: SECOND }));
        }
        // Nobody comes.
        _ => {}
    }
    w.sleep(LIFETIME);
    id
}

/// "Its own reason, never a silent timeout": every reason there is can be reached, and is told and counted.
pub fn each_is_reached<H: Harness>(harness: &mut H) {
    for &reason in AttemptReason::ALL {
        let mut w = World::new(harness);
        let attempt = ended_for(&mut w, reason);
        assert_eq!(w.stats().attempt_reasons.get(reason), 1, "{reason:?}");
        assert_eq!(w.stats().attempt_reasons.total(), 1, "{reason:?}");
        // A drained store tells nobody of anything.
        if reason != AttemptReason::Drained {
            assert_eq!(w.view(OPERATOR, attempt).map(|it| it.phase), Ok(Phase::Ended(reason)));
        }
    }
}

/// Of a punch that failed the likeliest cause is told: a mapping that varies, whoever's, before silence, and silence before
/// anything else. One that succeeded needs no cause.
pub fn the_likeliest_cause_is_told<H: Harness>(harness: &mut H) {
    use Mapping::{Stable, Unknown, Varies};
    use ReportResult::{Aborted, Connected, PeerSilent, PeerUnrecognised};
    let mut w = World::new(harness);
    let table = [
        ([Varies, Unknown], [PeerSilent, PeerSilent], AttemptReason::MappingVaries),
        ([Stable, Varies], [Aborted, PeerUnrecognised], AttemptReason::MappingVaries),
        ([Varies, Varies], [Connected, PeerSilent], AttemptReason::Connected),
        ([Stable, Stable], [PeerSilent, Aborted], AttemptReason::PeerSilent),
        ([Unknown, Stable], [PeerUnrecognised, PeerSilent], AttemptReason::PeerSilent),
        ([Stable, Unknown], [PeerUnrecognised, Aborted], AttemptReason::ReportedFailed),
    ];
    for (mappings, results, reason) in table {
        let attempt = reported(&mut w, mappings, results);
        let Ok(view) = w.view(JOINER, attempt) else { panic!("its result is kept") };
        assert_eq!(view.phase, Phase::Ended(reason), "{mappings:?} {results:?}");
        assert_eq!([view.host_mapping, view.joiner_mapping], mappings);
    }
}

/// What is known of a mapping is no part of a BIND: a repeat may bring it, and none takes it away or changes it.
pub fn a_mapping_becomes_known_once<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (_, attempt) = pair(&mut w);
    let mut known = Vec::new();
    for mapping in [Mapping::Unknown, Mapping::Varies, Mapping::Unknown, Mapping::Stable] {
        assert!(is_waiting(&bind(&mut w, attempt.joiner_key, attempt.id, (v4(2, 5000), mapping))));
        known.push(w.view(OWNER, attempt.id).map(|it| [it.host_mapping, it.joiner_mapping]));
    }
    let (unknown, varies) = (Mapping::Unknown, Mapping::Varies);
    assert_eq!(known[0], Ok([unknown; 2]));
    assert!(known[1..].iter().all(|it| *it == Ok([unknown, varies])), "{known:?}");
}
