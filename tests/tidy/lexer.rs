//! Tells code from comments and from the contents of literals, well enough for the rules.

/// What an identifier is made of.
pub(crate) fn is_word(it: char) -> bool {
    it.is_alphanumeric() || it == '_'
}

/// `text` with comments and the contents of literals blanked out; lines stay where they are.
pub(crate) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = end_of_token(&chars, at);
        let keeps_quotes = chars[at] != '/' && end > at + 1;
        for (index, &it) in chars.iter().enumerate().take(end).skip(at) {
            let edge = index == at || index + 1 == end;
            let kept = it == '\n' || end == at + 1 || (keeps_quotes && edge);
            out.push(if kept { it } else { ' ' });
        }
        at = end;
    }
    out
}

/// Where the comment or literal that starts at `at` ends; `at + 1` for everything else.
fn end_of_token(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    let after_word = at > 0 && is_word(chars[at - 1]);
    match chars[at] {
        '/' if next == Some('/') => find(chars, at, |it| it == '\n'),
        '/' if next == Some('*') => end_of_block(chars, at),
        '"' => end_of_quoted(chars, at, '"'),
        'r' if !after_word || chars[at - 1] == 'b' => end_of_raw(chars, at).unwrap_or(at + 1),
        // A lifetime has no quote behind its first letter.
        '\'' if next == Some('\\') || chars.get(at + 2) == Some(&'\'') => end_of_quoted(chars, at, '\''),
        _ => at + 1,
    }
}

fn find(chars: &[char], from: usize, is_end: impl Fn(char) -> bool) -> usize {
    chars[from..].iter().position(|&it| is_end(it)).map_or(chars.len(), |len| from + len)
}

fn end_of_block(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut at = at;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(chars.len())
}

fn end_of_quoted(chars: &[char], at: usize, quote: char) -> usize {
    let mut at = at + 1;
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

/// `r"…"`, `r#"…"#` and so on.
fn end_of_raw(chars: &[char], at: usize) -> Option<usize> {
    let open = find(chars, at + 1, |it| it != '#');
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let hashes = open - at - 1;
    let closes = |from: usize| {
        chars[from] == '"' && chars[from + 1..].iter().take(hashes).filter(|it| **it == '#').count() == hashes
    };
    (open + 1..chars.len()).find(|&from| closes(from)).map(|from| from + 1 + hashes)
}

#[test]
fn comments_and_literals_are_no_code() {
    for (text, code) in [
        ("a // b\nc", "a     \nc"),
        ("a /* b /* c */ d */ e", "a                   e"),
        (r#"f("x\"y", 'z')"#, r#"f("    ", ' ')"#),
        ("r#\"a\" b\"# c", "r       # c"),
        ("br\"a\" c", "br  \" c"),
        ("&'a str, '\\'' b", "&'a str, '  ' b"),
        ("for r in r", "for r in r"),
        ("\"a\nb\" c", "\" \n \" c"),
    ] {
        assert_eq!(code_only(text), code, "{text}");
    }
}
