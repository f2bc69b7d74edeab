//! In which text metrics are asked for: Prometheus's own, version 0.0.4, or OpenMetrics (RFC 9110 §12.5.1).
//!
//! As Prometheus's client libraries do it: OpenMetrics for who names it and prefers it, else Prometheus's own, also
//! where neither is accepted. So a browser shows the text, and a scraper of any age can read it.
//!
//! ```
//! use refault_pool::serve::accept::Text;
//!
//! assert_eq!(Text::asked_for("*/*"), Text::Prometheus);
//! assert_eq!(Text::asked_for("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"), Text::OpenMetrics1);
//! ```

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// text/plain, version 0.0.4.
    Prometheus,
    /// application/openmetrics-text, version 0.0.1: the same as 1.0.0 under the name of its draft.
    OpenMetrics0,
    /// application/openmetrics-text, version 1.0.0.
    OpenMetrics1,
}

/// How closely a range names a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Closeness {
    /// Not at all.
    #[default]
    None,
    /// `*/*`
    Any,
    /// `text/*`
    Main,
    /// By name.
    Name,
    /// By name and version.
    Version,
}

impl Text {
    /// In the order in which they are preferred where they are named alike.
    const ALL: [Text; 3] = [Text::Prometheus, Text::OpenMetrics1, Text::OpenMetrics0];

    /// The text for an `Accept`; of several such headers, their values with commas between.
    pub fn asked_for(accept: &str) -> Text {
        let ranges: Vec<Range> = split(accept, ',').filter_map(Range::read).collect();
        // The range that names a text most closely says how much it is wanted. OpenMetrics is for who names it, or
        // takes nothing else.
        let wanted = |text: Text| {
            let close = ranges.iter().enumerate().map(|(place, range)| (range.closeness(text), place, range));
            let (closeness, place, range) =
                close.max_by_key(|(closeness, place, _)| (*closeness, usize::MAX - place))?;
            let is_wanted = closeness > Closeness::None && range.quality > 0;
            is_wanted.then_some((range.quality, closeness.max(Closeness::Main), usize::MAX - place))
        };
        let best = Text::ALL.into_iter().rev().filter_map(|text| Some((wanted(text)?, text)));
        best.max_by_key(|(wanted, _)| *wanted).map_or(Text::Prometheus, |(_, text)| text)
    }

    /// The answer's type.
    pub fn content_type(self) -> &'static str {
        match self {
            Text::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Text::OpenMetrics0 => "application/openmetrics-text; version=0.0.1; charset=utf-8",
            Text::OpenMetrics1 => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    fn name(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Text::Prometheus => ("text", "plain", "0.0.4"),
            Text::OpenMetrics0 => ("application", "openmetrics-text", "0.0.1"),
            Text::OpenMetrics1 => ("application", "openmetrics-text", "1.0.0"),
        }
    }
}

/// A range of types, as one part of `Accept` names it.
struct Range {
    main: String,
    sub: String,
    version: Option<String>,
    /// In thousandths.
    quality: u16,
}

impl Range {
    /// None if it is no range.
    fn read(text: &str) -> Option<Range> {
        let mut parts = split(text, ';');
        let (main, sub) = parts.next()?.trim().split_once('/')?;
        let (mut version, mut quality) = (None, 1000);
        for part in parts {
            let Some((name, value)) = part.split_once('=') else { continue };
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "version" => version = Some(value.to_owned()),
                "q" => quality = thousandths(value)?,
                _ => {}
            }
        }
        Some(Range { main: main.to_ascii_lowercase(), sub: sub.to_ascii_lowercase(), version, quality })
    }

    fn closeness(&self, text: Text) -> Closeness {
        let (main, sub, version) = text.name();
        match (self.main.as_str(), self.sub.as_str()) {
            ("*", "*") => Closeness::Any,
            (named, "*") if named == main => Closeness::Main,
            named if named == (main, sub) => match self.version.as_deref() {
                None => Closeness::Name,
                Some(named) if named == version => Closeness::Version,
                Some(_) => Closeness::None,
            },
            _ => Closeness::None,
        }
    }
}

/// A weight from 0 to 1 with at most three digits.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = part.len() <= 3 && part.chars().all(|c| c.is_ascii_digit());
    let part: u16 = format!("{part:0<3}").parse().ok().filter(|_| is_number)?;
    match (whole, part) {
        ("0", part) => Some(part),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

/// The parts of a text, but for what is quoted.
fn split(text: &str, at: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |c: char| {
        is_quoted ^= c == '"';
        c == at && !is_quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_one_that_is_wanted_most() {
        for (accept, text) in [
            // What browsers, curl and nothing say.
            ("text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8", Text::Prometheus),
            ("*/*", Text::Prometheus),
            ("", Text::Prometheus),
            // What Prometheus 2.0, 2.5, 2.42 and 3 say.
            ("text/plain;version=0.0.4;q=1,*/*;q=0.1", Text::Prometheus),
            (
                "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Text::OpenMetrics0,
            ),
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Text::OpenMetrics1,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                Text::OpenMetrics1,
            ),
            // Weights.
            ("text/plain;version=0.0.4;q=0.3, application/openmetrics-text;q=0.9", Text::OpenMetrics1),
            ("text/plain;version=0.0.4;q=0.9, application/openmetrics-text;q=0.3", Text::Prometheus),
            ("application/openmetrics-text;q=0, */*", Text::Prometheus),
            ("application/openmetrics-text;q=0", Text::Prometheus),
            ("text/plain;q=0, application/openmetrics-text;q=0.001", Text::OpenMetrics1),
            ("text/plain;q=0, */*", Text::OpenMetrics1),
            ("application/openmetrics-text, text/plain", Text::OpenMetrics1),
            ("text/plain, application/openmetrics-text", Text::Prometheus),
            ("application/openmetrics-text, */*", Text::OpenMetrics1),
            ("application/*", Text::OpenMetrics1),
            ("text/*", Text::Prometheus),
            // Letters, room and quotes.
            ("Application/OpenMetrics-Text ; Version=\"1.0.0\" ; Q=1.000", Text::OpenMetrics1),
            ("x/y;a=\",application/openmetrics-text,\"", Text::Prometheus),
            // What is not had, and nonsense.
            ("application/openmetrics-text;version=2.0.0", Text::Prometheus),
            ("application/json", Text::Prometheus),
            ("*/*;q=0", Text::Prometheus),
            ("application/openmetrics-text;q=2", Text::Prometheus),
            ("application/openmetrics-text;q=0.5555", Text::Prometheus),
            (";;;,,,/,=,\"", Text::Prometheus),
        ] {
            assert_eq!(Text::asked_for(accept), text, "{accept}");
        }
    }
}
