//! What the runs come to, in sentences: what the program needs, and why the prediction is off where it is.

use refault_console::text::{grouped, number};
use refault_lab::size::bytes_text;

use super::Study;
use super::ladder::{Longer, Row, Rung};

/// Predicted and measured figures this close are called the same.
const SAME: f64 = 1.25;
/// Fewer pages than these say nothing about what one costs.
const MIN_PAGES: f64 = 200.0;

impl Study {
    /// The answer, in a sentence or two.
    pub fn verdict(&self) -> Vec<String> {
        let ladder = &self.ladder;
        let mut lines = Vec::new();
        let target = number(ladder.slowdown * 100.0);
        let alone = std::ptr::eq(ladder.baseline(), &ladder.alone);
        if !self.is_measurable {
            lines.push(format!(
                "{} takes {:.1} ms alone: {target} % of that is less than runs differ by themselves, so no budget is judged.",
                self.program,
                ladder.alone.seconds().mean * 1000.0
            ));
            return lines;
        }
        let looks = ladder.looks_ms.filter(|_| ladder.is_looked_at());
        if let Some(interval) = looks {
            lines.push(format!(
                "With ample memory, and a look at its pages every {interval} ms, it took {} as alone. How much of \
                 that the looks took is not known: budgets are judged by what threads waited; --thorough runs it without looks.",
                times_text(ladder.unlimited().longer(&ladder.alone))
            ));
        } else if !alone {
            lines.push(format!(
                "refault itself takes {} even with ample memory, so times are compared with that.",
                longer_text(ladder.unlimited().longer(&ladder.alone))
            ));
        }
        let than = match (looks, alone) {
            (Some(_), _) => "without that waiting",
            (None, true) => "alone",
            (None, false) => "with ample memory",
        };
        match ladder.needs() {
            Some(row) => lines.push(self.needs_text(row, &target, than)),
            None => match ladder.budgets.first() {
                Some(largest) => {
                    let peak = ladder.peak_bytes().map_or("not known".to_owned(), bytes_text);
                    let budget = rung_text(largest.rung);
                    lines.push(format!(
                        "{} needs more than {budget} for at most {target} % longer; its peak is {peak}{}.",
                        self.program,
                        self.by_looks(Some(largest.rung))
                    ));
                }
                None => lines.push(format!(
                    "{} was run under no budget: there was no time left{}.",
                    self.program,
                    self.by_looks(None)
                )),
            },
        }
        if let Some(row) = ladder.too_little().filter(|_| ladder.needs().is_some()) {
            let (budget, longer) = (rung_text(row.rung), longer_text(ladder.longer(row)));
            lines.push(if row.is_given_up() {
                format!("{budget} is too little: it was ended after {} times as long.", number(self.give_up))
            } else if ladder.is_noisy(row) {
                format!("Whether {budget} is too little cannot be told: {longer}, of {target} % that may be lost.")
            } else {
                format!("{budget} is too little: {longer}{}.", self.until_then(row))
            });
        } else if let Some(row) =
            ladder.needs().filter(|row| Some(row.rung) == ladder.budgets.last().map(|row| row.rung))
        {
            lines.push(format!("{} is the smallest budget that was run: less may be enough.", rung_text(row.rung)));
        }
        let rests = [ladder.needs(), ladder.too_little()];
        if rests.into_iter().flatten().any(|row| ladder.is_noisy(row)) {
            lines.push(
                "The noise is larger than the question: run it on a quieter machine, or with more --runs.".to_owned(),
            );
        } else if !self.thorough {
            lines.push(
                "Each was run once: --thorough says how far times are off, and whether less is enough.".to_owned(),
            );
        }
        lines
    }

    /// What the run with ample memory says beside the largest budget that was run, if that is less.
    fn by_looks(&self, run: Option<Rung>) -> String {
        let needed = self
            .predicted_need()
            .filter(|bytes| run.is_none_or(|run| matches!(run, Rung::Budget(than) if than < *bytes)));
        needed.filter(|_| !self.thorough).map_or_else(String::new, |bytes| {
            format!("; by the pages that it touches, {} would be enough", bytes_text(super::ladder::round_up(bytes)))
        })
    }

    /// What a row rests on that was ended with the time.
    fn until_then(&self, row: &Row) -> String {
        if !row.is_unfinished() {
            return if self.ladder.is_by_waiting(row) { ", by what it waited".to_owned() } else { String::new() };
        }
        let part = (row.seconds().mean / self.ladder.unlimited().seconds().mean).min(1.0);
        match (part * 100.0).round() {
            100.0.. => ", by what it waited".to_owned(),
            percent => format!(", by what it waited in the first {percent} % of its time"),
        }
    }

    /// What the program needs, as the smallest budget says that is enough.
    fn needs_text(&self, row: &Row, target: &str, than: &str) -> String {
        let longer = self.ladder.longer(row);
        let (needs, took) = (rung_text(row.rung), longer_text(longer));
        let program = &self.program;
        if longer.part > self.ladder.slowdown {
            return format!(
                "{program} needs {needs} for at most {target} % longer: it was {took} than {than}, but nothing came back, so \
                 that is this machine's doing and not the budget's."
            );
        }
        if self.ladder.is_noisy(row) {
            return format!("{program} may need {needs} for at most {target} % longer: {took} than {than}.");
        }
        format!("{program} needs {needs} for at most {target} % longer: {took} than {than}{}.", self.until_then(row))
    }

