//! What must hold after a run. Pure: figures in, named verdicts out.

use crate::ledger::Summary;
use crate::metrics::Samples;

/// The server's figures at the start and at the end, traffic stopped.
pub(crate) struct ServerFigures {
    pub(crate) before: Samples,
    pub(crate) after: Samples,
    /// Whether nobody else used the server.
    pub(crate) exclusive: bool,
    /// How the server's process ended, where it was ours: clean or not, and what the system said.
    pub(crate) ended: Option<(bool, String)>,
}

impl ServerFigures {
    /// How much a counter rose, over all its labels. A family without samples did not count anything yet.
    pub(crate) fn rise(&self, name: &str) -> u64 {
        self.after.sum(name).unwrap_or(0).saturating_sub(self.before.sum(name).unwrap_or(0))
    }
}

/// One verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) held: bool,
    /// The figures compared.
    pub(crate) detail: String,
}

impl Check {
    const fn new(name: &'static str, held: bool, detail: String) -> Self {
        Self { name, held, detail }
    }

    fn none(name: &'static str, count: u64, what: &str) -> Self {
        Self::new(name, count == 0, format!("{count} {what}"))
    }
}

/// All of them.
pub(crate) fn all(client: &Summary, server: &ServerFigures) -> Vec<Check> {
    let mut checks = of_the_client(client);
    checks.extend(of_the_server(client, server));
    if let Some((clean, status)) = &server.ended {
        checks.push(Check::new("server exits cleanly on SIGTERM", *clean, status.clone()));
    }
    checks
}

fn of_the_client(it: &Summary) -> Vec<Check> {
    let lost: u64 = it.lost.values().sum();
    vec![
        Check::new(
            "every host is present",
            it.hosts_present == it.hosts,
            format!("{} of {}", it.hosts_present, it.hosts),
        ),
        Check::new(
            "every attempt is introduced exactly once",
            it.introduced == it.wanted && it.introduced_again == 0 && it.unknown == 0,
            format!(
                "{} of {}, {} twice or to a second peer, {} of no attempt of ours",
                it.introduced, it.wanted, it.introduced_again, it.unknown
            ),
        ),
        Check::none("every introduction names the right peer", it.wrong_pairs, "wrong"),
        Check::new(
            "every pair connects and reports",
            it.connected == it.wanted,
            format!("{} of {}", it.connected, it.wanted),
        ),
        Check::none("no attempt is lost", lost, "lost"),
    ]
}

