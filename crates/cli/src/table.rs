//! Lists for people: columns aligned, numbers to the right, no lines.

use std::io::{self, Write};

/// A table that is printed when its widths are known.
pub(crate) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Heads that begin with `>` are columns of numbers.
    pub(crate) fn new(heads: &[&'static str]) -> Self {
        Self { heads: heads.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.heads.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let heads: Vec<_> = self.heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect();
        let lines: Vec<_> = std::iter::once(&heads).chain(&self.rows).collect();
        let widths: Vec<_> = (0..heads.len())
            .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
            .collect();
        for line in lines {
            let mut text = String::new();
            for (column, cell) in line.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                if self.heads[column].starts_with('>') {
                    text.push_str(&pad);
                    text.push_str(cell);
                } else {
                    text.push_str(cell);
                    text.push_str(&pad);
                }
                text.push_str("  ");
            }
            writeln!(out, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

/// Bytes of a path as text: what is not UTF-8 or would move a terminal's cursor is escaped.
pub(crate) fn path_text(path: &[u8]) -> String {
    let mut out = String::new();
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' { out.extend(c.escape_default()) } else { out.push(c) }
        }
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", ">bytes"]);
        table.row(vec!["a".to_owned(), "10".to_owned()]);
        table.row(vec!["long".to_owned(), "5".to_owned()]);
        let mut out = Vec::new();
        table.print(&mut out).expect("a vector takes it");
        assert_eq!(String::from_utf8_lossy(&out), "name  bytes\na        10\nlong      5\n");
    }

    #[test]
    fn paths_cannot_move_the_cursor() {
        assert_eq!(path_text(b"a\x1b[2Jb\xffc\xc3\xa9"), "a\\u{1b}[2Jb\\xffcé");
    }
}
