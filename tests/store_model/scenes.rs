//! What several clients do about the same thing, one after the other.

use core::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use rendezvous_shared::id::Role;
use rendezvous_shared::limits::{ATTEMPT_MAX, LEASE_MAX, PROOF_AGE_MAX};

use crate::steps::{Arrived, Ask, Key, Pick, Step};
use crate::strategies::{NANO, bind, create, refresh, register, weighted};

/// A host becomes present again and somebody joins it.
pub(crate) fn join() -> BoxedStrategy<Vec<Ask>> {
    (0_u8..3, refresh(), create())
        .prop_map(|(ago, mut refresh, mut create)| {
            if let (Ask::Refresh { listing, .. }, Ask::Create { listing: at, .. }) =
                (&mut refresh, &mut create)
            {
                (*listing, *at) = (Pick::Recent(ago), Pick::Recent(ago));
            }
            vec![refresh, create]
        })
        .boxed()
}

/// Both sides of an attempt bind.
pub(crate) fn meet() -> BoxedStrategy<Vec<Ask>> {
    (0_u8..3, any::<bool>(), bind(), bind())
        .prop_map(|(ago, host_first, mut one, mut other)| {
            for (bind, host) in [(&mut one, host_first), (&mut other, !host_first)] {
                if let Ask::Bind { attempt, role, .. } = bind {
                    (*attempt, *role) = (Pick::Recent(ago), if host { Role::Host } else { Role::Joiner });
                }
            }
            vec![one, other]
        })
        .boxed()
}

/// Many of the same at once, so that many are due at once.
pub(crate) fn flood() -> BoxedStrategy<Vec<Ask>> {
    let what = weighted(vec![(1, register()), (2, create())]);
    (what, 20_usize..100)
        .prop_map(|(mut ask, times)| {
            if let Ask::Register { key, .. } | Ask::Create { key, .. } = &mut ask {
                *key = Key::New;
            }
            vec![ask; times]
        })
        .boxed()
}

/// Sides of a new attempt bind so far apart that the first may have to prove its address again. The first bind may come
/// twice, and each at a time that decides whether its proof is still good.
pub(crate) fn meet_late() -> BoxedStrategy<Step> {
    let arrived =
        || select(vec![Arrived::NOW, Arrived::Ahead(NANO), Arrived::Ahead(LEASE_MAX), Arrived::Ago(NANO)]);
    let apart = vec![PROOF_AGE_MAX + NANO, PROOF_AGE_MAX, PROOF_AGE_MAX + Duration::from_secs(1)];
    let role = select(vec![Role::Joiner, Role::Host]);
    let again = proptest::option::of(arrived());
    (role, refresh(), create(), bind(), arrived(), again, select(apart), refresh(), bind())
        .prop_map(|(role, mut present, mut create, mut one, arrived, again, apart, mut back, mut other)| {
            for ask in [&mut present, &mut back, &mut create] {
                if let Ask::Refresh { listing, .. } | Ask::Create { listing, .. } = ask {
                    *listing = Pick::Recent(0);
                }
            }
            if let Ask::Create { lifetime, key, .. } = &mut create {
                (*lifetime, *key) = (ATTEMPT_MAX, Key::New);
            }
            for (bind, by) in [(&mut one, role), (&mut other, role.peer())] {
                if let Ask::Bind { attempt, role, .. } = bind {
                    (*attempt, *role) = (Pick::Recent(0), by);
                }
            }
            let at = |time| {
                let mut bind = one;
                if let Ask::Bind { datagram, .. } = &mut bind {
                    datagram.arrived = time;
                }
                bind
            };
            let mut scene = vec![present, create, at(arrived)];
            scene.extend(again.map(at));
            let mut scene: Vec<_> = scene.into_iter().map(|ask| (Duration::ZERO, ask)).collect();
            scene.extend([(apart, back), (Duration::ZERO, other)]);
            Step::Scene(scene)
        })
        .boxed()
}
