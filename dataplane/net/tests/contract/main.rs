//! One contract, all engines, over loopback. Every test runs in a thread of its own with a bound on its time, so a
//! deaf engine fails instead of hanging.
//!
//! Where io_uring is refused what needs it fails and says why; set `RENDEZVOUS_NET_SKIP_URING=1` to leave it out knowingly.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "all of this is test code"
)]

mod addresses;
mod errnos;
mod kit;
mod network;
mod pressure;
mod replies;
#[path = "../support/seccomp.rs"]
mod seccomp;
mod supervise;
mod traffic;
mod wakes;

/// Each test once for each engine.
macro_rules! contract {
    ($($engine:ident: $($module:ident :: $name:ident),* $(,)?;)*) => { $(
        mod $engine { $(#[test] fn $name() {
            if let Some(kind) = crate::kit::$engine() { crate::kit::bounded(move || crate::$module::$name(kind)); }
        })* }
    )* };
}

/// What every engine keeps, and then what each does besides.
macro_rules! every {
    ($($module:ident :: $name:ident),* $(,)?) => {
        contract! {
            uring: $($module::$name,)*
                errnos::an_enter_that_is_refused,
                addresses::dual_stack_gives_canonical_ipv4,
                addresses::wildcard_answers_from_the_address_asked,
                addresses::dual_stack_answers_from_the_address_asked,
                replies::more_replies_with_packet_info_than_the_submission_queue_takes;
            mmsg: $($module::$name,)*
                errnos::any_errno_of_a_system_call,
                addresses::dual_stack_gives_canonical_ipv4,
                addresses::wildcard_answers_from_the_address_asked,
                addresses::dual_stack_answers_from_the_address_asked,
                replies::more_replies_with_packet_info_than_the_submission_queue_takes;
            tokio_uring: $($module::$name,)*
                addresses::a_wildcard_is_refused;
        }
    };
}

every! {
    traffic::echoes_ten_thousand_mixed_sizes,
    traffic::echoes_over_ipv6,
    traffic::empty_datagram_is_a_datagram,
    traffic::overlong_datagrams_are_flagged,
    traffic::batch_max_is_kept_and_nothing_is_lost,
    addresses::a_bound_address_needs_no_packet_info,
    replies::refused_replies_are_counted_and_passed_over,
    replies::full_outbox_refuses_and_recovers,
    replies::more_replies_than_the_submission_queue_takes,
    errnos::sends_refused_by_the_network,
    errnos::sends_refused_by_a_full_queue,
    errnos::a_full_send_buffer,
    errnos::errors_caused_by_icmp,
    pressure::four_buffers_survive_a_burst,
    pressure::tiny_completion_queue_survives_a_burst,
    pressure::buffers_go_round_many_times,
    pressure::kernel_drops_are_exact,
    pressure::rebuilt_on_the_same_socket_it_hears,
    wakes::timeout_returns,
    wakes::another_thread_wakes_it,
    wakes::it_sleeps_after_traffic,
    wakes::no_wake_is_lost,
    wakes::a_waker_outlives_the_engine,
}
