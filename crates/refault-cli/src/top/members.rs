//! What `refault top --pool` shows: who has what, how long it waits, and how old memory is.

use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use ratatui::{Frame, Terminal};

use super::screen::{bar, block, lines};
use refault_core::statistics;
use refault_lab::size::bytes_text;
use refault_pool::shared::protocol::{AGES, MemberStatus, Status};

/// Rows of the box of ages, with its border.
const AGE_ROWS: u16 = AGES.len() as u16 + 2;
/// Rows of the table of members beside its members: border and head.
const FRAME_ROWS: u16 = 3;

/// The view as text, with all members.
pub(super) fn text(status: &Status, width: u16) -> String {
    let rows = 1 + FRAME_ROWS + status.members.len().max(1) as u16 + AGE_ROWS + 1;
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, rows));
    let Ok(_) = terminal.draw(|frame| draw(frame, status, ""));
    lines(terminal.backend().buffer())
}

/// Draws the members of a pool. Where there is no room for all, those that use least are left out and counted.
pub(super) fn draw(frame: &mut Frame<'_>, status: &Status, note: &str) {
    let area = frame.area();
    let ages = if area.height >= 2 + FRAME_ROWS + 1 + AGE_ROWS { AGE_ROWS } else { 0 };
    let areas = [Constraint::Length(1), Constraint::Min(0), Constraint::Length(ages), Constraint::Length(1)];
    let [title, members, ages, last] = Layout::vertical(areas).areas(area);
    draw_title(frame, title, status);
    draw_members(frame, members, status);
    draw_ages(frame, ages, status);
    frame.render_widget(Paragraph::new(note), last);
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let text = format!(
        "  {} in use of {}, {} granted to {}",
        bytes_text(status.charge_bytes),
        bytes_text(status.memory_bytes),
        bytes_text(status.committed_bytes),
        match status.members.len() {
            1 => "one member".to_owned(),
            many => format!("{many} members"),
        }
    );
    let name = Span::styled(format!("pool {}", status.pool), Style::new().add_modifier(Modifier::BOLD));
    frame.render_widget(Paragraph::new(Line::from(vec![name, Span::raw(text)])), area);
}

fn draw_members(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let mut members: Vec<(&u64, &MemberStatus)> = status.members.iter().collect();
    members.sort_by_key(|(pid, member)| (std::cmp::Reverse(member.figures.charge), **pid));
    let room = usize::from(area.height.saturating_sub(FRAME_ROWS));
    let hidden = members.len().saturating_sub(room);
    let title = match hidden {
        0 => "Members, those that use most first".to_owned(),
        hidden => format!("Members, those that use most first; {hidden} more"),
    };
    // A bar of a few cells says nothing.
    let width = usize::from(area.width).saturating_sub(80).min(40);
    let width = if width < 10 { 0 } else { width };
    let right = |text: String| Cell::from(Line::from(text).right_aligned());
    let rows = members.iter().take(room).map(|(pid, member)| {
        let would = member.figures.would_stop_refaulting_at.map_or_else(|| "–".to_owned(), bytes_text);
        let waits = if member.answers { format!("{:.2} %", member.pressure * 100.0) } else { "silent".to_owned() };
        Row::new([
            Cell::from(member.name.clone()),
            right(pid.to_string()),
            right(bytes_text(member.figures.charge)),
            right(bytes_text(member.grant_bytes)),
            right(bytes_text(member.figures.stored)),
            right(waits),
            right(would),
            Cell::from(bar(member.figures.charge, status.memory_bytes, width)),
        ])
    });
    let head = ["member", "process", "uses", "grant", "out", "waits", statistics::ADVICE_BYTES.word, ""];
    let head = head.iter().enumerate().map(|(at, name)| match at {
        0 => Cell::from(*name),
        _ => right((*name).to_owned()),
    });
    let widths = [
        Constraint::Min(8),
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(13),
        Constraint::Length(width as u16),
    ];
    let head = Row::new(head).style(Style::new().add_modifier(Modifier::BOLD));
    frame.render_widget(Table::new(rows, widths).header(head).block(block(&title)), area);
}

fn draw_ages(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let mut sums = [0; AGES.len()];
    for member in status.members.values() {
        sums.iter_mut().zip(status.bytes_by_age(member)).for_each(|(sum, bytes)| *sum += bytes);
    }
    let most = sums.iter().copied().max().unwrap_or(0);
    let width = usize::from(area.width).saturating_sub(30).clamp(10, 60);
    let rows = sums.iter().zip(AGES).map(|(bytes, (age, below))| {
        let number = age.trim_end_matches(char::is_alphabetic);
        let unit = if age.ends_with('m') { "min" } else { "s" };
        let age = if below == u64::MAX { age.to_owned() } else { format!("< {number} {unit}") };
        Row::new([
            Cell::from(age),
            Cell::from(Line::from(bytes_text(*bytes)).right_aligned()),
            Cell::from(bar(*bytes, most, width)),
        ])
    });
    let widths = [Constraint::Length(8), Constraint::Length(11), Constraint::Min(10)];
    frame.render_widget(Table::new(rows, widths).block(block("Resident, by the age of its generation")), area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use refault_pool::shared::ledger::{Figures, Terms};

    fn status() -> Status {
        let member = |program: &str, charge: u64, answers, would_stop_refaulting_at| MemberStatus {
            program: program.to_owned(),
            name: program.to_owned(),
            budget_bytes: None,
            terms: Terms::default(),
            grant_bytes: charge + (8 << 20),
            committed_bytes: charge,
            answers,
            pressure: 0.125,
            figures: Figures {
                charge,
                would_stop_refaulting_at,
                generations: vec![[0, charge / 2], [99_500_000_000, charge / 4]],
                ..Figures::default()
            },
        };
        Status {
            pool: "web".to_owned(),
            memory_bytes: 1 << 30,
            committed_bytes: 500 << 20,
            charge_bytes: 400 << 20,
            now: 100_000_000_000,
            members: [
                (7, member("idle", 64 << 20, false, None)),
                (8, member("busy", 336 << 20, true, Some(600 << 20))),
            ]
            .into(),
            ..Status::default()
        }
    }

    #[test]
    fn the_largest_member_comes_first_with_what_it_lacks() {
        let shown = text(&status(), 100);
        for part in [
            "pool web  400 MiB in use of 1 GiB, 500 MiB granted to 2 members",
            "< 1 s        100 MiB",
            "< 10 min     200 MiB",
            "silent",
            "12.50 %       600 MiB",
        ] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
        assert!(shown.find("busy").expect("shown") < shown.find("idle").expect("shown"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    }

    #[test]
    fn a_small_terminal_shows_the_largest_and_says_how_many_are_left_out() {
        let Ok(mut terminal) = Terminal::new(TestBackend::new(80, 6));
        let Ok(_) = terminal.draw(|frame| draw(frame, &status(), "a note"));
        let shown = lines(terminal.backend().buffer());
        assert!(shown.contains("busy") && !shown.contains("idle") && shown.contains("1 more"), "{shown}");
        assert!(shown.contains("a note"), "{shown}");
    }
}
