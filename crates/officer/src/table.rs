//! Tables of what a node answers.

use serde_json::Value;

/// Rows under their columns' names. `a.b` is a field of a field; `a.b=HEAD` gives it another name.
pub(crate) fn table(items: &[Value], columns: &[&str]) -> String {
    let head = |column: &&str| match column.split_once('=') {
        Some((_, head)) => head.to_owned(),
        None => column.replace(['.', '_'], " ").to_uppercase(),
    };
    let head: Vec<String> = columns.iter().map(head).collect();
    let rows = items.iter().map(|item| columns.iter().map(|column| cell(item, column)).collect::<Vec<_>>());
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let line: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn cell(item: &Value, column: &str) -> String {
    let path = column.split_once('=').map_or(column, |(path, _)| path);
    said(path.split('.').fold(item, |item, field| &item[field]))
}

fn said(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        // What a peer says must not draw on the terminal.
        Value::String(text) => text.chars().filter(|character| !character.is_control()).collect(),
        Value::Array(items) if items.is_empty() => "all".to_owned(),
        Value::Array(items) => items.iter().map(said).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_line_up_and_draw_nothing() {
        let items =
            [json!({"name": "a\u{1b}[2J", "of": {"key": ["x", "y"]}}), json!({"name": "long", "of": {"key": []}})];
        let text = table(&items, &["name", "of.key", "not_there"]);
        assert_eq!(text, "NAME  OF KEY  NOT THERE\na[2J  x,y     -\nlong  all     -\n");
        let text = table(&items, &["name", "of.key=MAY USE"]);
        assert_eq!(text, "NAME  MAY USE\na[2J  x,y\nlong  all\n");
    }
}
