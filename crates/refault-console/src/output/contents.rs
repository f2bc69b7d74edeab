//! What an output holds, and whether a file that is there looks like one of its kind.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use refault_trace::Format as TraceFormat;
use refault_trace::write::OutputFormat;

use super::Format;

/// How much of a file is looked at.
const LOOKED_AT: u64 = 1024;
/// Extensions of texts that a table may replace.
const TEXT_EXTENSIONS: [&str; 6] = ["", "txt", "text", "out", "log", "table"];
/// What the first line of a CSV trace begins with that a command wrote.
const CSV_TRACES: [&[u8]; 2] = [b"page,kind,write", b"object,kind,write"];
const RFT_MAGIC: &[u8] = b"\x89RFT";

/// What is written to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Text for people.
    Table,
    /// Comma-separated values.
    Csv,
    /// JSON, or a line of JSON per state.
    Json,
    /// A report.
    Html,
    /// A picture.
    Svg,
    /// A trace.
    Trace(OutputFormat),
}

impl From<Format> for Contents {
    fn from(format: Format) -> Contents {
        match format {
            Format::Table => Contents::Table,
            Format::Csv => Contents::Csv,
            Format::Json => Contents::Json,
        }
    }
}

impl Contents {
    /// The kind in words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Contents::Table => "a table",
            Contents::Csv => "CSV",
            Contents::Json => "JSON",
            Contents::Html => "an HTML report",
            Contents::Svg => "an SVG picture",
            Contents::Trace(OutputFormat::Rft) => "an .rft trace",
            Contents::Trace(OutputFormat::U64) => "a .u64 trace",
            Contents::Trace(OutputFormat::Csv) => "a CSV trace",
            Contents::Trace(OutputFormat::OracleGeneral) => "an oracleGeneral trace",
        }
    }

    /// What a file of this name would be taken for, if that is a page, a picture or a trace, and this is none.
    pub(super) fn is_misnamed(self, path: &Path) -> Option<&'static str> {
        let is_text = matches!(self, Contents::Table | Contents::Csv | Contents::Json);
        let extension = path.extension()?.to_string_lossy().to_ascii_lowercase();
        let named = match extension.as_str() {
            "html" | "htm" => Contents::Html,
            "svg" => Contents::Svg,
            "rft" => Contents::Trace(OutputFormat::Rft),
            _ => return None,
        };
        is_text.then(|| named.name())
    }

    /// Whether a file that begins with `head` is of this kind, as far as its first bytes and its name say.
    pub(super) fn may_replace(self, head: &[u8], path: &Path) -> bool {
        if head.is_empty() {
            return true;
        }
        let is_text = std::str::from_utf8(head).is_ok_or_cut() && !head.contains(&0);
        let start = head.trim_ascii_start();
        let starts =
            |text: &str| start.len() >= text.len() && start[..text.len()].eq_ignore_ascii_case(text.as_bytes());
        let is_markup = starts("<");
        let is_json = starts("{") || starts("[");
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let first_line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        match self {
            Contents::Table => {
                let plain = is_text && !is_markup && !is_json && !starts("#!");
                plain && TEXT_EXTENSIONS.contains(&extension.as_str())
            }
            Contents::Csv => is_text && first_line.contains(&b',') && ["csv", "", "txt"].contains(&extension.as_str()),
            Contents::Json => is_json,
            Contents::Html => starts("<!doctype html") || starts("<html"),
            Contents::Svg => starts("<svg") || (starts("<?xml") && extension == "svg"),
            Contents::Trace(OutputFormat::Rft) => head.starts_with(RFT_MAGIC),
            Contents::Trace(format) => {
                let named = TraceFormat::of_name(path).is_some() && OutputFormat::of_path(path) == Some(format);
                let is_ours = CSV_TRACES.iter().any(|columns| first_line.starts_with(columns));
                let is_other = is_text && !(format == OutputFormat::Csv && is_ours);
                named && !head.starts_with(RFT_MAGIC) && !is_other
            }
        }
    }
}

/// The first bytes of a file.
pub(super) fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(LOOKED_AT).read_to_end(&mut head)?;
    Ok(head)
}

trait OkOrCut {
    /// Whether the bytes are text, of which the last character may have been cut.
    fn is_ok_or_cut(&self) -> bool;
}

impl OkOrCut for Result<&str, std::str::Utf8Error> {
    fn is_ok_or_cut(&self) -> bool {
        match self {
            Ok(_) => true,
            Err(error) => error.error_len().is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_no_page_and_no_trace_whatever_their_file_is_called() {
        for (contents, path, expected) in [
            (Contents::Table, "x.html", Some("an HTML report")),
            (Contents::Csv, "x.HTM", Some("an HTML report")),
            (Contents::Json, "w.rft", Some("an .rft trace")),
            (Contents::Table, "w.txt", None),
            (Contents::Table, "w", None),
            (Contents::Html, "x.html", None),
            (Contents::Trace(OutputFormat::Rft), "w.rft", None),
        ] {
            assert_eq!(contents.is_misnamed(Path::new(path)), expected, "{contents:?} as {path}");
        }
    }

    #[test]
    fn a_file_is_replaced_by_its_kind_only() {
        let script = b"#!/usr/bin/env python3\nimport sys, os\n";
        let plain_script = b"import sys, os\n";
        let report = b"<!DOCTYPE html><html>";
        let cases = [
            (Contents::Html, &report[..], "r.html", true),
            (Contents::Html, b"page,op\n1,r\n", "m.csv", false),
            (Contents::Csv, b"trace,policy\n", "r.csv", true),
            (Contents::Csv, report, "r.csv", false),
            (Contents::Table, b"zipf: 3 accesses\n", "r.txt", true),
            (Contents::Table, script, "v", false),
            (Contents::Table, plain_script, "v.py", false),
            (Contents::Json, b"{\"runs\":[]}", "r.json", true),
            (Contents::Json, b"trace,policy\n", "r.json", false),
            (Contents::Trace(OutputFormat::Rft), plain_script, "v.py", false),
            (Contents::Trace(OutputFormat::Rft), b"\x89RFT\r\n\x1a\n", "t.rft", true),
            (Contents::Trace(OutputFormat::U64), &[1, 0, 0, 0, 0, 0, 0, 0], "t.u64", true),
            (Contents::Trace(OutputFormat::U64), b"notes on a trace", "t.u64", false),
            (Contents::Trace(OutputFormat::Csv), b"page,kind,write\n1,anon,0\n", "t.csv", true),
            (Contents::Trace(OutputFormat::Csv), b"object,kind,write,size\n", "t.csv", true),
            (Contents::Trace(OutputFormat::Csv), b"object,size\n7,100\n", "t.csv", false),
            (Contents::Table, b"", "anything", true),
        ];
        for (contents, head, path, expected) in cases {
            assert_eq!(contents.may_replace(head, Path::new(path)), expected, "{contents:?} over {path}");
        }
    }
}
