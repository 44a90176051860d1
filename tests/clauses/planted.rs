//! The rules on a small page with something left out of it: each must miss it.

use crate::{Material, unbroken, unlike_commands, unmentioned, unplantable, unproved, wrong_numbers};

const PAGE: &str = "\
| core | `cargo test -p x --lib` |
| clause | says | proved by |
|---|---|---|
| 1.1 | One. | core `store::tests::contract::drain::begins` |
| 1.2 | A reason. | not testable: a reason |
| 2.1 | Two. | core `store::tests::reluctant::drain::ends` · core `own::tests::stays` |
";

const CONTRACT: &str = "macro_rules! store_contract_tests {
    ($harness:expr) => { $crate::store_contract_tests! { @ $harness; drain: begins,
        ends;
    } };
}";

const SOURCE: &str = "mod tests {\n    #[test]\n    fn stays() {}\n    fn helps() {}\n}\n";

/// A list with a mistake for each of both clauses, and one for each name that is expected.
fn list() -> String {
    let mut list = "[targets]\ncore = ['-p', 'x', '--lib']\n".to_owned();
    let fault = |clause: &str, why: &str, test: &str| {
        let text = "file = 'own'\nfind = 'stays'\nreplace = 'goes'\n";
        format!("[[fault]]\nclauses = ['{clause}']\nwhy = '{why}'\n{text}tests = ['{test}']\n")
    };
    for why in crate::NAMED {
        list.push_str(&fault("1.1", why, "store::tests::contract::drain::begins"));
    }
    list + &fault("2.1", "it goes", "own::tests::stays")
}

fn read(path: &str) -> Option<String> {
    ["own", "dataplane/core/src/own.rs"].contains(&path).then(|| SOURCE.to_owned())
}

/// Every finding about a page, a list of mistakes and a contract.
fn findings(page: &str, list: &str, contract: &str) -> Vec<String> {
    let material = Material::of(page, list, contract);
    let all = [
        wrong_numbers(&material),
        unproved(&material, read),
        unbroken(&material),
        unplantable(&material, read),
        unmentioned(&material),
        unlike_commands(&material, page),
    ];
    all.concat()
}

#[track_caller]
fn finds(page: &str, list: &str, contract: &str, expected: &str) {
    let found = findings(page, list, contract);
    assert!(found.iter().any(|it| it.contains(expected)), "{expected:?} is not among {found:#?}");
}

#[test]
fn a_page_that_lacks_nothing_is_in_order() {
    assert_eq!(findings(PAGE, &list(), CONTRACT), Vec::<String>::new());
}

#[test]
fn a_clause_that_is_missing_is_missed() {
    let list = list();
    finds(&PAGE.replace("| 1.2 |", "| 1.3 |"), &list, CONTRACT, "clause 1.3 does not follow 1.1");
    finds(&PAGE.replace("| 2.1 |", "| 1.2 |"), &list, CONTRACT, "clause 1.2 does not follow 1.2");
    finds(&PAGE.replace("| 1.1 |", "| 1.2 |"), &list, CONTRACT, "clause 1.2 does not follow 0.0");
    finds(PAGE, &list, &CONTRACT.replace("ends;", "ends, waits;"), "drain::waits is in the contract");
}

#[test]
fn a_test_that_is_missing_is_missed() {
    let list = list();
    let gone = PAGE.replace("drain::begins", "drain::begin");
    finds(&gone, &list, CONTRACT, "clause 1.1: there is no test core store::tests::contract::drain::begin");
    let no_test = PAGE.replace("own::tests::stays", "own::tests::helps");
    finds(&no_test, &list, CONTRACT, "clause 2.1: there is no test core own::tests::helps");
    let elsewhere = PAGE.replace("core `own", "node `own");
    finds(&elsewhere, &list, CONTRACT, "clause 2.1: there is no test node own::tests::stays");
    finds(
        &PAGE.replace("--lib", "--lib it"),
        &list,
        CONTRACT,
        "the page runs the tests called core otherwise",
    );
    assert!(crate::table::clauses(&PAGE.replace("not testable: a reason", "not testable:")).is_err());
}

#[test]
fn a_mistake_that_is_missing_is_missed() {
    let list = list();
    finds(PAGE, &list.replace("['2.1']", "['1.1']"), CONTRACT, "clause 2.1: plant a mistake");
    finds(PAGE, &list.replace("['2.1']", "['2.2']"), CONTRACT, "it goes: there is no clause 2.2");
    finds(PAGE, &list.replace("own::tests::stays", "other"), CONTRACT, "other is not a test of clause 2.1");
    finds(PAGE, &list.replace("expire late", "expire"), CONTRACT, "no mistake is called `expire late`");
    finds(PAGE, &list.replace("'stays'", "'s'"), CONTRACT, "its text stands 6 times in own");
    finds(PAGE, &list.replace("'stays'", "'remains'"), CONTRACT, "its text stands 0 times in own");
    finds(PAGE, &list.replace("file = 'own'", "file = 'gone'"), CONTRACT, "there is no gone");
    finds(PAGE, &list.replace("'goes'", "'stays'"), CONTRACT, "its text stands 1 times in own");
}
