//! Pictures as inline SVG, each with a table of the same figures behind it.
//!
//! Colours are CSS variables, so one picture serves light and dark; the look of a line is one of [`COLOURS`] colours,
//! solid for the first round, then dashed, dotted, in long dashes, and mixed; that of a stacked area is a place on a ramp
//! of colours. Where lines are many each has its name at its end, too, and buttons show groups of them.
//! Every picture has the role `img` with a
//! title and a description for screen readers; a series' values appear under the pointer.

use std::fmt::Write;

use maud::{Markup, html};

use super::scale::Axis;

/// Colours before dashes begin.
pub const COLOURS: usize = 8;

/// Colours of the ramp of stacked areas.
const RAMP: usize = 5;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 22.0;
const TOP: f64 = 38.0;
const BOTTOM: f64 = 66.0;
const SPAN: f64 = WIDTH - LEFT - RIGHT;
/// Lines from which on each has its name at its end.
const MIN_NAMED: usize = 9;
/// How far the last tick may reach beyond the axis beside names.
const NAMES_GAP: f64 = 4.0;
/// Room for these names, right of the picture's usual width, and the least distance between two.
const NAMES: f64 = 132.0;
const NAME_HEIGHT: f64 = 16.0;
/// Height of a line of marks, on a telephone too.
const MARK_HEIGHT: f64 = 20.0;
/// Letters of a mark, for the side on which it has room.
const MARK_SHARE: f64 = 0.55;

/// Lines that can be shown alone.
#[derive(Clone, Debug)]
pub struct Group {
    /// What the button says.
    pub name: &'static str,
    /// The indices of its series.
    pub series: Vec<usize>,
}

/// One line or one area.
#[derive(Clone, Debug)]
pub struct Series {
    /// What it is called in legend and table.
    pub name: String,
    /// Which colour and dash; in stacked areas, which shade.
    pub look: usize,
    /// Points, ascending in x.
    pub points: Vec<(f64, f64)>,
}

/// How series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A line each.
    Lines,
    /// Areas on top of each other, the first series lowest.
    Stacked,
    /// Bars from each x to the next, of the first series alone.
    Bars,
}

/// A picture and the words around it.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Unique in the document; letters, digits and hyphens.
    pub id: String,
    /// The heading.
    pub title: String,
    /// The chart's content in a sentence or two (alternative text).
    pub description: String,
    /// What each figure means, with its unit.
    pub definition: String,
    /// The horizontal axis, below.
    pub x: Axis,
    /// The vertical axis, at the left.
    pub y: Axis,
    /// What is shown.
    pub series: Vec<Series>,
    /// How an x is written in the table.
    pub x_label: fn(f64) -> String,
    /// How a y is written in the table, without its unit.
    pub y_label: fn(f64) -> String,
    /// How the series are drawn.
    pub shape: Shape,
    /// Upright lines with a name each.
    pub marks: Vec<(f64, String)>,
}

impl Figure {
    /// The picture with legend and table.
    pub fn markup(&self) -> Markup {
        self.markup_with(&[])
    }

    /// The same with a button for each group of lines.
    pub fn markup_with(&self, groups: &[Group]) -> Markup {
        let named = self.shape == Shape::Lines && self.series.len() >= MIN_NAMED;
        let (width, height) = if named { (WIDTH + NAMES, names_height(self.series.len())) } else { (WIDTH, HEIGHT) };
        html! {
            figure.chart aria-labelledby=(format!("{}-h", self.id)) {
                h4 id=(format!("{}-h", self.id)) { (self.title) }
                svg.named[named] viewBox=(format!("0 0 {width} {height}")) role="img"
                    aria-labelledby=(format!("{0}-t {0}-d", self.id)) {
                    title id=(format!("{}-t", self.id)) { (self.title) }
                    desc id=(format!("{}-d", self.id)) { (self.description) }
                    (self.grid(named))
                    @match self.shape {
                        Shape::Lines => (self.lines(groups)),
                        Shape::Stacked => (self.areas()),
                        Shape::Bars => (self.bars()),
                    }
                    @if named { (self.names(groups)) }
                    @for (x, _) in &self.marks {
                        line.mark x1=(px(*x, &self.x)) x2=(px(*x, &self.x)) y1=(n(TOP)) y2=(n(HEIGHT - BOTTOM)) {}
                    }
                    @for (row, (x, name)) in self.marks.iter().enumerate() {
                        @let (anchor, dx) = if self.x.place(*x) > MARK_SHARE { ("end", "-5") } else { ("start", "5") };
                        text.mark x=(px(*x, &self.x)) y=(n(TOP + 14.0 + row as f64 * MARK_HEIGHT)) dx=(dx)
                            text-anchor=(anchor) { (name) }
                    }
                }
                @if !groups.is_empty() { (self.buttons(groups)) }
                @if self.series.len() > 1 { (self.legend()) }
                figcaption { (self.definition) }
                details { summary { "The figures as a table" } (self.table()) }
            }
        }
    }

