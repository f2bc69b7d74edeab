//! What came out, for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::sides::Figures;

/// A side's runs of a piece of work; none where it takes no part, for a reason.
pub struct Row {
    pub work: String,
    pub side: String,
    pub runs: Result<Vec<Figures>, &'static str>,
}

/// The middle one, least and most.
fn spread(runs: &[Figures], figure: impl Fn(&Figures) -> f64) -> [f64; 3] {
    let mut all: Vec<f64> = runs.iter().map(figure).collect();
    all.sort_by(f64::total_cmp);
    let last = all.len() - 1;
    [(all[last / 2] + all[all.len() / 2]) / 2.0, all[0], all[last]]
}

/// A table in Markdown for each piece of work. The factor is the time of a side by that of this crate.
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut work = "";
    let mut ours = None;
    for row in rows {
        if row.work != work {
            work = &row.work;
            ours = None;
            let _ = write!(
                text,
                "\n**{work}**\n\n| side | seconds (least–most) | × ours | requests | MB fetched |\n|---|---|---|---|---|\n"
            );
        }
        match &row.runs {
            Err(why) => drop(writeln!(text, "| {} | {why} | | | |", row.side)),
            Ok(runs) => {
                let [seconds, least, most] = spread(runs, |run| run.seconds);
                let [requests, ..] = spread(runs, |run| run.requests as f64);
                let [bytes, ..] = spread(runs, |run| run.bytes as f64);
                let factor = seconds / *ours.get_or_insert(seconds);
                let _ = writeln!(
                    text,
                    "| {} | {seconds:.2} ({least:.2}–{most:.2}) | {factor:.2} | {requests:.0} | {:.1} |",
                    row.side,
                    bytes / 1e6
                );
            }
        }
    }
    text
}

/// One object with every run.
pub fn json(settings: &str, rows: &[Row]) -> Value {
    let run = |run: &Figures| json!({ "seconds": run.seconds, "requests": run.requests, "bytes": run.bytes });
    let row = |row: &Row| match &row.runs {
        Ok(runs) => json!({ "work": row.work, "side": row.side, "runs": runs.iter().map(run).collect::<Vec<_>>() }),
        Err(why) => json!({ "work": row.work, "side": row.side, "left_out": why }),
    };
    json!({ "settings": settings, "rows": rows.iter().map(row).collect::<Vec<_>>() })
}
