//! Lists for people: columns aligned, numbers to the right, no lines.

use std::io::{self, Write};

pub(crate) use capstan_client::files::{path_text, words_text};

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

    /// The same without some of its columns.
    pub(crate) fn without(mut self, heads: &[&str]) -> Self {
        let kept: Vec<bool> = self.heads.iter().map(|head| !heads.contains(head)).collect();
        let mut left = kept.iter();
        self.heads.retain(|_| left.next().copied().unwrap_or(true));
        for row in &mut self.rows {
            let mut left = kept.iter();
            row.retain(|_| left.next().copied().unwrap_or(true));
        }
        self
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.heads.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let heads = self.head_row();
        let widths = self.widths();
        for line in std::iter::once(&heads).chain(&self.rows) {
            self.print_line(line, &widths, out)?;
        }
        Ok(())
    }

    fn head_row(&self) -> Vec<String> {
        self.heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect()
    }

    fn widths(&self) -> Vec<usize> {
        let heads = self.head_row();
        let widest =
            |column: usize| std::iter::once(&heads).chain(&self.rows).map(|line| line[column].chars().count()).max();
        (0..heads.len()).map(|column| widest(column).unwrap_or(0)).collect()
    }

    fn print_line(&self, line: &[String], widths: &[usize], out: &mut dyn Write) -> io::Result<()> {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate() {
            let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            if self.heads[column].starts_with('>') {
                text.push_str(&pad);
                text.push_str(cell);
            } else {
                text.push_str(cell);
                text.push_str(&pad);
            }
            text.push_str("  ");
        }
        writeln!(out, "{}", text.trim_end())
    }
}

/// Rows from which a [`RunningTable`] takes the widths of its columns.
const ROWS_MEASURED: usize = 1_000;

/// A table of any length in bounded memory: its columns are as wide as its first rows want them, and a later cell that
/// is wider moves the rest of its line.
pub(crate) struct RunningTable {
    first: Table,
    widths: Option<Vec<usize>>,
}

impl RunningTable {
    pub(crate) fn new(heads: &[&'static str]) -> Self {
        Self { first: Table::new(heads), widths: None }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>, out: &mut dyn Write) -> io::Result<()> {
        if let Some(widths) = &self.widths {
            return self.first.print_line(&cells, widths, out);
        }
        self.first.row(cells);
        if self.first.rows.len() == ROWS_MEASURED { self.print_first(out) } else { Ok(()) }
    }

    pub(crate) fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.widths.is_none() { self.print_first(out) } else { Ok(()) }
    }

    fn print_first(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.first.print(out)?;
        self.widths = Some(self.first.widths());
        self.first.rows.clear();
        Ok(())
    }
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
    fn columns_can_be_left_out() {
        let mut table = Table::new(&["name", "host", ">bytes"]);
        table.row(vec!["a".to_owned(), "tern".to_owned(), "10".to_owned()]);
        let mut out = Vec::new();
        table.without(&["host"]).print(&mut out).expect("a vector takes it");
        assert_eq!(String::from_utf8_lossy(&out), "name  bytes\na        10\n");
    }

    #[test]
    fn a_running_table_holds_its_first_rows_and_no_more() {
        let (mut table, mut out) = (RunningTable::new(&["name", ">bytes"]), Vec::new());
        for number in 0..ROWS_MEASURED {
            assert!(out.is_empty());
            table.row(vec!["a".to_owned(), number.to_string()], &mut out).expect("a vector takes it");
        }
        assert!(table.first.rows.is_empty() && out.starts_with(b"name  bytes\na         0\n"));
        out.clear();
        table.row(vec!["longer".to_owned(), "7".to_owned()], &mut out).expect("a vector takes it");
        assert_eq!(String::from_utf8_lossy(&out), "longer      7\n");
        table.finish(&mut out).expect("a vector takes it");
        assert!(out.ends_with(b"7\n"));
    }
}
