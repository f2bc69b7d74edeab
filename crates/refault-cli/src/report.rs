//! The HTML report: one file that needs nothing else, for light and dark, phones and screen readers.
//!
//! [`comparison`] and [`curves`] say what a report holds, [`chart`] draws, [`scale`] finds round numbers. All text goes
//! through `maud`, which escapes it.

pub mod chart;
mod comparison;
mod scale;

use std::path::Path;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::failure::Failure;

pub use comparison::write_comparison;

/// Writes a document.
fn write(path: &Path, document: Markup) -> Result<(), Failure> {
    std::fs::write(path, document.into_string()).map_err(|error| Failure::write(path.display(), &error))
}

/// The page around a report's body. `series` is the highest number of series in one of its figures.
fn page(title: &str, series: usize, body: Markup) -> Markup {
    let mut style = include_str!("report/style.css").to_string();
    for index in 0..series {
        style.push_str(&format!("figure:has(.c{index}:not(:checked)) .n{index}{{display:none}}\n"));
    }
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(concat!("refault ", env!("CARGO_PKG_VERSION")));
                title { (title) }
                style { (PreEscaped(style)) }
            }
            body { main { (body) } }
        }
    }
}
