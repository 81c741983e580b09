//! Texts of a peer: it may be hostile, and what it says stands in logs and on terminals.

/// Bytes of a text that are kept.
pub(super) const TEXT_LEN_MAX: usize = 1 << 10;

/// Whether a terminal obeys a character instead of showing it, or shows others in another order for it, so that
/// `exe.txt` reads as `txt.exe`.
pub fn moves_text(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control()
}

/// A text of a peer: its beginning, with what a terminal would obey escaped.
pub(super) fn said(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() >= TEXT_LEN_MAX {
            out.push_str(" ...");
            break;
        }
        if moves_text(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_honest_peer_says_stays_as_it_is() {
        let reason = r"C:\logs: /srv/caf\xe9: “Zugriff verweigert” (on tern)";
        assert_eq!(said(reason), reason);
    }
}
