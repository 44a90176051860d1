//! The table of clauses on the page.

/// A clause of the store.
#[derive(Clone, Debug)]
pub(crate) struct Clause {
    /// Its section and its place there, as in `2.11`.
    pub(crate) number: String,
    /// The tests that prove it.
    pub(crate) proofs: Vec<Proof>,
    /// Why there are none.
    pub(crate) reason: Option<String>,
}

/// A test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Proof {
    /// Where it is, by the word the page has for it.
    pub(crate) target: String,
    /// Its name, as cargo prints it.
    pub(crate) name: String,
}

/// The clauses of a page: each line of a table that begins with a number.
pub(crate) fn clauses(page: &str) -> Result<Vec<Clause>, String> {
    let mut clauses = Vec::new();
    for line in page.lines().filter(|it| it.starts_with("| ")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let ["", number, says, proved, ""] = cells.as_slice() else { continue };
        if !number.starts_with(|it: char| it.is_ascii_digit()) {
            continue;
        }
        if says.is_empty() {
            return Err(format!("clause {number} says nothing"));
        }
        let reason = proved.strip_prefix("not testable:").map(|it| it.trim().to_owned());
        let reason = reason.filter(|it| !it.is_empty());
        let proofs = match &reason {
            Some(_) => Vec::new(),
            None => proved.split(" · ").map(proof).collect::<Result<_, _>>()?,
        };
        clauses.push(Clause { number: (*number).to_owned(), proofs, reason });
    }
    Ok(clauses)
}

fn proof(text: &str) -> Result<Proof, String> {
    let (target, name) = text.split_once(' ').unwrap_or_default();
    let name = name.strip_prefix('`').and_then(|it| it.strip_suffix('`'));
    let name = name.ok_or_else(|| format!("{text:?} names no test, as in: core `module::name`"))?;
    Ok(Proof { target: target.to_owned(), name: name.to_owned() })
}