    /// Pages that the prediction says come back under a budget, and how much longer than ample memory that takes.
    pub fn predicted(&self, rung: Rung) -> Option<(f64, Option<f64>)> {
        let (Rung::Budget(bytes), Ok(prediction)) = (rung, &self.prediction) else { return None };
        let base = self.ladder.baseline().seconds().mean;
        let ample = self.ladder.unlimited().seconds().mean;
        let part = prediction.extra_seconds(bytes).map(|extra| match self.ladder.is_looked_at() {
            true => extra / self.ladder.alone.seconds().mean,
            false => (ample + extra) / base - 1.0,
        });
        Some((prediction.read_back(bytes), part))
    }

    /// The smallest budget that the prediction holds to be enough, in bytes.
    pub fn predicted_need(&self) -> Option<u64> {
        self.prediction.as_ref().ok()?.need(&self.ladder)
    }

    /// Prediction beside measurement, with the reasons where they differ.
    pub fn comparison(&self) -> Vec<String> {
        let prediction = match &self.prediction {
            Err(why) => return vec![format!("There is no prediction: {why}.")],
            Ok(prediction) => prediction,
        };
        let source = match prediction.recordings().len() {
            0 => "The run with ample memory (a sample of its pages".to_owned(),
            1 => "The recording (1 run".to_owned(),
            recordings => format!("The recording ({recordings} runs"),
        };
        let mut lines = vec![format!(
            "{source}, a look every {} ms) holds {}; {}.",
            prediction.interval_ms,
            bytes_text(prediction.footprint_bytes()),
            match (self.predicted_need(), prediction.seconds_per_page) {
                (Some(bytes), Some(cost)) => format!(
                    "by it {} would be enough, at {} µs for a page that comes back",
                    bytes_text(super::ladder::round_up(bytes)),
                    number(cost * 1e6)
                ),
                _ => "what a page that comes back costs cannot be measured here".to_owned(),
            }
        )];
        if self.ladder.budgets.is_empty() {
            return lines;
        }
        let Some(row) = self.telling_row() else {
            lines.push("Under no budget that ended enough pages came back to compare with.".to_owned());
            return lines;
        };
        let (Some(measured), Some((expected, _))) =
            (row.mean(|summary| summary.refaults as f64), self.predicted(row.rung))
        else {
            return lines;
        };
        let place = rung_text(row.rung);
        lines.push(format!(
            "Under {place} {} pages came back, predicted {}: {}.",
            grouped(measured.round() as u64),
            grouped(expected.round() as u64),
            self.pages_reason(measured, expected),
        ));
        if let Some(predicted) = prediction.seconds_per_page.filter(|_| measured >= MIN_PAGES) {
            let cost = (row.seconds().mean - self.ladder.unlimited().seconds().mean) / measured;
            lines.push(format!(
                "Each took {} µs of the program's time, predicted {}: {}.",
                number(cost.max(0.0) * 1e6),
                number(predicted * 1e6),
                cost_reason(cost / predicted),
            ));
        }
        lines
    }

    /// The row that says most about the prediction: the largest budget under which many pages came back.
    fn telling_row(&self) -> Option<&Row> {
        let back = |row: &&Row| row.mean(|summary| summary.refaults as f64).unwrap_or(0.0);
        let ended = self.ladder.budgets.iter().filter(|row| !row.is_given_up() && !row.is_unfinished());
        let mut many = ended.filter(|row| back(row) >= MIN_PAGES);
        many.next()
    }

    fn pages_reason(&self, measured: f64, expected: f64) -> String {
        let interval = self.prediction.as_ref().map_or(0, |prediction| prediction.interval_ms);
        let ratio = measured / expected.max(1.0);
        if ratio > SAME {
            format!(
                "{} times as many, because a page counts once per {interval} ms in the recording, so what comes and goes \
                 within that time is not in it, and {} is not the LRU of the prediction",
                number(ratio),
                self.policy
            )
        } else if ratio < 1.0 / SAME {
            format!(
                "fewer, because {} keeps pages that LRU would lose, because pages that a process frees do not come back, \
                 or because the processes of the program have a budget each",
                self.policy
            )
        } else {
            "they agree".to_owned()
        }
    }
}

fn cost_reason(ratio: f64) -> &'static str {
    if ratio > SAME {
        "more, because pages are evicted on the processors that the program would use, and they compress worse or their \
         threads wait longer for a processor than in the measurement"
    } else if ratio < 1.0 / SAME {
        "less, because threads wait beside each other, pages come back ahead of their use, or they compress better than \
         those of the measurement"
    } else {
        "they agree"
    }
}

/// A budget in words.
pub fn rung_text(rung: Rung) -> String {
    match rung {
        Rung::Alone => "alone".to_owned(),
        Rung::Ample(_) => "ample memory".to_owned(),
        Rung::Budget(bytes) => bytes_text(bytes),
    }
}

/// `2.3 times as long`, however little.
fn times_text(longer: Longer) -> String {
    format!("{} times as long", number(1.0 + longer.part))
}

/// `4.2 ± 1.1 % longer`, `2.3 times as long`.
pub fn longer_text(longer: Longer) -> String {
    if longer.part >= 1.0 {
        return format!("{} times as long", number(1.0 + longer.part));
    }
    let error = longer.standard_error.map_or(String::new(), |error| format!(" ± {:.1}", error * 100.0));
    if longer.part < -0.0005 {
        return format!("{:.1}{error} % shorter", -longer.part * 100.0);
    }
    format!("{:.1}{error} % longer", longer.part.abs() * 100.0)
}
