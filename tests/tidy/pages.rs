//! Rules about pages, and about white space.

use std::collections::BTreeSet;
use std::path::Path;

use crate::lexer::is_word;
use crate::tree::File;

/// Where decisions stand.
pub(crate) const DECISIONS: &str = "docs/architecture/decisions/";
/// What every decision says.
const SECTIONS: [&str; 3] = ["## Context", "## Decision", "## Price"];

/// No tab, and nothing behind the last character of a line.
pub(crate) fn white_space(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in file.text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').map_or(line, |_| "\r ");
        if line.contains('\t') {
            found.push(file.finding(index, "a tab: write spaces"));
        }
        if line.ends_with(char::is_whitespace) {
            found.push(file.finding(index, "white space at the end of the line: remove it"));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        found.push(file.finding(file.text.lines().count(), "no newline at the end of the file: add it"));
    }
    found
}

/// What two changes of the same lines left behind.
pub(crate) fn unmerged(file: &File) -> Vec<String> {
    let is_marker = |line: &str| ["<<<<<<<", ">>>>>>>"].iter().any(|it| line.starts_with(it));
    let marked = file.text.lines().enumerate().filter(|(_, line)| is_marker(line));
    marked.map(|(index, _)| file.finding(index, "the mark of a conflict: decide what stays")).collect()
}

/// Lines of a page outside of fenced code, counted from 0.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Without `code spans`, which are not read for links.
fn without_code(line: &str) -> String {
    line.split('`').enumerate().map(|(index, part)| if index % 2 == 0 { part } else { "" }).collect()
}

/// The targets of a line's links.
fn targets(line: &str) -> Vec<String> {
    let line = without_code(line);
    let starts = line.match_indices("](").map(|(at, _)| &line[at + 2..]);
    starts.filter_map(|it| it.split_once(')')).map(|(target, _)| target.trim().to_owned()).collect()
}

/// The anchors of a page, made from its headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).map(|(_, line)| line).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|&it| is_word(it) || it == '-' || it == ' ');
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Links to what is not there. `read` gives the text of a path relative to the top; an empty one for a directory.
pub(crate) fn dead_links(page: &File, read: impl Fn(&Path) -> Option<String>) -> Vec<String> {
    let directory = Path::new(&page.path).parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for (index, line) in prose(&page.text) {
        for target in targets(line) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, fragment) = target.split_once('#').unwrap_or((&target, ""));
            let text = if path.is_empty() { Some(page.text.clone()) } else { read(&directory.join(path)) };
            let is_page = path.is_empty() || path.ends_with(".md");
            match text {
                None => found.push(page.finding(index, format!("{target} does not exist: correct the link"))),
                Some(text) if is_page && !fragment.is_empty() && !anchors(&text).contains(fragment) => {
                    found.push(page.finding(index, format!("{target} names no heading: correct the link")));
                }
                Some(_) => {}
            }
        }
    }
    found
}

/// What is wrong with the set of decisions; `pages` are the files of their folder.
pub(crate) fn decisions(pages: &[File]) -> Vec<String> {
    let name = |file: &File| file.path.trim_start_matches(DECISIONS).to_owned();
    let Some(index) = pages.iter().find(|it| name(it) == "README.md") else {
        return vec![format!("{DECISIONS}README.md: write it; it lists every decision with its price")];
    };
    let mut found = Vec::new();
    let decisions = pages.iter().filter(|it| name(it) != "README.md");
    for (place, file) in decisions.enumerate() {
        let number = format!("{:04}", place + 1);
        let name = name(file);
        if !name.starts_with(&format!("{number}-")) {
            found.push(
                file.finding(0, format!("name it {number}-...: numbers go up by one and none is used twice")),
            );
        }
        let title = format!("# {}. ", name.split('-').next().unwrap_or_default());
        if !file.text.starts_with(&title) {
            found.push(file.finding(0, format!("begin with `{title}` and the decision in a few words")));
        }
        for section in SECTIONS.into_iter().filter(|it| !file.text.lines().any(|line| line == *it)) {
            found.push(file.finding(0, format!("add a section `{section}`")));
        }
        if !index.text.contains(&format!("]({name})")) {
            found.push(index.finding(0, format!("add a line for {name}, with its price")));
        }
    }
    found
}
