//! Reports: one HTML page that needs no network, for the screen, light and dark, and for paper.
//!
//! Each picture is SVG with its axes, its units and the words for its lines beside them; the numbers stand below it. A
//! picture shows what was measured against what was predicted wherever both are known, and names the bottleneck.

mod chart;
mod sections;

use maud::{DOCTYPE, Markup, PreEscaped, html};

pub use sections::ReportSection;

const STYLE: &str = include_str!("report/style.css");

/// The page: a title, what it stands on, and its sections.
pub fn report(title: &str, stands_on: &[(&str, String)], sections: &[ReportSection]) -> String {
    let page: Markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (title) }
                    dl {
                        @for (name, value) in stands_on {
                            div { dt { (name) } dd { (value) } }
                        }
                    }
                    nav { ul {
                        @for section in sections {
                            li { a href={ "#" (section.anchor()) } { (section.title()) } }
                        }
                    } }
                }
                @for section in sections {
                    section id=(section.anchor()) {
                        h2 { (section.title()) }
                        (section.body())
                    }
                }
            }
        }
    };
    page.into_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Comparison;

    #[test]
    fn a_page_needs_nothing_from_elsewhere_and_escapes_what_it_is_given() {
        let one = |what: &str, predicted_mb_per_s| Comparison {
            what: what.to_owned(),
            paced: true,
            predicted_mb_per_s,
            measured_mb_per_s: 100.0,
        };
        let section = ReportSection::comparison(&[one("<LTO> & co", 90.0), one("other", 110.0)]);
        let page = report("A <title>", &[("machine", "two & two".to_owned())], &[section]);
        assert!(page.starts_with("<!DOCTYPE html>"));
        for foreign in ["http://", "https://", "<script", "url(", "<link", "<img"] {
            // The one address is that of the SVG's own words.
            let found = page.replace("http://www.w3.org/2000/svg", "").contains(foreign);
            assert!(!found, "{foreign}");
        }
        assert!(
            page.contains("A &lt;title&gt;") && page.contains("&lt;LTO&gt; &amp; co") && page.contains("two &amp; two")
        );
        assert!(page.contains("<th scope=\"col\"") && page.contains("<th scope=\"row\""));
        assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
    }
}
