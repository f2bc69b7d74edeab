//! When a report was made, and by which command: the line at the end of each.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maud::{Markup, html};

use crate::source::kernels::command_line;

/// `Made by refault 0.1.0 on 2026-01-31 12:00 UTC by …`. The moment is `SOURCE_DATE_EPOCH`'s, if that is set.
pub fn made() -> Markup {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    let now = given.map_or_else(SystemTime::now, |seconds| UNIX_EPOCH + Duration::from_secs(seconds));
    let stamp = humantime::format_rfc3339_seconds(now).to_string();
    // 2026-01-31T12:00:00Z
    let (day, time) = stamp.split_once('T').unwrap_or((&stamp, ""));
    html! {
        footer {
            "Made by refault " (env!("CARGO_PKG_VERSION")) " on " (day) " " (time.get(..5).unwrap_or("")) " UTC by "
            code { (command_line(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()))) }
        }
    }
}
