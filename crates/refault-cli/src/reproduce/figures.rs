//! `refault reproduce published`: the list of published figures, each with what kernels and the model say of it, the
//! verdict, and what we believe. Nothing is run: kernels' answers and the model's results ship with the program.

use std::io::Write;

use comfy_table::CellAlignment;
use refault_ask::kernel::version_of;
use refault_ask::published::of_row;
use refault_console::text::{WIDE, broken, cell, plain_table};
use refault_console::{Failure, Format, ResultArgs, with_output};
use refault_lab::experiment::{Score, Values};
use refault_lab::experiments::figures::{DOCUMENTS, PublishedFigure, figures, recorded, score_of};

/// How the list is called where an experiment is named.
pub(super) const NAME: &str = "published";

/// Room for a figure beside its numbers.
const LABEL: usize = 32;

/// A figure with what kernels said of its row.
struct Listed {
    figure: &'static PublishedFigure,
    kernels: Vec<(String, Values)>,
}

impl Listed {
    /// The metric of the row that stands for the figure, if that is another one.
    fn judged_by(&self) -> Option<&str> {
        self.figure.row.as_ref().map(|row| row.metric.as_str()).filter(|metric| *metric != self.figure.metric)
    }

    fn model(&self) -> Values {
        self.figure.row.as_ref().map_or(Values::NONE, |row| row.ours)
    }

    /// As a word of the table.
    fn verdict(&self) -> String {
        let Some(judgement) = self.figure.judgement() else { return "–".to_owned() };
        let beside = match (self.figure.counts(), self.figure.says.is_empty()) {
            (true, _) => "",
            (false, true) => ", again",
            (false, false) => ", in words",
        };
        format!("{}{beside}", judgement.text())
    }
}

/// Runs the command.
pub(super) fn run(result: &ResultArgs) -> Result<(), Failure> {
    let mut outputs = result.outputs();
    let (format, out) = result.claim(&mut outputs)?;
    let all: Vec<Listed> = figures().iter().map(listed).collect();
    with_output(out, |out| match format {
        Format::Table => write_table(out, &all),
        Format::Csv => write_csv(out, &all),
        Format::Json => write_json(out, &all),
    })
}

fn listed(figure: &'static PublishedFigure) -> Listed {
    let metric = figure.row.as_ref().map_or(&figure.metric, |row| &row.metric);
    Listed { figure, kernels: of_row(&figure.experiment, &figure.name, metric) }
}

/// Figures from here on are shown in millions.
const MILLION: f64 = 1e6;

fn short(value: f64) -> String {
    if value >= MILLION { format!("{:.3} M", value / MILLION) } else { cell(Some(value)) }
}

/// Before and after the change, or what there is of them.
fn shown(values: &Values) -> String {
    match (values.before, values.after, values.ratio) {
        (Some(before), Some(after), _) => format!("{} → {}", short(before), short(after)),
        (Some(before), None, _) => format!("{} → –", short(before)),
        (None, Some(after), _) => short(after),
        (None, None, Some(ratio)) => format!("× {}", short(ratio)),
        (None, None, None) => "–".to_owned(),
    }
}

/// A score, and what it leaves out.
fn with_others(score: Score, all: &[&Listed]) -> String {
    let unjudged = all.iter().filter(|of| of.figure.judgement().is_none()).count();
    let beside = all.iter().filter(|of| of.figure.judgement().is_some() && !of.figure.counts()).count();
    let mut text = score.to_string();
    for (figures, what) in [(unjudged, "cannot be judged"), (beside, "are said in words or shown by another row")] {
        if figures > 0 {
            text += &format!(", {figures} {what}");
        }
    }
    text + "."
}

