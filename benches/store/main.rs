//! What does the store alone cost: time, instructions, memory, the longest pause?
//!
//! `cargo bench -p rendezvous-benches --bench store` prints every figure with its method's floor; one of the names
//! below as an argument prints that part alone; `attempts` is nothing but attempts, for a profiler.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and stops at what it did not expect"
)]

mod browse;
mod clients;
mod fleet;
mod instructions;
mod memory;
mod rounds;
mod stages;
mod storm;
mod throughput;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    if instructions::counts(&arguments) {
        return;
    }
    if arguments == ["attempts"] {
        return throughput::attempts();
    }
    let parts: [(&str, fn()); 5] = [
        ("throughput", throughput::print),
        ("browse", browse::print),
        ("storm", storm::print),
        ("memory", memory::print),
        ("instructions", instructions::print),
    ];
    for (name, print) in parts {
        if arguments.is_empty() || arguments.iter().any(|it| it == name) {
            println!("\n## {name}\n");
            print();
        }
    }
}
