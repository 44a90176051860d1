//! `rendezvous doctor`: what this kernel, container and limits allow, and which engine will run and why.

use rendezvous_net::{EngineChoice, EngineDecision, EngineKind, doctor_facts, probe};

use crate::output::line;
use crate::ring::engine_options;

/// Prints the facts and the decision; returns the decision.
pub fn run(choice: EngineChoice) -> EngineDecision {
    let facts = doctor_facts();
    let number = |value: Option<u64>| value.map_or_else(|| "unlimited".to_owned(), |it| it.to_string());
    let sysctl = facts.io_uring_disabled.map_or_else(|| "absent".to_owned(), |it| it.to_string());
    line(format_args!("kernel                    {}", facts.kernel_release));
    line(format_args!("kernel.io_uring_disabled  {sysctl}"));
    line(format_args!("seccomp filter            {}", if facts.seccomp_active { "active" } else { "none" }));
    line(format_args!("RLIMIT_MEMLOCK            {}", number(facts.memlock_len_max)));
    line(format_args!("RLIMIT_NOFILE             {}", number(facts.files_max)));
    let rmem = facts.rmem_max_len.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
    line(format_args!("net.core.rmem_max         {rmem}"));
    for trial in [EngineChoice::Uring, EngineChoice::TokioUring, EngineChoice::Mmsg] {
        state_of(&probe(trial, engine_options()));
    }
    let decision = probe(choice, engine_options());
    line(format_args!("engine                    {}", decision.kind));
    line(format_args!("reason                    {}: {}", decision.reason.name(), decision.reason.message()));
    if !decision.detail.is_empty() {
        line(format_args!("detail                    {}", decision.detail));
    }
    decision
}

/// One engine, whoever is chosen in the end.
fn state_of(trial: &EngineDecision) {
    let name = trial.choice.to_string();
    if !trial.honours_choice() {
        let (reason, detail) = (trial.reason.name(), &trial.detail);
        return line(format_args!("trial of {name:<16} failed: {reason} ({detail})"));
    }
    let note = match trial.kind {
        EngineKind::TokioUring => ", but not on a wildcard address; only if asked for by name",
        EngineKind::Mmsg => " wherever there are sockets",
        EngineKind::Uring => "",
    };
    line(format_args!("trial of {name:<16} works{note}"));
}
