//! A plain table: first column to the left, the others to the right.

/// Rows of as many cells as the header has.
pub(crate) fn render(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|it| it.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (index, (cell, &width)) in cells.zip(&widths).enumerate() {
            let padded = if index == 0 { format!("  {cell:<width$}") } else { format!("  {cell:>width$}") };
            text.push_str(&padded);
        }
        text.trim_end().to_owned()
    };
    let head = line(&mut header.iter().copied());
    let body = rows.iter().map(|row| line(&mut row.iter().map(String::as_str)));
    std::iter::once(head).chain(body).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["longer".to_owned(), "1000".to_owned()]];
        assert_eq!(render(&["", "count"], &rows), "          count\n  a           1\n  longer   1000");
    }
}