fn of_the_server(client: &Summary, server: &ServerFigures) -> Vec<Check> {
    let after = &server.after;
    let received = after.get("rendezvous_udp_datagrams_received_total");
    let outcomes = after.sum("rendezvous_udp_datagrams_total");
    let in_flight = after.get("rendezvous_udp_datagrams_in_flight");
    let balanced = matches!((received, outcomes, in_flight), (Some(all), Some(ended), Some(open)) if all == ended + open);
    let text = |it: Option<u64>| it.map_or_else(|| "no figure".to_owned(), |it| it.to_string());

    let arrived = server.rise("rendezvous_udp_datagrams_received_total");
    let drops = server.rise("rendezvous_udp_kernel_drops_total");
    let sent = client.datagrams_sent;
    let accounted = if server.exclusive { arrived + drops == sent } else { arrived + drops >= sent };

    let introductions = server.rise("rendezvous_introductions_total{result=\"introduced\"}");
    let same = if server.exclusive {
        introductions == client.introduced
    } else {
        introductions >= client.introduced
    };
    vec![
        Check::new(
            "received = outcomes + in flight",
            balanced,
            format!("{} = {} + {}", text(received), text(outcomes), text(in_flight)),
        ),
        Check::new("nothing is in flight at the end", in_flight == Some(0), text(in_flight)),
        Check::new(
            "every datagram sent is received or a counted kernel drop",
            accounted,
            format!("{sent} sent, {arrived} received, {drops} dropped"),
        ),
        Check::new(
            "server and client count the same introductions",
            same,
            format!("server {introductions}, client {}", client.introduced),
        ),
        Check::none("no send failed", server.rise("rendezvous_udp_send_errors_total"), "send errors"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Summary {
        Summary {
            hosts: 2,
            hosts_present: 2,
            wanted: 3,
            created: 3,
            introduced: 3,
            connected: 3,
            datagrams_sent: 10,
            ..Summary::default()
        }
    }

    const GOOD: &str = "rendezvous_udp_datagrams_received_total 10\n\
        rendezvous_udp_datagrams_total{outcome=\"a\"} 6\n\
        rendezvous_udp_datagrams_total{outcome=\"b\"} 4\n\
        rendezvous_udp_datagrams_in_flight 0\n\
        rendezvous_udp_kernel_drops_total 0\n\
        rendezvous_introductions_total{result=\"introduced\"} 3\n\
        rendezvous_introductions_total{result=\"replayed\"} 1\n";

    fn server(text: &str) -> ServerFigures {
        ServerFigures {
            before: Samples::default(),
            after: Samples::parse(text),
            exclusive: true,
            ended: Some((true, "exit status: 0".to_owned())),
        }
    }

    fn failed(client: &Summary, server: &ServerFigures) -> Vec<&'static str> {
        all(client, server).into_iter().filter(|it| !it.held).map(|it| it.name).collect()
    }

    #[test]
    fn a_good_run_passes() {
        assert_eq!(failed(&client(), &server(GOOD)), Vec::<&str>::new());
        // A drop that is counted is no fault of anybody's counting.
        let dropped = GOOD.replace("drops_total 0", "drops_total 1");
        let sent = Summary { datagrams_sent: 11, ..client() };
        assert_eq!(failed(&sent, &server(&dropped)), Vec::<&str>::new());
    }

    #[test]
    fn each_fault_of_the_client_fails_its_check() {
        let once = "every attempt is introduced exactly once";
        for (bad, name) in [
            (Summary { hosts_present: 1, ..client() }, "every host is present"),
            (Summary { introduced_again: 1, ..client() }, once),
            (Summary { unknown: 1, ..client() }, once),
            (Summary { wrong_pairs: 1, ..client() }, "every introduction names the right peer"),
            (Summary { connected: 2, ..client() }, "every pair connects and reports"),
            (Summary { lost: [("timed_out".to_owned(), 1)].into(), ..client() }, "no attempt is lost"),
        ] {
            assert_eq!(failed(&bad, &server(GOOD)), [name]);
        }
        let fewer = Summary { introduced: 2, ..client() };
        assert_eq!(failed(&fewer, &server(GOOD)), [once, "server and client count the same introductions"]);
    }

    #[test]
    fn each_fault_of_the_server_fails_its_check() {
        for (from, to, name) in [
            ("\"b\"} 4", "\"b\"} 3", "received = outcomes + in flight"),
            ("drops_total 0", "drops_total 1", "every datagram sent is received or a counted kernel drop"),
            ("\"introduced\"} 3", "\"introduced\"} 4", "server and client count the same introductions"),
            ("# x", "", ""),
        ] {
            let expected = if name.is_empty() { vec![] } else { vec![name] };
            assert_eq!(failed(&client(), &server(&GOOD.replace(from, to))), expected);
        }
        let errors = format!("{GOOD}rendezvous_udp_send_errors_total{{errno=\"EPERM\"}} 1\n");
        assert_eq!(failed(&client(), &server(&errors)), ["no send failed"]);
        let open = GOOD.replace("\"b\"} 4", "\"b\"} 3").replace("in_flight 0", "in_flight 1");
        assert_eq!(failed(&client(), &server(&open)), ["nothing is in flight at the end"]);
        let unclean = ServerFigures { ended: Some((false, "signal: 9".to_owned())), ..server(GOOD) };
        assert_eq!(failed(&client(), &unclean), ["server exits cleanly on SIGTERM"]);
    }

    #[test]
    fn missing_figures_do_not_pass() {
        assert!(failed(&client(), &server("")).contains(&"received = outcomes + in flight"));
        assert!(failed(&client(), &server("")).contains(&"nothing is in flight at the end"));
    }
}