fn write_table(out: &mut dyn Write, all: &[Listed]) -> std::io::Result<()> {
    let everything: Vec<&Listed> = all.iter().collect();
    writeln!(out, "{}\n", broken(&with_others(score_of(None), &everything), WIDE))?;
    writeln!(out, "{}", broken(EXPLANATION, WIDE))?;
    for document in DOCUMENTS {
        let of: Vec<&Listed> = all.iter().filter(|of| of.figure.document == document.name).collect();
        writeln!(out, "\n{}: {}", document.name, document.title)?;
        writeln!(out, "{}", broken(&with_others(score_of(Some(document.name)), &of), WIDE))?;
        let command = of.iter().find_map(|of| Some(&of.figure.experiment).filter(|name| !name.is_empty()));
        command.map_or(Ok(()), |name| writeln!(out, "Model: refault reproduce {name}"))?;
        for line in lines_of(&of) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

const EXPLANATION: &str = "Each published figure once, before → after the change. Kernels are real ones, asked by \
    'refault ask', at sizes of their own. The model's results were recorded from the command that is named. yes and NO \
    are its verdicts; 'null too' and 'chance' are neither. 'in words': the document has no number. 'again': another \
    row shows the figure and counts. –: cannot be judged; the reason stands above.";

/// The lines of a document: what we believe, then the figures of which we believe it.
fn lines_of(of: &[&Listed]) -> Vec<String> {
    let mut table = plain_table();
    table.set_header(["published", "kernel", "model", "verdict"]);
    for listed in of {
        table.add_row([
            shown(&listed.figure.published),
            listed.kernels.first().map_or("–".to_owned(), kernel),
            shown(&listed.model()),
            listed.verdict(),
        ]);
        for other in listed.kernels.iter().skip(1) {
            table.add_row([String::new(), kernel(other), String::new(), String::new()]);
        }
    }
    for column in 0..3 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut numbers = table.lines();
    let mut lines = vec![String::new(), format!("{:LABEL$}{}", "", numbers.next().unwrap_or_default().trim_end())];
    let (mut belief, mut name) = ("", "");
    for listed in of {
        let figure = listed.figure;
        if figure.belief != belief {
            (belief, name) = (figure.belief.as_str(), "");
            let reason =
                if figure.reason.is_empty() { String::new() } else { format!(" Not judged: {}.", figure.reason) };
            lines.push(String::new());
            lines.extend(broken(&format!("{belief}{reason}"), WIDE - 2).lines().map(|line| format!("# {line}")));
        }
        if figure.name != name {
            name = &figure.name;
            lines.push(name.to_owned());
        }
        let unit = if figure.unit.is_empty() { String::new() } else { format!(" ({})", figure.unit) };
        let mut label = format!("  {}{unit}", figure.metric);
        if !figure.says.is_empty() {
            label += &format!(": {}", figure.says);
        }
        if let Some(metric) = listed.judged_by() {
            label += &format!(", by {metric}");
        }
        if label.chars().count() >= LABEL {
            lines.push(std::mem::replace(&mut label, " ".repeat(LABEL)));
        }
        lines.push(format!("{label:LABEL$}{}", numbers.next().unwrap_or_default().trim_end()));
        for _ in listed.kernels.iter().skip(1) {
            lines.push(format!("{:LABEL$}{}", "", numbers.next().unwrap_or_default().trim_end()));
        }
    }
    lines
}

fn kernel((release, values): &(String, Values)) -> String {
    format!("{}: {}", version_of(release), shown(values))
}

/// A record for each figure and kernel; a figure that no kernel was asked about has one.
fn write_csv(out: &mut dyn Write, all: &[Listed]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let mut header = vec!["document", "name", "metric", "unit", "published_before", "published_after"];
    header.extend(["published_ratio", "published_in_words", "kernel", "kernel_before", "kernel_after", "kernel_ratio"]);
    header.extend(["experiment", "judged_by", "model_before", "model_after", "model_ratio", "verdict", "counts"]);
    header.extend(["reason", "belief"]);
    csv.write_record(header)?;
    let three = |values: &Values| {
        [values.before, values.after, values.ratio].map(|value| value.map_or(String::new(), |value| value.to_string()))
    };
    for listed in all {
        let figure = listed.figure;
        let none = [(String::new(), Values::NONE)];
        let kernels: &[(String, Values)] = if listed.kernels.is_empty() { &none } else { &listed.kernels };
        for (release, values) in kernels {
            let mut record = vec![figure.document.to_owned()];
            record.extend([&figure.name, &figure.metric, &figure.unit].map(String::clone));
            record.extend(three(&figure.published));
            record.extend([figure.says.clone(), release.clone()]);
            record.extend(three(values));
            record.extend([figure.experiment.clone(), listed.judged_by().unwrap_or_default().to_owned()]);
            record.extend(three(&listed.model()));
            record.push(figure.judgement().map_or("", |judgement| judgement.name()).to_owned());
            record.extend([figure.counts().to_string(), figure.reason.clone(), figure.belief.clone()]);
            csv.write_record(record)?;
        }
    }
    csv.flush()
}

fn write_json(out: &mut dyn Write, all: &[Listed]) -> std::io::Result<()> {
    let score = |score: Score| {
        serde_json::json!({
            "agree": score.agree,
            "judged": score.judged,
            "indistinguishable": score.indistinguishable,
            "fitted": score.fitted,
            "not_comparable": score.incomparable,
        })
    };
    let documents = DOCUMENTS.map(|document| {
        let score = score(score_of(Some(document.name)));
        serde_json::json!({ "name": document.name, "title": document.title, "score": score })
    });
    let figure = |listed: &Listed| {
        let figure = listed.figure;
        let kernel = |(release, values): &(String, Values)| serde_json::json!({ "kernel": release, "values": values });
        let recorded = recorded().iter().find(|of| of.experiment == figure.experiment);
        let row = figure.row.as_ref();
        serde_json::json!({
            "document": figure.document,
            "name": figure.name,
            "metric": figure.metric,
            "unit": figure.unit,
            "published": figure.published,
            "in_words": (!figure.says.is_empty()).then_some(&figure.says),
            "kernels": listed.kernels.iter().map(kernel).collect::<Vec<_>>(),
            "model": row.map(|row| serde_json::json!({
                "experiment": figure.experiment,
                "metric": row.metric,
                "values": row.ours,
                "null": row.null,
                "seed": recorded.map(|of| of.seed),
                "scale": recorded.map(|of| of.scale),
            })),
            "verdict": figure.judgement(),
            "counts": figure.counts(),
            "reason": (!figure.reason.is_empty()).then_some(&figure.reason),
            "belief": figure.belief,
        })
    };
    let figures: Vec<serde_json::Value> = all.iter().map(figure).collect();
    let list = serde_json::json!({ "score": score(score_of(None)), "documents": documents, "figures": figures });
    serde_json::to_writer(&mut *out, &list)?;
    writeln!(out)
}
