//! Reports on how the punch went.

use super::{Harness, JOINER, LIFETIME, OWNER, SECOND, THIRD, World, conflict, refused, v4, v6};
use crate::credential::KeyId;
use crate::id::{AttemptId, SessionId};
use crate::outcome::{AttemptReason, ConflictReason, Refusal};
use crate::store::{Caller, DatagramProof, Phase, Reply, Report, Reporter, Transition};
use crate::time::Instant;
use crate::wire::ReportResult;

fn by_caller<H: Harness>(
    w: &mut World<'_, H>,
    caller: Caller,
    attempt: AttemptId,
    result: ReportResult,
) -> Reply {
    w.apply(Transition::Report(Report { reporter: Reporter::Caller(caller), attempt, result }))
}

fn by_key<H: Harness>(w: &mut World<'_, H>, key: KeyId, attempt: AttemptId, result: ReportResult) -> Reply {
    let proof = w.proof(key, v4(1, 4000));
    w.apply(Transition::Report(Report { reporter: Reporter::Datagram(proof), attempt, result }))
}

/// "The first report of each role counts."
pub fn the_first_of_each_role_counts<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (_, attempt) = w.introduced_pair();
    assert_eq!(by_key(&mut w, attempt.joiner_key, attempt.id, ReportResult::PeerSilent), Reply::Reported);
    let second = by_caller(&mut w, JOINER, attempt.id, ReportResult::Connected);
    assert_eq!(refused(&second), conflict(ConflictReason::AlreadyReported));
    assert_eq!(refused(&by_caller(&mut w, THIRD, attempt.id, ReportResult::Connected)), Refusal::NotFound);
    let Ok(view) = w.view(OWNER, attempt.id) else { panic!("it is live") };
    assert_eq!((view.joiner_report, view.host_report), (Some(ReportResult::PeerSilent), None));
    assert_eq!((view.phase, view.times.reported), (Phase::Introduced, Some(w.now())));
    w.sleep(LIFETIME);
    let view = w.view(OWNER, attempt.id);
    assert_eq!(view.map(|it| it.phase), Ok(Phase::Ended(AttemptReason::PeerSilent)));
}

/// "Phases: introduced → reported": with both reports the attempt is over.
pub fn both_finish_the_attempt<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = w.introduced_pair();
    let first = w.now();
    by_key(&mut w, host.lease.presence_key, attempt.id, ReportResult::PeerSilent);
    w.sleep(SECOND);
    assert_eq!(by_caller(&mut w, JOINER, attempt.id, ReportResult::Connected), Reply::Reported);
    let Ok(view) = w.view(OWNER, attempt.id) else { panic!("its result is kept") };
    assert_eq!(view.phase, Phase::Ended(AttemptReason::Connected));
    assert_eq!((view.times.reported, view.times.ended), (Some(first), Some(w.now())));
    assert_eq!(w.used(crate::outcome::Pool::Attempts), 0);
}

/// "A REPORT is good in any order and from either family": it says what happened, and where it comes from matters not.
pub fn come_in_any_order<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = w.introduced_pair();
    let session = SessionId(w.proof(attempt.joiner_key, v4(1, 4000)).session.0 + 1);
    let keys = [host.lease.presence_key, attempt.joiner_key];
    for key_id in keys {
        let old = DatagramProof {
            session,
            sequence: 1,
            cookie_issued: Instant::ZERO,
            ..w.proof(key_id, v6(9, 4000))
        };
        let report = Report {
            reporter: Reporter::Datagram(old),
            attempt: attempt.id,
            result: ReportResult::Connected,
        };
        assert_eq!(w.apply(Transition::Report(report)), Reply::Reported);
    }
    assert_eq!(w.stats().attempt_reasons.get(AttemptReason::Connected), 1);
}

/// "The same again is acknowledged again", during the attempt and after it.
pub fn repeated_ones_are_acknowledged<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = w.introduced_pair();
    let keys = [host.lease.presence_key, attempt.joiner_key];
    for _ in 0..2 {
        assert_eq!(by_key(&mut w, keys[0], attempt.id, ReportResult::Connected), Reply::Reported);
    }
    for _ in 0..2 {
        for key in [keys[1], keys[0]] {
            assert_eq!(by_key(&mut w, key, attempt.id, ReportResult::Connected), Reply::Reported);
            let other = by_key(&mut w, key, attempt.id, ReportResult::Aborted);
            assert_eq!(refused(&other), conflict(ConflictReason::AlreadyReported));
        }
        assert_eq!(by_caller(&mut w, JOINER, attempt.id, ReportResult::Connected), Reply::Reported);
    }
    assert_eq!(w.stats().attempt_reasons.get(AttemptReason::Connected), 1);
}

/// "Not introduced yet; there is nothing to report on", and nothing any more once it is over.
pub fn need_an_introduction<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let attempt = w.attempt(host.view.id);
    let early = by_caller(&mut w, JOINER, attempt.id, ReportResult::Aborted);
    assert_eq!(refused(&early), conflict(ConflictReason::NotIntroduced));
    w.sleep(LIFETIME);
    assert_eq!(refused(&by_caller(&mut w, JOINER, attempt.id, ReportResult::Aborted)), Refusal::Expired);
    assert_eq!(refused(&by_caller(&mut w, THIRD, attempt.id, ReportResult::Aborted)), Refusal::NotFound);
}

/// "A superseded, deleted or revoked credential dies at once", for late reports too.
pub fn a_dead_key_reports_nothing<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, attempt) = w.introduced_pair();
    let other = w.joinable(OWNER);
    let wrong = by_key(&mut w, other.lease.presence_key, attempt.id, ReportResult::Connected);
    assert_eq!(refused(&wrong), Refusal::NotFound);
    by_key(&mut w, host.lease.presence_key, attempt.id, ReportResult::Connected);
    assert_eq!(w.delete(OWNER, host.view.id), Reply::Deleted);
    let late = by_key(&mut w, host.lease.presence_key, attempt.id, ReportResult::Connected);
    assert_eq!(refused(&late), Refusal::NotFound);
    assert_eq!(by_caller(&mut w, OWNER, attempt.id, ReportResult::Connected), Reply::Reported);
}
