//! Unasked repeats: at most three in all, a quarter of a second apart, and they stop when they are answered.

use super::*;

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
fn abuse_never_makes_the_plan_grow() {
    use super::super::answer::Answer;
    use super::super::repeats::Repeats;
    use rendezvous_shared::id::{Handle, Role};
    let mut repeats = Repeats::new();
    let room = repeats.capacity();
    let source = endpoint("9.9.9.1:4000");
    let cookie = Cookie::new_zeroed();
    let answer = Answer::challenge(source, None, U64::ZERO, INSTANCE, cookie);
    let mut now = Instant::from_millis(1);
    let mut sent = 0u64;
    for step in 0..400_000u64 {
        let attempt = AttemptId::new(step.wrapping_mul(0x9e37_79b9_7f4a_7c15), Handle(step));
        repeats.plan(now, attempt, Role::Host, &answer);
        if step % 3 == 0 {
            repeats.cancel(attempt, Role::Host);
        }
        if step % 5 == 0 {
            repeats.plan(now, attempt, Role::Host, &answer);
        }
        if step % 64 == 0 {
            now = now.after(Duration::from_millis(1));
            repeats.due(now, usize::MAX, |_| sent += 1);
        }
        // The map counts places of removed entries as taken until it tidies up; it must never count more.
        let (plans, queue) = repeats.capacity();
        assert!(plans <= room.0 && queue == room.1, "grew after {step} plans");
    }
    assert!(sent > 0);
}
