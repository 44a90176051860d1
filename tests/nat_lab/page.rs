//! `docs/nat.md`: the tables in it are what the lab is expected to find, with times as once measured.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::nat::Nat;
use crate::pairs::{Finding, expected};
use crate::play::End;
use crate::stories;

const BEGIN: &str = "<!-- what the lab found: begin -->";
const END: &str = "<!-- what the lab found: end -->";

/// A case by the names in the first two columns.
pub(crate) type Name = [String; 2];

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/nat.md")
}

/// The name of a pair of NATs, that of the host first.
pub(crate) fn pair(host: Nat, joiner: Nat) -> Name {
    [host, joiner].map(|nat| nat.name().to_owned())
}

/// The name of a case that is no pair.
pub(crate) fn story(name: &str) -> Name {
    [name.to_owned(), String::new()]
}

/// The tables, each row with the time that `time` gives for it.
fn tables(time: impl Fn(&Name) -> String) -> String {
    let row = |name: Name, end: &End| {
        let [result, how] = end.columns();
        let time = time(&name);
        let cells = name.into_iter().filter(|it| !it.is_empty()).chain([result, how, time]);
        cells.fold(
            "|".to_owned(),
            |row, cell| if cell.is_empty() { row + " |" } else { row + " " + &cell + " |" },
        ) + "\n"
    };
    let mut text =
        "| host's NAT | joiner's NAT | result | by way of, or reason | ms |\n|---|---|---|---|---:|\n"
            .to_owned();
    for host in Nat::ALL {
        for joiner in Nat::ALL {
            text += &row(pair(host, joiner), &expected(host, joiner));
        }
    }
    text += "\n| else | result | by way of, or reason | ms |\n|---|---|---|---:|\n";
    for it in stories::all() {
        text += &row(story(it.name), &it.expected);
    }
    text
}

/// The tables of the page as it is.
fn current() -> (String, String, String) {
    let text = std::fs::read_to_string(path()).expect("docs/nat.md is there");
    let (before, rest) = text.split_once(BEGIN).expect("the page has a place for the tables");
    let (tables, after) = rest.split_once(END).expect("which ends");
    (before.to_owned(), tables.trim().to_owned() + "\n", after.to_owned())
}

/// Without the last column of each row, the times.
fn stable(tables: &str) -> Vec<String> {
    let row =
        |line: &str| line.trim_end_matches('|').rsplit_once('|').map_or(line, |(rest, _)| rest).to_owned();
    tables.lines().map(row).collect()
}

/// Writes what was found into the page.
pub(crate) fn write(found: &BTreeMap<Name, Finding>) {
    let (before, _, after) = current();
    let time = |name: &Name| {
        let ms = found.get(name).and_then(|it| it.connected_after_ms);
        ms.map_or_else(String::new, |ms| format!("{ms:.1}"))
    };
    let text = format!("{before}{BEGIN}\n\n{}\n{END}{after}", tables(time));
    std::fs::write(path(), text).expect("docs/nat.md can be written");
}

#[test]
fn the_page_says_what_the_lab_expects() {
    let (_, tables_there, _) = current();
    assert_eq!(
        stable(&tables_there),
        stable(&tables(|_| String::new())),
        "docs/nat.md is out of date; as root: RENDEZVOUS_NAT_PAGE=write cargo test -p rendezvous --test nat_lab"
    );
}

#[test]
fn only_times_may_differ() {
    let row = |cells: &str| stable(cells).remove(0);
    assert_eq!(row("| a | b | connects | LAN | 12 |"), row("| a | b | connects | LAN | |"));
    assert_ne!(row("| a | b | connects | LAN | 12 |"), row("| a | b | connects | IPv6 | 12 |"));
    assert_ne!(row("| a | connects | LAN | 12 |"), row("| a | does not | LAN | 12 |"));
}
