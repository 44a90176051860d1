//! How many instructions does a transition take, for how many lines of memory does it wait, and do both depend on how much
//! the store holds?
//!
//! The benchmark runs itself under callgrind, which writes a file each time the measured function returns, with what
//! was counted since the file before: so an empty call stands before each that is measured.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use rendezvous_core::store::Pace;
use rendezvous_shared::limits::{ATTEMPT_MAX, Limits};
use rendezvous_shared::store::{EphemeralRendezvousStore, Reply, Transition};

use crate::fleet::{Attempt, BATCH, Fleet, Lifetimes, limits};
use crate::rounds::shuffled;

/// The argument that makes this process the one that is counted, and the same with all lifetimes.
const CHILD: &str = "--count-instructions";
const CHILD_ALL: &str = "--count-instructions-of-all-lifetimes";
const COUNT: usize = 8 * BATCH;
/// The second-level cache of the machine that the figures of the documentation are from.
const CACHE_KIB: usize = 512;
const MEASURED: [&str; 8] = ["refresh", "bind", "introduce", "renew", "register", "delete", "create", "end"];

pub(crate) fn print() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("valgrind is not installed: nothing counted");
        return;
    }
    println!(
        "Instructions each, of {COUNT} in batches of {BATCH}; in brackets the multiple of the first column."
    );
    println!("As an aside, the last column: leases and attempts last every whole second that is allowed.");
    println!("The end of an attempt is without that of its result and its record.\n");
    let sizes = [1_000, Limits::DEFAULT.listings, Limits::LISTINGS_MAX];
    let mut stores: Vec<_> =
        sizes.map(|it| (format!("{it} listings"), count(it, Lifetimes::FEW))).into_iter().collect();
    let spread = count(Limits::DEFAULT.listings, Lifetimes::All);
    stores.push((format!("{} listings, all lifetimes", Limits::DEFAULT.listings), spread));
    let names: Vec<_> = stores.iter().map(|(name, _)| &**name).collect();
    let head = format!("| | {} |\n|---|---|---|---|---|", names.join(" | "));
    println!("{head}");
    for name in MEASURED {
        let first = stores[0].1[name].instructions;
        let cells = stores.iter().map(|(_, it)| it[name].instructions);
        let cells = cells.map(|it| format!("{it:.0} [{:.3}]", it / first));
        println!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    println!(
        "\nLines of memory each that a cache of {CACHE_KIB} KiB does not hold, as callgrind simulates it.\n"
    );
    println!("{head}");
    for name in MEASURED {
        let cells = stores.iter().map(|(_, it)| format!("{:.1}", it[name].misses));
        println!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

/// What callgrind counted, for each.
struct Count {
    instructions: f64,
    /// Of data, read and written.
    misses: f64,
}

/// What each kind of transition takes in a store of that many listings.
fn count(listings: usize, lifetimes: Lifetimes) -> BTreeMap<&'static str, Count> {
    let mode = if matches!(lifetimes, Lifetimes::All) { CHILD_ALL } else { CHILD };
    let folder = format!("rendezvous-instructions-{}{mode}-{listings}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet", "--cache-sim=yes"]);
    command.arg(format!("--LL={},8,64", CACHE_KIB * 1024));
    command.arg("--dump-after=*measured_batches*");
    command.arg(format!("--callgrind-out-file={}", folder.join("out").display()));
    command.arg(std::env::current_exe().unwrap()).args([mode, &listings.to_string()]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let counts = MEASURED
        .iter()
        .enumerate()
        .map(|(at, &name)| (name, counted_in(&folder.join(format!("out.{}", 2 * at + 2)))));
    let counts = counts.collect();
    std::fs::remove_dir_all(&folder).unwrap();
    counts
}

/// What a file of callgrind states, in the order of its events.
fn counted_in(path: &Path) -> Count {
    let text = std::fs::read_to_string(path).unwrap();
    let stated = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let events = stated("events: ").unwrap().split(' ');
    let sums = stated("totals: ").or(stated("summary: ")).unwrap().split(' ');
    let sums: BTreeMap<_, f64> = events.zip(sums.map(|it| it.parse().unwrap())).collect();
    let each = |event| sums[event] / COUNT as f64;
    Count { instructions: each("Ir"), misses: each("DLmr") + each("DLmw") }
}

/// Whether this process was started to be counted; then it is done.
pub(crate) fn counts(arguments: &[String]) -> bool {
    let [mode, listings] = arguments else { return false };
    let lifetimes = match mode.as_str() {
        CHILD => Lifetimes::FEW,
        CHILD_ALL => Lifetimes::All,
        _ => return false,
    };
    child(listings.parse().unwrap(), lifetimes);
    true
}

/// What is counted: each kind once, in the order of [`MEASURED`]. Attempts that are bound are made before, uncounted.
fn child(listings: usize, lifetimes: Lifetimes) {
    let mut fleet = Fleet::new(limits(listings + COUNT, (listings * 2 / 5).max(4_000)), lifetimes);
    fleet.register(listings);
    let hosts: Vec<_> = shuffled(listings).into_iter().take(COUNT).collect();
    let refreshes: Vec<_> = hosts.iter().map(|&host| fleet.refresh(host)).collect();
    let creations: Vec<_> = hosts.iter().map(|&host| fleet.creation(host)).collect();
    let renewals: Vec<_> = hosts.iter().map(|&host| fleet.renewal(host)).collect();
    let registrations: Vec<_> = (0..COUNT as u32)
        .map(|number| Transition::RegisterListing(Box::new(fleet.registration(number))))
        .collect();
    counted(&mut fleet, &refreshes);
    let made: Vec<Attempt> = hosts.iter().map(|&host| fleet.join(host)).collect();
    let binds: Vec<_> = made.iter().map(|it| fleet.bind_joiner(it)).collect();
    counted(&mut fleet, &binds);
    let binds: Vec<_> = made.iter().map(|it| fleet.bind_host(it)).collect();
    counted(&mut fleet, &binds);
    counted(&mut fleet, &renewals);
    let replies = counted(&mut fleet, &registrations);
    let deletions: Vec<_> =
        replies.iter().zip(&registrations).map(|(reply, asked)| deletion(reply, asked)).collect();
    counted(&mut fleet, &deletions);
    counted(&mut fleet, &creations);
    // As many things are worked off along with these as are measured: attempts come first.
    fleet.now = fleet.now.after(ATTEMPT_MAX);
    let bystanders = COUNT / Pace::DEFAULT.per_transition;
    counted(&mut fleet, &vec![Transition::GetDrain; bystanders]);
}

fn deletion(reply: &Reply, asked: &Transition) -> Transition {
    let (Reply::Registered(grant), Some(caller)) = (reply, asked.caller()) else { panic!("{reply:?}") };
    Transition::DeleteListing(rendezvous_shared::store::DeleteListing { caller, listing: grant.view.id })
}

fn counted(fleet: &mut Fleet, transitions: &[Transition]) -> Vec<Reply> {
    measured_batches(fleet, &[]);
    measured_batches(fleet, transitions)
}

/// What callgrind counts: it finds this function by its name, and writes a file each time it returns.
#[inline(never)]
fn measured_batches(fleet: &mut Fleet, transitions: &[Transition]) -> Vec<Reply> {
    let mut replies = Vec::with_capacity(transitions.len());
    transitions.chunks(BATCH).for_each(|batch| fleet.store.apply(fleet.now, batch, &mut replies));
    replies
}
