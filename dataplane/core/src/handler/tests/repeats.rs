//! Unasked repeats: at most three in all, a quarter of a second apart, and they stop when they are answered.

use rendezvous_shared::store::{CancelAttempt, DeleteListing, GetAttempt, Report, Reporter, Revoke, Subject};

use super::*;

impl Server {
    /// Ends an attempt, or the presence of its host.
    fn end(&mut self, what: &str, attempt: AttemptId, host: &mut Client) {
        let caller = Self::caller(1);
        let Reply::Attempt(view) = self.apply(Transition::GetAttempt(GetAttempt { caller, attempt })) else {
            panic!("no attempt")
        };
        let transition = match what {
            "cancelled" => Transition::CancelAttempt(CancelAttempt { caller: Self::caller(2), attempt }),
            "declined" => Transition::CancelAttempt(CancelAttempt { caller, attempt }),
            "deleted" => Transition::DeleteListing(DeleteListing { caller, listing: view.listing }),
            "revoked" => Transition::Revoke(Revoke {
                caller: Caller { operator: true, ..Self::caller(9) },
                subject: Subject::Listing(view.listing),
                lifetime: limits::REVOCATION_MIN,
            }),
            _ => {
                let bytes = host.bye();
                assert_eq!(self.receive(host.source, &bytes).outcome, DatagramOutcome::ByeAccepted);
                return;
            }
        };
        assert!(!matches!(self.apply(transition), Reply::Refused(_)), "{what}");
    }
}

fn kind_of(bytes: &[u8]) -> u8 {
    bytes[5]
}

/// Lets a second pass in steps and returns what was repeated, with its time in milliseconds from now.
fn repeated_in_a_second(server: &mut Server) -> Vec<(u64, SocketAddr, u8)> {
    let start = server.now;
    let mut all = Vec::new();
    for _ in 0..1_000 {
        server.sleep(Duration::from_millis(1));
        let elapsed = server.now.since(start).as_millis() as u64;
        let sent = server.repeats();
        all.extend(sent.into_iter().map(|(to, bytes)| (elapsed, to, kind_of(&bytes))));
    }
    assert_eq!(server.handler.next_timeout(), None);
    all
}

#[test]
fn a_notice_is_repeated_twice() {
    let mut server = Server::new();
    let (host, mut joiner, attempt) = server.pair();
    server.receive(joiner.source, &joiner.bind(attempt));
    assert_eq!(server.handler.next_timeout(), Some(server.now.after(limits::RESEND_INTERVAL)));
    let notice = Kind::Notice as u8;
    let expected = vec![(250, host.source, notice), (500, host.source, notice)];
    assert_eq!(repeated_in_a_second(&mut server), expected);
    server.receive(joiner.source, &joiner.bind(attempt));
    assert!(repeated_in_a_second(&mut server).is_empty(), "asking again plans nothing");
}

#[test]
fn repeats_count_themselves_and_late_ones_keep_their_distance() {
    let mut server = Server::new();
    let (host, mut joiner, attempt) = server.pair();
    server.receive(joiner.source, &joiner.bind(attempt));
    server.sleep(Duration::from_millis(700));
    let late = server.repeats();
    assert_eq!(late.len(), 1);
    let Ok(Parsed::Notice(notice)) = wire::parse_answer(&late[0].1) else { panic!("no NOTICE") };
    assert!(notice.verify(Direction::ToClient, &host.secret) && notice.body.ordinal == 2);
    server.sleep(Duration::from_millis(249));
    assert!(server.repeats().is_empty());
    server.sleep(Duration::from_millis(1));
    assert_eq!(server.repeats().len(), 1);
    server.sleep(Duration::from_secs(9));
    assert!(server.repeats().is_empty());
}

#[test]
fn the_hosts_bind_ends_the_notice_and_begins_the_introduction() {
    let mut server = Server::new();
    let (mut host, mut joiner, attempt) = server.pair();
    server.receive(joiner.source, &joiner.bind(attempt));
    server.receive(host.source, &host.bind(attempt));
    let introduce = Kind::Introduce as u8;
    let expected = vec![(250, joiner.source, introduce), (500, joiner.source, introduce)];
    assert_eq!(repeated_in_a_second(&mut server), expected);
}

#[test]
fn a_host_that_waits_with_its_joiner_needs_no_notice() {
    let mut server = Server::new();
    let (mut host, mut joiner, attempt) = server.pair();
    server.receive(joiner.source, &joiner.bind(attempt));
    server.receive(host.source, &host.bye());
    assert_eq!(server.receive(host.source, &host.bind(attempt)).outcome, DatagramOutcome::BindAccepted);
    assert!(repeated_in_a_second(&mut server).is_empty());
}

#[test]
fn report_and_bind_cancel_and_replays_do_not() {
    for (what, left) in [("report", 0), ("bind", 0), ("another key", 2)] {
        let mut server = Server::new();
        let (mut host, mut joiner, attempt) = server.pair();
        let bind = joiner.bind(attempt);
        server.receive(joiner.source, &bind);
        server.receive(host.source, &host.bind(attempt));
        let end = match what {
            "report" => server.receive(joiner.source, &joiner.report(attempt, 1)),
            "bind" => server.receive(joiner.source, &joiner.bind(attempt)),
            _ => {
                let (key_id, _) = server.create_again(attempt);
                let mut other = server.client(key_id, "9.9.9.7:5000");
                let bytes = other.bind(attempt);
                server.receive(other.source, &bytes)
            }
        };
        assert!(!end.is_silent());
        assert_eq!(repeated_in_a_second(&mut server).len(), left, "{what}");
    }
}

