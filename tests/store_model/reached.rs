//! What the histories came to, so that a test that tries nothing fails.

use std::cell::RefCell;
use std::collections::BTreeMap;

use rendezvous_shared::counter::Label;
use rendezvous_shared::outcome::{AttemptReason, ConflictReason, OutcomeKind, Pool, QuotaScope, Refusal};
use rendezvous_shared::store::{Reminder, Reply, StoreStats, TransitionKind};

use crate::REVOCATIONS;
use crate::steps::Ask;

thread_local! {
    static COUNTS: RefCell<BTreeMap<(&'static str, &'static str), u64>> = const { RefCell::new(BTreeMap::new()) };
}

fn count(what: &'static str, name: &'static str, by: u64) {
    COUNTS.with_borrow_mut(|counts| *counts.entry((what, name)).or_default() += by);
}

/// Counts an answer.
pub(crate) fn reply(reply: &Reply) {
    count("outcome", reply.kind().name(), 1);
    match reply {
        Reply::Refused(Refusal::Conflict(reason)) => count("conflict", reason.name(), 1),
        Reply::Refused(Refusal::StaleVersion { .. }) => {
            count("conflict", ConflictReason::StaleVersion.name(), 1)
        }
        Reply::Reminded(reminder) => count("reminder", reminder_name(reminder.as_ref()), 1),
        Reply::Refused(Refusal::QuotaExceeded(scope)) => count("quota", scope.name(), 1),
        Reply::Refused(Refusal::CapacityExceeded(pool)) => count("pool", pool.name(), 1),
        _ => {}
    }
}

const REMINDERS: [&str; 3] = ["notice", "introduce", "nothing"];

const fn reminder_name(reminder: Option<&Reminder>) -> &'static str {
    match reminder {
        Some(Reminder::Notice(_)) => REMINDERS[0],
        Some(Reminder::Introduce(_)) => REMINDERS[1],
        None => REMINDERS[2],
    }
}

/// Counts a transition that took effect.
pub(crate) fn ask(ask: &Ask, reply: &Reply) {
    // What speaks of something that never was is asked as a look at the drain.
    let kind = kind(ask);
    let drains = matches!(kind, TransitionKind::BeginDrain | TransitionKind::GetDrain);
    if reply.kind() == OutcomeKind::Applied && matches!(reply, Reply::Drain(_)) == drains {
        count("applied", kind.name(), 1);
    }
}

/// Counts how the attempts of a whole history ended.
pub(crate) fn stats(stats: &StoreStats) {
    for (reason, times) in stats.attempt_reasons.iter() {
        count("reason", reason.name(), times);
    }
}

/// Prints what was reached.
///
/// # Panics
/// Naming what should have been reached and was not, or the other way round.
pub(crate) fn check() {
    let counts = COUNTS.with_borrow(Clone::clone);
    for ((what, name), times) in &counts {
        println!("{what:>10} {name:<24} {times}");
    }
    let mut wrong = all("outcome", OutcomeKind::ALL, &unreachable_outcomes(), &counts);
    wrong.extend(all("conflict", ConflictReason::ALL, &[], &counts));
    // Sources and hosts are limited in front of the store.
    wrong.extend(all("quota", QuotaScope::ALL, &[QuotaScope::Source, QuotaScope::Host], &counts));
    wrong.extend(all("pool", Pool::ALL, &unreachable_pools(), &counts));
    wrong.extend(all("reason", AttemptReason::ALL, revoked(AttemptReason::Revoked).as_slice(), &counts));
    wrong.extend(all("applied", TransitionKind::ALL, &unreachable_kinds(), &counts));
    let unsaid = REMINDERS.iter().filter(|it| !counts.contains_key(&("reminder", it)));
    wrong.extend(unsaid.map(|it| format!("reminder {it}: never")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn all<L: Label + PartialEq>(
    what: &'static str,
    labels: &[L],
    unreachable: &[L],
    counts: &BTreeMap<(&'static str, &'static str), u64>,
) -> Vec<String> {
    let wrong = |label: &&L| {
        let reached = counts.get(&(what, label.name())).is_some_and(|times| *times > 0);
        reached == unreachable.contains(*label)
    };
    labels
        .iter()
        .filter(wrong)
        .map(|it| format!("{what} {}: reached or not, against the list", it.name()))
        .collect()
}

/// What only revocations come to.
fn revoked<L>(label: L) -> Vec<L> {
    if REVOCATIONS { Vec::new() } else { vec![label] }
}

/// There is nothing between a store in the same process and its caller to fail or to give up.
fn unreachable_outcomes() -> Vec<OutcomeKind> {
    let mut outcomes = vec![OutcomeKind::ServiceUnavailable, OutcomeKind::Abandoned];
    outcomes.extend(revoked(OutcomeKind::Revoked));
    outcomes
}

/// The end of an attempt cannot be refused: what finds no place among the results is dropped.
fn unreachable_pools() -> Vec<Pool> {
    let mut pools = vec![Pool::AttemptResults];
    pools.extend(revoked(Pool::Revocations));
    pools
}

fn unreachable_kinds() -> Vec<TransitionKind> {
    [TransitionKind::Revoke, TransitionKind::ListRevocations, TransitionKind::LiftRevocation]
        .into_iter()
        .flat_map(revoked)
        .collect()
}

fn kind(ask: &Ask) -> TransitionKind {
    match ask {
        Ask::Register { .. } => TransitionKind::RegisterListing,
        Ask::Renew { .. } => TransitionKind::RenewLease,
        Ask::Delete { .. } => TransitionKind::DeleteListing,
        Ask::Get { .. } => TransitionKind::GetListing,
        Ask::Browse { .. } => TransitionKind::BrowseListings,
        Ask::Refresh { .. } => TransitionKind::RefreshPresence,
        Ask::Bye { .. } => TransitionKind::EndPresence,
        Ask::Create { .. } => TransitionKind::CreateAttempt,
        Ask::GetAttempt { .. } => TransitionKind::GetAttempt,
        Ask::Pending { .. } => TransitionKind::ListPending,
        Ask::Cancel { .. } => TransitionKind::CancelAttempt,
        Ask::Bind { .. } => TransitionKind::Bind,
        Ask::Remind { .. } => TransitionKind::Remind,
        Ask::Report { .. } | Ask::Tell { .. } => TransitionKind::Report,
        Ask::Revoke { .. } => TransitionKind::Revoke,
        Ask::Revocations { .. } => TransitionKind::ListRevocations,
        Ask::Lift { .. } => TransitionKind::LiftRevocation,
        Ask::BeginDrain { .. } => TransitionKind::BeginDrain,
        Ask::GetDrain => TransitionKind::GetDrain,
    }
}
