use rendezvous_shared::id::{Handle, InstanceId, SessionId, TenantId};

use super::*;

const NOW: Instant = Instant::from_millis(1_000_000);

fn key(role: Role, handle: u64) -> KeyId {
    KeyId::new(role, TenantId(1), InstanceId(2), Handle(handle), Instant::MAX)
}

fn proof(key_id: KeyId, session: u64, sequence: u64, issued: Instant) -> DatagramProof {
    DatagramProof {
        key_id,
        source: rendezvous_shared::endpoint::Endpoint::new([9, 1, 2, 3].into(), 4_000),
        local: None,
        arrived: NOW,
        cookie_issued: issued,
        session: SessionId(session),
        sequence,
    }
}

fn keys() -> Keys {
    Keys::new(&MasterKey::from_bytes([5; 32]), 64)
}

/// How many of a thousand datagrams with rising sequences are let through at once.
fn fresh(keys: &mut Keys, key_id: KeyId) -> u32 {
    (1..=1_000).filter(|&it| keys.proved(NOW, &proof(key_id, 1, it, NOW), false) == Standing::Fresh).count()
        as u32
}

#[test]
fn each_key_has_a_budget_of_its_own() {
    let mut keys = keys();
    assert_eq!(fresh(&mut keys, key(Role::Host, 1)), HOST_KEY_BUDGET.1);
    assert_eq!(fresh(&mut keys, key(Role::Host, 2)), HOST_KEY_BUDGET.1);
    assert_eq!(fresh(&mut keys, key(Role::Joiner, 1)), JOINER_KEY_BUDGET.1);
}

/// Somebody who listened repeats what the holder sent, as often as he likes.
#[test]
fn repeats_spend_nothing_of_the_holders() {
    let mut keys = keys();
    let host = key(Role::Host, 1);
    let sent = proof(host, 1, 7, NOW);
    assert_eq!(keys.proved(NOW, &sent, false), Standing::Fresh);
    let mut ends = [0; 2];
    for _ in 0..10_000 {
        match keys.proved(NOW, &sent, false) {
            Standing::Repeat => ends[0] += 1,
            Standing::Limited => ends[1] += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ends, [REPEAT_BUDGET.1, 10_000 - REPEAT_BUDGET.1]);
    assert_eq!(keys.proved(NOW, &sent, true), Standing::Stale, "void, and free");
    assert_eq!(keys.proved(NOW, &proof(host, 1, 8, NOW), false), Standing::Fresh);
    // The other family counts on its own.
    let mut other = sent;
    other.source = rendezvous_shared::endpoint::Endpoint::new("2600::1".parse().unwrap(), 4_000);
    assert_eq!(keys.proved(NOW, &other, false), Standing::Fresh);
}

#[test]
fn an_older_session_does_not_come_back() {
    let mut keys = keys();
    let host = key(Role::Host, 1);
    let later = NOW.after(Duration::from_secs(1));
    assert_eq!(keys.proved(NOW, &proof(host, 1, 100, NOW), false), Standing::Fresh);
    assert_eq!(
        keys.proved(later, &proof(host, 2, 1, later), false),
        Standing::Fresh,
        "a newer cookie opens another"
    );
    assert_eq!(keys.proved(later, &proof(host, 1, 101, NOW), false), Standing::Repeat);
    assert_eq!(
        keys.proved(later, &proof(host, 3, 1, later), false),
        Standing::Repeat,
        "not newer than the last"
    );
    assert_eq!(keys.proved(later, &proof(host, 2, 2, later), false), Standing::Fresh);
}

#[test]
fn hellos_have_a_budget_apart() {
    let mut keys = keys();
    let host = key(Role::Host, 1);
    let answered = (0..1_000).filter(|_| keys.hello(NOW, &host, Family::V4)).count() as u32;
    assert_eq!(answered, HELLO_BUDGET.1);
    assert_eq!(fresh(&mut keys, host), HOST_KEY_BUDGET.1);
}

#[test]
fn a_dead_key_stays_dead_and_has_little_to_say() {
    let mut keys = keys();
    let host = key(Role::Host, 1);
    assert!(!keys.knows(&host, Family::V4));
    keys.proved(NOW, &proof(host, 1, 1, NOW), false);
    assert!(keys.knows(&host, Family::V4) && !keys.knows(&host, Family::V6));
    keys.bury(NOW, &host, Family::V4);
    let ends: Vec<_> = (2..1_000).map(|it| keys.proved(NOW, &proof(host, 1, it, NOW), false)).collect();
    assert_eq!(ends.iter().filter(|it| **it == Standing::Dead).count() as u32, REPEAT_BUDGET.1);
    assert!(ends.iter().all(|it| matches!(it, Standing::Dead | Standing::Limited)));
}

/// A full table evicts only whom nobody has heard lately, and limits nobody whom it has no place for.
#[test]
fn a_key_without_a_place_is_not_limited() {
    let mut keys = Keys::new(&MasterKey::from_bytes([5; 32]), 4);
    for handle in 0..4 {
        assert_eq!(fresh(&mut keys, key(Role::Host, handle)), HOST_KEY_BUDGET.1);
    }
    assert_eq!(fresh(&mut keys, key(Role::Host, 9)), 1_000);
    assert_eq!(fresh(&mut keys, key(Role::Host, 1)), 0, "those that have one keep it");
    let later = NOW.after(Duration::from_secs(10));
    for sequence in 1..=1_000 {
        keys.proved(later, &proof(key(Role::Host, 9), 1, sequence, later), false);
    }
    assert_eq!(keys.proved(later, &proof(key(Role::Host, 9), 1, 1_001, later), false), Standing::Limited);
}