#[test]
fn a_refused_host_gets_no_more_notices() {
    let mut server = Server::new();
    let (mut host, _, attempt) = server.pair();
    let (key_id, attempt) = server.create_again(attempt);
    let mut joiner = server.client(key_id, "[2600::2]:5000");
    server.receive(joiner.source, &joiner.bind(attempt));
    let end = server.receive(host.source, &host.bind(attempt));
    assert_eq!(end.outcome, DatagramOutcome::RefusedConflict, "no common family");
    assert!(repeated_in_a_second(&mut server).is_empty());
}

#[test]
fn a_repeat_goes_where_the_host_is_now() {
    let mut server = Server::new();
    let (mut host, mut joiner, attempt) = server.pair();
    server.receive(joiner.source, &joiner.bind(attempt));
    let moved = at("9.9.9.1:4001");
    host.cookie = server.cookie_at(&host, moved);
    server.sleep(Duration::from_millis(10));
    assert_eq!(server.receive(moved, &host.presence()).outcome, DatagramOutcome::PresenceAccepted);
    let sent = repeated_in_a_second(&mut server);
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|(_, to, kind)| *to == moved && *kind == Kind::Notice as u8), "{sent:?}");
}

#[test]
fn what_is_over_is_not_repeated() {
    for what in ["cancelled", "declined", "revoked", "deleted", "gone"] {
        let mut server = Server::new();
        let (mut host, mut joiner, attempt) = server.pair();
        server.receive(joiner.source, &joiner.bind(attempt));
        server.end(what, attempt, &mut host);
        assert!(repeated_in_a_second(&mut server).is_empty(), "{what}");
    }
}

#[test]
fn whoever_reported_over_http_is_told_no_more() {
    let mut server = Server::new();
    let (mut host, mut joiner, attempt) = server.pair();
    server.receive(joiner.source, &joiner.bind(attempt));
    server.receive(host.source, &host.bind(attempt));
    for principal in [1, 2] {
        let reporter = Reporter::Caller(Server::caller(principal));
        let result = wire::ReportResult::Connected;
        assert_eq!(server.apply(Transition::Report(Report { reporter, attempt, result })), Reply::Reported);
    }
    assert!(repeated_in_a_second(&mut server).is_empty());
}

#[test]
fn a_slow_store_brings_no_two_repeats_together() {
    let mut server = Server::new();
    let (_, mut joiner, attempt) = server.pair();
    server.receive(joiner.source, &joiner.bind(attempt));
    server.sleep(limits::RESEND_INTERVAL);
    let (remind, due) = server.handler.next_repeat(server.now).unwrap();
    let reply = server.apply(Transition::Remind(remind));
    server.sleep(Duration::from_millis(600));
    assert!(server.handler.next_repeat(server.now).is_none(), "one at a time");
    assert!(server.handler.on_reminded(server.now, due, &reply).is_some());
    server.sleep(limits::RESEND_INTERVAL - Duration::from_nanos(1));
    assert!(server.handler.next_repeat(server.now).is_none());
    server.sleep(Duration::from_nanos(1));
    let (_, due) = server.handler.next_repeat(server.now).unwrap();
    server.handler.leave_out(server.now, due);
    assert_eq!(server.handler.next_timeout(), None, "what is left out is not made up for");
}

#[test]
fn who_answers_while_the_store_is_asked_is_told_no_more() {
    let mut server = Server::new();
    let (mut host, mut joiner, attempt) = server.pair();
    server.receive(joiner.source, &joiner.bind(attempt));
    server.sleep(limits::RESEND_INTERVAL);
    let (remind, due) = server.handler.next_repeat(server.now).unwrap();
    let reply = server.apply(Transition::Remind(remind));
    assert!(matches!(reply, Reply::Reminded(Some(_))));
    server.receive(host.source, &host.bind(attempt));
    assert!(server.handler.on_reminded(server.now, due, &reply).is_none());
}

#[test]
fn abuse_never_makes_the_plan_grow() {
    use super::super::repeats::Repeats;
    use rendezvous_shared::id::{Handle, Role};
    let mut repeats = Repeats::new();
    let room = repeats.capacity();
    let mut asked = std::collections::VecDeque::new();
    let mut now = Instant::from_millis(1);
    let mut sent = 0u64;
    for step in 0..400_000u64 {
        let attempt = AttemptId::new(step.wrapping_mul(0x9e37_79b9_7f4a_7c15), Handle(step));
        repeats.plan(now, attempt, Role::Host);
        if step % 3 == 0 {
            repeats.cancel(attempt, Role::Host);
        }
        if step % 5 == 0 {
            repeats.plan(now, attempt, Role::Host);
        }
        if step % 64 == 0 {
            now = now.after(Duration::from_millis(1));
            asked.extend(core::iter::from_fn(|| repeats.due(now)));
            // The store answers late, and of some that there is nothing to say.
            for (ordinal, (_, due)) in asked.drain(..asked.len() / 2).enumerate() {
                sent += u64::from(repeats.answered(now, due, ordinal % 4 != 0).is_some());
            }
        }
        // The map counts places of removed entries as taken until it tidies up; it must never count more.
        let (plans, queue) = repeats.capacity();
        assert!(plans <= room.0 && queue == room.1, "grew after {step} plans");
    }
    assert!(sent > 0);
}
