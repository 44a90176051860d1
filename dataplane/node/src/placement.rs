//! Which thread runs on which CPU.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tracing::warn;

use crate::config::Dataplane;

/// Where the threads of the datagram path run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// One for each ring; `None` leaves it to the scheduler.
    pub(crate) rings: Vec<Option<usize>>,
    /// Of the store thread.
    pub(crate) store: Option<usize>,
    /// Whether there are CPUs enough that a thread may look for work for a moment instead of sleeping.
    pub(crate) spin: bool,
}

impl Placement {
    /// What `config` says; where it says nothing, a CPU for each thread from the end of those `allowed`, if two at least
    /// remain for everything else. (The first ones are where interrupts usually go.)
    #[must_use]
    pub(crate) fn new(config: &Dataplane, allowed: &[usize]) -> Self {
        let threads = config.threads;
        let spare = allowed.len() > threads + 1;
        if config.cpus.is_empty() && config.store_cpu.is_none() && allowed.len() > threads + 2 {
            let mut free = allowed.iter().rev().copied();
            let store = free.next();
            return Self { rings: (0..threads).map(|_| free.next()).collect(), store, spin: true };
        }
        let rings: Vec<_> = (0..threads).map(|ring| config.cpus.get(ring).copied()).collect();
        // Threads that share a CPU only keep each other from working while they spin.
        let shared = config.store_cpu.is_some_and(|store| config.cpus.contains(&store));
        Self { rings, store: config.store_cpu, spin: spare && !shared }
    }
}

/// CPUs this process may use.
#[must_use]
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Keeps the calling thread on `cpu`. A refusal is no reason not to serve.
pub(crate) fn pin(thread: &str, cpu: Option<usize>) {
    let Some(cpu) = cpu else { return };
    let mut set = CpuSet::new();
    set.set(cpu);
    if let Err(error) = sched_setaffinity(None, &set) {
        warn!(thread, cpu, %error, "the thread could not be pinned");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(threads: usize, cpus: &[usize], store_cpu: Option<usize>, allowed: usize) -> Placement {
        let config = Dataplane { threads, cpus: cpus.to_vec(), store_cpu, ..Dataplane::default() };
        Placement::new(&config, &(0..allowed).collect::<Vec<_>>())
    }

    #[test]
    fn few_cpus_are_left_to_the_scheduler() {
        for allowed in 1..=3 {
            let it = place(1, &[], None, allowed);
            assert_eq!((it.rings, it.store), (vec![None], None), "{allowed}");
            assert_eq!(it.spin, allowed > 2);
        }
    }

    #[test]
    fn many_cpus_are_given_from_the_end() {
        assert_eq!(
            place(2, &[], None, 8),
            Placement { rings: vec![Some(6), Some(5)], store: Some(7), spin: true }
        );
    }

    #[test]
    fn what_is_configured_holds() {
        assert_eq!(
            place(2, &[0], Some(1), 2),
            Placement { rings: vec![Some(0), None], store: Some(1), spin: false }
        );
        assert!(!place(1, &[3], Some(3), 8).spin, "on one CPU they would wait for each other");
        assert!(place(1, &[3], Some(4), 8).spin);
    }

    #[test]
    fn a_pinned_thread_stays_where_it_is() {
        let cpu = *allowed_cpus().last().unwrap();
        std::thread::spawn(move || {
            pin("test", Some(cpu));
            assert_eq!(allowed_cpus(), [cpu]);
            pin("test", Some(CpuSet::MAX_CPU - 1));
            assert_eq!(allowed_cpus(), [cpu], "a CPU there is not changes nothing");
        })
        .join()
        .unwrap();
    }
}
