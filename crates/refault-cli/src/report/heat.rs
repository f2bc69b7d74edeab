//! Heat maps: how often, by address and time, with both axes named and a key of the shades.
//!
//! Shades are one colour at several opacities, so that they are as legible on a dark page as on a light one.

use maud::{Markup, html};

/// Place of the cells in the picture, in its own units.
const LEFT: f64 = 212.0;
const TOP: f64 = 12.0;
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const WHOLE_WIDTH: f64 = 960.0;
const WHOLE_HEIGHT: f64 = 372.0;
/// Labels at the left at most, so that they do not lie on each other on a telephone.
const MAX_ROW_LABELS: usize = 7;
const KEY_STEPS: usize = 5;

/// A heat map.
pub struct Heat {
    /// Unique in the document; letters, digits and hyphens.
    pub id: String,
    /// The heading.
    pub title: String,
    /// The content in a sentence, for those who do not see it.
    pub description: String,
    /// What is shown.
    pub caption: String,
    /// Moments from left to right; in each, how often, 0 to 1, from top to bottom.
    pub columns: Vec<Vec<f64>>,
    /// What the rows are, with the part of the height at which each begins, 0 to 1, ascending.
    pub rows: Vec<(f64, String)>,
    /// What stands below, with the part of the width, 0 to 1.
    pub moments: Vec<(f64, String)>,
    /// What runs from left to right.
    pub across: &'static str,
    /// The meaning of the lightest and of the darkest shade.
    pub key: [String; 2],
}

impl Heat {
    /// The picture.
    pub fn markup(&self, after: Markup) -> Markup {
        let count = self.columns.first().map_or(1, Vec::len).max(1);
        let (cell_width, cell_height) = (WIDTH / self.columns.len().max(1) as f64, HEIGHT / count as f64);
        let label = format!("{0}-h {0}-d", self.id);
        html! {
            figure.chart.wide aria-labelledby=(format!("{}-h", self.id)) {
                h4 id=(format!("{}-h", self.id)) { (self.title) }
                svg viewBox=(format!("0 0 {WHOLE_WIDTH} {WHOLE_HEIGHT}")) role="img" aria-labelledby=(label) {
                    desc id=(format!("{}-d", self.id)) { (self.description) }
                    rect.ground x=(LEFT) y=(TOP) width=(WIDTH) height=(HEIGHT) {}
                    g.heat shape-rendering="crispEdges" {
                        @for (x, column) in self.columns.iter().enumerate() {
                            @for (y, value) in column.iter().enumerate().filter(|(_, value)| **value > 0.0) {
                                rect x=(n(LEFT + x as f64 * cell_width)) y=(n(TOP + y as f64 * cell_height))
                                    width=(n(cell_width)) height=(n(cell_height)) opacity=(shade(*value)) {}
                            }
                        }
                    }
                    g.grid {
                        @for (part, name) in self.labels() {
                            line x1=(n(LEFT - 6.0)) x2=(n(LEFT)) y1=(n(TOP + part * HEIGHT)) y2=(n(TOP + part * HEIGHT)) {}
                            text x=(n(LEFT - 10.0)) y=(n(TOP + part * HEIGHT)) dy="0.8em" text-anchor="end" { (name) }
                        }
                        @for (part, name) in &self.moments {
                            @let anchor = if *part >= 1.0 { "end" } else if *part <= 0.0 { "start" } else { "middle" };
                            text x=(n(LEFT + part * WIDTH)) y=(n(TOP + HEIGHT + 8.0)) dy="0.9em" text-anchor=(anchor) { (name) }
                        }
                        text.title x=(n(LEFT)) y=(n(WHOLE_HEIGHT - 8.0)) { (self.across) }
                    }
                }
                p.key aria-label="Key" {
                    span { (self.key[0]) }
                    @for step in 1..=KEY_STEPS {
                        svg.swatch viewBox="0 0 28 12" aria-hidden="true" {
                            g.heat { rect width="28" height="12" opacity=(shade(step as f64 / KEY_STEPS as f64)) {} }
                        }
                    }
                    span { (self.key[1]) }
                }
                figcaption { (self.caption) }
                (after)
            }
        }
    }

    /// The labels at the left, thinned out until none lies on another.
    fn labels(&self) -> impl Iterator<Item = &(f64, String)> {
        let mut last = f64::NEG_INFINITY;
        self.rows.iter().filter(move |(part, _)| {
            let shown = part - last >= 1.0 / MAX_ROW_LABELS as f64;
            if shown {
                last = *part;
            }
            shown
        })
    }
}

/// Opacity: what was accessed at all can be seen.
fn shade(value: f64) -> String {
    format!("{:.2}", 0.15 + 0.85 * value.clamp(0.0, 1.0))
}

fn n(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