    /// Lines, ticks and titles. With names behind the picture the last tick keeps out of their way.
    fn grid(&self, named: bool) -> Markup {
        let beyond = if named { NAMES_GAP } else { RIGHT };
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        html! {
            g.grid aria-hidden="true" {
                @for (value, label) in &self.y.ticks {
                    line x1=(n(LEFT)) x2=(n(right)) y1=(py(*value, &self.y)) y2=(py(*value, &self.y)) {}
                    text x=(n(LEFT - 8.0)) y=(py(*value, &self.y)) dy="0.35em" text-anchor="end" { (label) }
                }
                @for (value, label) in &self.x.ticks {
                    line x1=(px(*value, &self.x)) x2=(px(*value, &self.x)) y1=(n(bottom)) y2=(n(bottom + 5.0)) {}
                    @let anchor = if self.x.place(*value) > 0.97 { "end" } else { "middle" };
                    @let at = LEFT + self.x.place(*value) * SPAN + if anchor == "end" { beyond } else { 0.0 };
                    text x=(n(at)) y=(n(bottom + 9.0)) dy="0.8em" text-anchor=(anchor) { (label) }
                }
                line.axis x1=(n(LEFT)) x2=(n(right)) y1=(n(bottom)) y2=(n(bottom)) {}
                text.title x=(n((LEFT + right) / 2.0)) y=(n(HEIGHT - 8.0)) text-anchor="middle" { (self.x.title) }
                text.title x="4" y="18" { (self.y.title) }
            }
        }
    }

