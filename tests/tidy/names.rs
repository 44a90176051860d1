//! Rules about names that code and pages must share.

use std::collections::BTreeSet;

use crate::lexer::{code_only, is_word};
use crate::tree::File;

/// The names in the first column of the table below `heading`, in backticks.
fn documented(page: &str, heading: &str) -> BTreeSet<String> {
    let section = page
        .lines()
        .skip_while(|line| line.trim_start_matches('#').trim() != heading || !line.starts_with('#'));
    let section = section.skip(1).take_while(|line| !line.starts_with('#'));
    let first = section.filter_map(|line| line.strip_prefix("| `"));
    first.filter_map(|rest| rest.split_once('`')).map(|(name, _)| name.to_owned()).collect()
}

/// Where the table below `heading` and the names of an enum differ.
pub(crate) fn table_of_names(page: &File, heading: &str, names: &[&str]) -> Vec<String> {
    let documented = documented(&page.text, heading);
    let names: BTreeSet<String> = names.iter().map(|it| (*it).to_owned()).collect();
    let absent = names.difference(&documented).map(|it| format!("add a line for `{it}`"));
    let stale =
        documented.difference(&names).map(|it| format!("remove `{it}`, which nothing is called any more"));
    absent.chain(stale).map(|what| format!("{}, \"{heading}\": {what}", page.path)).collect()
}

/// The names of metrics that `file` writes, without prefix and suffix.
pub(crate) fn metrics(file: &File) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for call in ["counter", "counters", "gauge", "gauges", "histograms", "encode_descriptor"] {
        for (at, _) in file.text.match_indices(&format!(".{call}(")) {
            let rest = file.text[at + call.len() + 2..].trim_start();
            if let Some((name, _)) = rest.strip_prefix('"').and_then(|it| it.split_once('"')) {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

/// The public fields of the structs in `file`, or of only one of them.
pub(crate) fn fields(file: &File, only: Option<&str>) -> BTreeSet<String> {
    let code = code_only(&file.text);
    let mut names = BTreeSet::new();
    let mut inside = None;
    for line in code.lines() {
        if let Some(rest) = line.strip_prefix("pub struct ") {
            inside = Some(rest.split(|it| !is_word(it)).next().unwrap_or_default().to_owned());
        } else if line.starts_with('}') {
            inside = None;
        } else if let (Some(of), Some(rest)) = (&inside, line.strip_prefix("    pub "))
            && only.is_none_or(|only| only == of)
            && let Some((name, _)) = rest.split_once(':')
        {
            names.insert(name.to_owned());
        }
    }
    names
}

/// Which of `names` the page does not mention in backticks, each with `prefix` in front.
pub(crate) fn unmentioned(page: &File, names: &BTreeSet<String>, prefix: &str, what: &str) -> Vec<String> {
    let mentioned = |name: &&String| {
        let whole = format!("{prefix}{name}");
        // `a_name`, `a_name{label}`, `a_name_total`, `a_name = 5`, `table.a_name`, `[a_name]`
        page.text.match_indices(&whole).any(|(at, _)| {
            let before = page.text[..at].chars().next_back();
            let after =
                page.text[at + whole.len()..].trim_start_matches("_total").trim_start_matches("_info");
            matches!(before, Some('`' | '.' | '['))
                && matches!(after.chars().next(), Some('`' | '{' | ' ' | '.' | ']'))
        })
    };
    let absent = names.iter().filter(|it| !mentioned(it));
    absent.map(|it| format!("{}: describe the {what} `{prefix}{it}`", page.path)).collect()
}