    fn lines(&self, groups: &[Group]) -> Markup {
        html! {
            g.lines {
                @for (index, series) in self.series.iter().enumerate() {
                    g class=(format!("series n{index} {}{}", look(series.look), memberships(index, groups))) {
                        title { (series.name) }
                        path d=(self.path(&series.points)) {}
                        @if series.points.len() <= 16 {
                            @for (x, y) in &series.points {
                                circle cx=(px(*x, &self.x)) cy=(py(*y, &self.y)) r="3" {
                                    title { (series.name) ", " ((self.x_label)(*x)) ": " ((self.y_label)(*y)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// The name of each line beside its end, moved up or down until none lies on another.
    fn names(&self, groups: &[Group]) -> Markup {
        let at_end = |series: &Series| series.points.last().map_or(0.0, |(_, y)| *y);
        let mut order: Vec<usize> = (0..self.series.len()).collect();
        order.sort_by(|a, b| at_end(&self.series[*b]).total_cmp(&at_end(&self.series[*a])));
        let wanted = |index: usize| {
            let place = self.y.place(at_end(&self.series[index]));
            HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM)
        };
        let places = spread(&order.iter().map(|index| wanted(*index)).collect::<Vec<_>>());
        html! {
            g.lines.names aria-hidden="true" {
                @for (index, y) in order.into_iter().zip(places) {
                    @let series = &self.series[index];
                    g class=(format!("n{index} {}{}", look(series.look), memberships(index, groups))) {
                        path d=(format!("M{} {}L{} {}", n(WIDTH - RIGHT), n(wanted(index)), n(WIDTH - 4.0), n(y))) {}
                        text x=(n(WIDTH)) y=(n(y)) dy="0.35em" { (series.name) }
                    }
                }
            }
        }
    }

    /// Buttons of which one is chosen, by style sheet alone.
    fn buttons(&self, groups: &[Group]) -> Markup {
        let name = format!("{}-groups", self.id);
        html! {
            fieldset.legend {
                legend { "Show" }
                @for (index, group) in groups.iter().enumerate() {
                    label { input type="radio" name=(name) class=(format!("v{index}")) checked[index == 0]; (group.name) }
                }
                label { input type="radio" name=(name); "all" }
            }
        }
    }

    /// Areas on top of each other, the first series lowest. All series have the same x.
    fn areas(&self) -> Markup {
        let count = self.series.first().map_or(0, |series| series.points.len());
        let mut floor = vec![0.0; count];
        let mut shapes = Vec::new();
        for series in &self.series {
            let ceiling: Vec<f64> = floor.iter().zip(&series.points).map(|(low, (_, y))| low + y).collect();
            let mut path = String::new();
            for (i, (x, _)) in series.points.iter().enumerate() {
                let letter = if i == 0 { 'M' } else { 'L' };
                let _ = write!(path, "{letter}{} {}", px(*x, &self.x), py(ceiling[i], &self.y));
            }
            for (i, (x, _)) in series.points.iter().enumerate().rev() {
                let _ = write!(path, "L{} {}", px(*x, &self.x), py(floor[i], &self.y));
            }
            path.push('Z');
            shapes.push((series, path));
            floor = ceiling;
        }
        html! {
            g.areas {
                @for (series, path) in shapes {
                    path.age style=(self.shade(series.look)) d=(path) { title { (series.name) } }
                }
            }
        }
    }

    /// Colour of a stacked area: a place on the style sheet's ramp of [`RAMP`] colours, from the first area to the
    /// last.
    fn shade(&self, look: usize) -> String {
        let steps = self.series.len().saturating_sub(1).max(1);
        let place = look as f64 / steps as f64 * (RAMP - 1) as f64;
        let from = (place as usize).min(RAMP - 2);
        let share = (place - from as f64) * 100.0;
        format!("fill:color-mix(in oklab,var(--r{}) {share:.0}%,var(--r{from}))", from + 1)
    }

    fn bars(&self) -> Markup {
        let floor = HEIGHT - BOTTOM;
        let bars = self.series.iter().take(1).flat_map(|series| {
            let ends = series.points.iter().skip(1).map(|(x, _)| *x).chain([self.x.high]);
            series.points.iter().zip(ends).map(move |((low, y), high)| (series, *low, high, *y))
        });
        html! {
            g.areas {
                @for (series, low, high, y) in bars {
                    @let (left, right) = (LEFT + self.x.place(low) * SPAN, LEFT + self.x.place(high) * SPAN);
                    @let top = HEIGHT - BOTTOM - self.y.place(y) * (HEIGHT - TOP - BOTTOM);
                    rect class=(look(series.look)) x=(n(left + 1.0)) width=(n((right - left - 2.0).max(1.0))) y=(n(top))
                        height=(n(floor - top)) { title { ((self.x_label)(low)) ": " ((self.y_label)(y)) } }
                }
            }
        }
    }

    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let letter = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{} {}", px(*x, &self.x), py(*y, &self.y));
        }
        path
    }

    /// Names with their look; boxes hide and show lines, by style sheet alone.
    fn legend(&self) -> Markup {
        html! {
            fieldset.legend {
                legend { @if self.shape == Shape::Stacked { "From below" } @else { "Lines shown" } }
                @for (index, series) in self.series.iter().enumerate() {
                    label {
                        @if self.shape == Shape::Lines { input type="checkbox" checked class=(format!("c{index}")); }
                        svg.swatch viewBox="0 0 28 12" aria-hidden="true" {
                            @if self.shape == Shape::Stacked {
                                g.areas { path.age style=(self.shade(series.look)) d="M2 1h24v10h-24z" {} }
                            } @else {
                                g.lines { g class=(format!("series {}", look(series.look))) { path d="M1 6h26" {} } }
                            }
                        }
                        (series.name)
                    }
                }
            }
        }
    }

    fn table(&self) -> Markup {
        let mut xs: Vec<f64> = self.series.iter().flat_map(|series| series.points.iter().map(|(x, _)| *x)).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        html! {
            div.scroll tabindex="0" {
                table {
                    caption { (self.title) ". " (self.definition) }
                    thead {
                        tr {
                            th scope="col" { (self.x.title) }
                            @for series in &self.series { th scope="col" { (series.name) } }
                        }
                    }
                    tbody {
                        @for x in xs {
                            tr {
                                th scope="row" { ((self.x_label)(x)) }
                                @for series in &self.series {
                                    td {
                                        @match series.points.iter().find(|(at, _)| *at == x) {
                                            Some((_, y)) => ((self.y_label)(*y)),
                                            None => "–",
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn look(look: usize) -> String {
    let dash = ["", " dashed", " dotted", " long", " mixed"][look / COLOURS % 5];
    format!("l{}{dash}", look % COLOURS)
}

/// The classes of a line's groups, each behind a blank.
fn memberships(index: usize, groups: &[Group]) -> String {
    let of = groups.iter().enumerate().filter(|(_, group)| group.series.contains(&index));
    of.map(|(number, _)| format!(" g{number}")).collect()
}

/// Ascending places, moved as little as possible until they are [`NAME_HEIGHT`] from each other: neighbours that are
/// too close become a block whose middle is the mean of what they want. Then up from the lower edge and down from the
/// upper one, if they lie beyond it. [`names_height`] has room for all.
fn spread(wanted: &[f64]) -> Vec<f64> {
    // A block: the mean of its first place's wishes, and how many it holds.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for place in wanted {
        blocks.push((*place, 1));
        while let [.., (above, many), (below, few)] = blocks[..]
            && above + many as f64 * NAME_HEIGHT > below
        {
            let shifted = below - many as f64 * NAME_HEIGHT;
            let first = (above * many as f64 + shifted * few as f64) / (many + few) as f64;
            blocks.truncate(blocks.len() - 2);
            blocks.push((first, many + few));
        }
    }
    let rows = blocks.iter().flat_map(|(first, many)| (0..*many).map(move |row| first + row as f64 * NAME_HEIGHT));
    let mut places: Vec<f64> = rows.collect();
    let mut floor = names_height(wanted.len()) - NAME_HEIGHT / 2.0;
    for place in places.iter_mut().rev() {
        *place = place.min(floor);
        floor = *place - NAME_HEIGHT;
    }
    let mut ceiling = NAME_HEIGHT / 2.0;
    for place in &mut places {
        *place = place.max(ceiling);
        ceiling = *place + NAME_HEIGHT;
    }
    places
}

/// Height of a picture with names at the ends of its lines.
fn names_height(names: usize) -> f64 {
    HEIGHT.max(names as f64 * NAME_HEIGHT)
}

fn px(value: f64, axis: &Axis) -> String {
    n(LEFT + axis.place(value) * SPAN)
}

fn py(value: f64, axis: &Axis) -> String {
    n(HEIGHT - BOTTOM - axis.place(value) * (HEIGHT - TOP - BOTTOM))
}

/// A coordinate with one digit after the point at most.
fn n(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_the_report() {
        let figure = Figure {
            id: "f".into(),
            title: "<script>alert(1)</script>".into(),
            description: "\"><img>".into(),
            definition: "a & b".into(),
            x: Axis::linear("x", 1.0, 2, |v| v.to_string()),
            y: Axis::linear("y", 1.0, 2, |v| v.to_string()),
            series: vec![Series { name: "</title><b>".into(), look: 0, points: vec![(0.0, 0.0), (1.0, 1.0)] }],
            x_label: |x| x.to_string(),
            y_label: |y| y.to_string(),
            shape: Shape::Lines,
            marks: vec![(0.5, "<i>".into())],
        };
        let text = figure.markup().into_string();
        for bad in ["<script", "<img", "<b>", "<i>"] {
            assert!(!text.contains(bad), "{bad}");
        }
        assert!(text.contains("&lt;script&gt;") && text.contains("a &amp; b"));
    }

    #[test]
    fn names_keep_their_distance() {
        let places = spread(&[50.0, 51.0, 52.0, 200.0, 390.0, 391.0]);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= NAME_HEIGHT - 1e-9), "{places:?}");
        // Their mean stays where it was.
        assert!((places[0] + places[1] + places[2] - 153.0).abs() < 1e-9, "{places:?}");
        assert_eq!(places[3], 200.0);
        assert!(places[5] <= HEIGHT);
    }

    #[test]
    fn all_names_lie_within_the_picture() {
        for names in [9, 23, 24, 40] {
            for crowded in [0.0, 60.0, HEIGHT] {
                let places = spread(&vec![crowded; names]);
                assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= NAME_HEIGHT - 1e-9), "{places:?}");
                let (first, last) = (places[0], places[names - 1]);
                let room = NAME_HEIGHT / 2.0 - 1e-9;
                assert!(first >= room && last <= names_height(names) - room, "{places:?}");
            }
        }
    }

    #[test]
    fn areas_stack() {
        let series = |name: &str, y: f64| Series { name: name.into(), look: 0, points: vec![(0.0, y), (1.0, y)] };
        let figure = Figure {
            id: "f".into(),
            title: String::new(),
            description: String::new(),
            definition: String::new(),
            x: Axis::exact("x", 1.0, 1, |v| v.to_string()),
            y: Axis::exact("y", 2.0, 1, |v| v.to_string()),
            series: vec![series("a", 1.0), series("b", 1.0)],
            x_label: |x| x.to_string(),
            y_label: |y| y.to_string(),
            shape: Shape::Stacked,
            marks: vec![],
        };
        let middle = py(1.0, &figure.y);
        let top = py(2.0, &figure.y);
        let text = figure.areas().into_string();
        assert!(text.contains(&format!("M84 {top}L618 {top}L618 {middle}L84 {middle}Z")), "{text}");
    }
}
