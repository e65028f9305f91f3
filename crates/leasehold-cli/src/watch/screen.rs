//! The terminal interface of `watch`: draws the board, and understands keys. It knows nothing of servers.

use std::time::Instant;

use leasehold_core::time::whole_millis;
use ratatui::Frame;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, List, ListItem, Paragraph, Row, Table, TableState};

use super::board::{Board, Link, Lock};
use crate::out::duration;

/// Below this width, fences are left out and bars are short: a document's name and its holder need the room.
const WIDE: u16 = 100;

/// How many steps a bar has, on a wide and on a narrow terminal.
const BAR: usize = 12;
const SHORT_BAR: usize = 6;

/// The columns between two cells.
const SPACING: u16 = 1;

/// How many columns the rest of a bar's cell takes: a space, and a time such as `12.3s` or `2h 10m`.
const BAR_TIME: u16 = 8;

/// How far the keys for a page go.
const PAGE: i32 = 10;

/// What the person at the terminal sees and does.
pub(super) struct Screen {
    title: String,
    filter: String,
    typing: bool,
    table: TableState,
}

/// What a key means for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    Quit,
}

impl Screen {
    pub(super) fn new(title: String) -> Self {
        Self { title, filter: String::new(), typing: false, table: TableState::default().with_selected(0) }
    }

    /// A key was pressed, or something else happened to the terminal.
    pub(super) fn handle(&mut self, event: &Event, board: &Board) -> Next {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.handle_key(*key, board),
            _ => Next::Stay,
        }
    }

    fn handle_key(&mut self, key: KeyEvent, board: &Board) -> Next {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return Next::Quit,
            _ if self.typing => self.handle_typed(key.code),
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Esc if self.filter.is_empty() => return Next::Quit,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Up | KeyCode::Char('k') => self.go(-1, board),
            KeyCode::Down | KeyCode::Char('j') => self.go(1, board),
            KeyCode::PageUp => self.go(-PAGE, board),
            KeyCode::PageDown => self.go(PAGE, board),
            KeyCode::Home => self.go(i32::MIN, board),
            KeyCode::End => self.go(i32::MAX, board),
            _ => {}
        }
        Next::Stay
    }

    fn handle_typed(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(letter) => self.filter.push(letter),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.typing = false;
            }
            _ => {}
        }
    }

    fn go(&mut self, by: i32, board: &Board) {
        let last = board.locks(&self.filter).count().saturating_sub(1);
        let at = i32::try_from(self.table.selected().unwrap_or_default().min(last)).unwrap_or_default();
        let to = usize::try_from(at.saturating_add(by)).unwrap_or_default();
        self.table.select(Some(to.min(last)));
    }

    /// Draws everything as it is at `now`.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, board: &Board, now: Instant) {
        let rows =
            [Constraint::Length(1), Constraint::Min(4), Constraint::Percentage(35), Constraint::Length(1)];
        let [head, locks, events, foot] = Layout::vertical(rows).areas(frame.area());
        frame.render_widget(self.head(board), head);
        self.draw_locks(frame, locks, board, now);
        draw_events(frame, events, board, now);
        frame.render_widget(self.foot(), foot);
    }

    fn head(&self, board: &Board) -> Line<'_> {
        let link = match &board.link {
            Link::Connecting => "○ connecting".yellow(),
            Link::Live => "● live".green(),
            Link::Lost(why) => format!("○ not connected: {why}").red(),
        };
        Line::from(vec![
            " leasehold ".bold().reversed(),
            " ".into(),
            self.title.as_str().into(),
            "  ".into(),
            link,
        ])
    }

    fn draw_locks(&mut self, frame: &mut Frame<'_>, area: Rect, board: &Board, now: Instant) {
        let is_wide = area.width >= WIDE;
        let (widths, header) = columns(is_wide);
        let inside = Block::bordered().inner(area);
        let cells = Layout::horizontal(&widths).spacing(SPACING).split(inside);
        let cells: Vec<usize> = cells.iter().map(|cell| usize::from(cell.width)).collect();
        let rows: Vec<Row<'_>> =
            board.locks(&self.filter).map(|(room, lock)| row(room, lock, is_wide, &cells, now)).collect();
        let count = if board.more {
            format!(" locks: the first {} ", rows.len())
        } else {
            format!(" locks: {} ", rows.len())
        };
        if rows.is_empty() {
            let text = if self.filter.is_empty() { "no leases" } else { "nothing matches the filter" };
            let nothing = Paragraph::new(text.dim()).centered().block(Block::bordered().title(count));
            return frame.render_widget(nothing, area);
        }
        let table = Table::new(rows, widths)
            .header(Row::new(header).bold())
            .column_spacing(SPACING)
            .block(Block::bordered().title(count))
            .row_highlight_style(Style::new().reversed());
        frame.render_stateful_widget(table, area, &mut self.table);
    }

    fn foot(&self) -> Line<'_> {
        if self.typing {
            return Line::from(vec![
                "/".bold(),
                self.filter.as_str().into(),
                "▏".into(),
                "  Enter keep  Esc clear".dim(),
            ]);
        }
        let filter =
            if self.filter.is_empty() { String::new() } else { format!("filter: {}  ", self.filter) };
        Line::from(vec![filter.bold(), "q quit  ↑↓ move  / filter".dim()])
    }
}

/// The columns of the table: their widths and names.
fn columns(is_wide: bool) -> (Vec<Constraint>, Vec<&'static str>) {
    let bar = |steps: usize| Constraint::Length(BAR_TIME + u16::try_from(steps).unwrap_or(u16::MAX));
    let held_for = Constraint::Length(9);
    let fills = |part| Constraint::Fill(part);
    if is_wide {
        let widths = vec![fills(3), fills(2), Constraint::Length(14), held_for, bar(BAR), fills(2)];
        return (widths, vec!["DOCUMENT", "HOLDER", "FENCE", "HELD FOR", "EXPIRES IN", "NOTE"]);
    }
    let widths = vec![fills(7), fills(4), held_for, bar(SHORT_BAR), fills(5)];
    (widths, vec!["DOCUMENT", "HOLDER", "HELD FOR", "EXPIRES IN", "NOTE"])
}

/// A row. `cells` are the widths of its cells.
fn row(room: &str, lock: &Lock, is_wide: bool, cells: &[usize], now: Instant) -> Row<'static> {
    let fitting = |text: &str, at: usize| Cell::from(cut(text, cells.get(at).copied().unwrap_or_default()));
    let fence = is_wide.then(|| Cell::from(lock.fence.to_string()));
    let steps = if is_wide { BAR } else { SHORT_BAR };
    let who = [fitting(room, 0), fitting(&lock.holder, 1)];
    let times = [Cell::from(lock.held_for(now)), Cell::from(bar(lock, steps, now))];
    Row::new(
        who.into_iter().chain(fence).chain(times).chain([fitting(&lock.note, cells.len().saturating_sub(1))]),
    )
}

/// What is left, as a bar and in words.
fn bar(lock: &Lock, steps: usize, now: Instant) -> Line<'static> {
    let share = lock.share_left(now);
    let colour = match share {
        _ if share > 0.5 => Color::Green,
        _ if share > 0.2 => Color::Yellow,
        _ => Color::Red,
    };
    // At most `steps`, and not negative: a share lies between 0 and 1.
    let full = (share * steps as f64).round() as usize;
    let left = duration(whole_millis(lock.left(now)));
    Line::from(vec![
        Span::styled("█".repeat(full), colour),
        Span::styled("░".repeat(steps.saturating_sub(full)), Style::new().dim()),
        format!(" {left}").into(),
    ])
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, board: &Board, now: Instant) {
    let item = |(ago, text): (std::time::Duration, &str)| {
        let ago = format!("{:>7} ago  ", whole_seconds(ago));
        // The frame takes a column on either side.
        let room = usize::from(area.width).saturating_sub(2 + ago.len());
        ListItem::new(Line::from(vec![ago.dim(), cut(text, room).into()]))
    };
    let events =
        List::new(board.events(now).map(item)).block(Block::bordered().title(" events, newest first "));
    frame.render_widget(events, area);
}

/// A text that fits into so many columns; what is cut off is marked.
fn cut(text: &str, columns: usize) -> String {
    if columns == 0 {
        return String::new();
    }
    if Line::from(text).width() <= columns {
        return text.to_owned();
    }
    let mut kept = text.to_owned();
    while Line::from(kept.as_str()).width() + 1 > columns && kept.pop().is_some() {}
    format!("{}…", kept.trim_end())
}

/// Without tenths, which would only flicker.
fn whole_seconds(ago: std::time::Duration) -> String {
    match ago.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds => duration(seconds * 1_000),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::watch::board::tests::{event, state};

    fn board(start: Instant) -> Board {
        let mut board = Board::new();
        board.link = Link::Live;
        board.handle_state(&state("minutes", 7, Some("Anna"), 30_000), start);
        board.handle_state(&state("plan", 8, Some("Ben"), 30_000), start);
        board.handle_event(&event("DocumentUnlocked", "notes", 3, "Cora"), start);
        board
    }

    fn drawn(screen: &mut Screen, board: &Board, size: (u16, u16), now: Instant) -> String {
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        terminal.draw(|frame| screen.draw(frame, board, now)).unwrap();
        let text = terminal.backend().to_string();
        let lines = text.lines().map(|line| line.trim_matches('"').trim_end());
        lines.collect::<Vec<_>>().join("\n")
    }

    fn press(screen: &mut Screen, board: &Board, codes: &[KeyCode]) -> Next {
        let event = |code: &KeyCode| Event::Key(KeyEvent::new(*code, KeyModifiers::NONE));
        codes.iter().map(|code| screen.handle(&event(code), board)).last().unwrap()
    }

    #[test]
    fn the_screen_shows_locks_countdowns_events_and_the_connection() {
        let start = Instant::now();
        let mut screen = Screen::new("http://127.0.0.1:7420".into());
        let text = drawn(&mut screen, &board(start), (100, 14), start + Duration::from_secs(15));
        let expected = "\
 leasehold  http://127.0.0.1:7420  ● live
┌ locks: 2 ────────────────────────────────────────────────────────────────────────────────────────┐
│DOCUMENT              HOLDER          FENCE          HELD FOR  EXPIRES IN           NOTE          │
│minutes               Anna            7              20.0s     ██████░░░░░░ 15.0s                 │
│plan                  Ben             8              20.0s     ██████░░░░░░ 15.0s                 │
│                                                                                                  │
│                                                                                                  │
└──────────────────────────────────────────────────────────────────────────────────────────────────┘
┌ events, newest first ────────────────────────────────────────────────────────────────────────────┐
│    15s ago  notes: unlocked, Cora held it                                                        │
│                                                                                                  │
│                                                                                                  │
└──────────────────────────────────────────────────────────────────────────────────────────────────┘
q quit  ↑↓ move  / filter";
        assert_eq!(text.trim_start(), expected, "\n{text}");
    }

    /// Fences and long bars left eleven columns for the name of a document, and events ran out of the frame.
    #[test]
    fn eighty_columns_show_whole_names_and_mark_what_is_cut() {
        let start = Instant::now();
        let mut board = board(start);
        board.handle_state(
            &state("quarterly-report-2026", 1_794_744_560_026, Some("Konstantin"), 30_000),
            start,
        );
        let mut taken = event("DocumentUnlocked", "quarterly-report-2025", 4, "Konstantin");
        taken.reason = Some(leasehold_core::wire::documents::UnlockReason::TakenOver);
        (taken.by, taken.by_name) = (Some("Ben".into()), Some("Ben".into()));
        taken.note = Some("the deadline is in ten minutes".into());
        board.handle_event(&taken, start);
        let mut asked = event("HandoverRequested", "plan", 9, "Ben");
        (asked.by, asked.by_name) = (Some("user-a".into()), Some("Cora".into()));
        board.handle_event(&asked, start);
        let text = drawn(&mut Screen::new("http://127.0.0.1:7420".into()), &board, (80, 14), start);
        let expected = "\
leasehold  http://127.0.0.1:7420  ● live
┌ locks: 3 ────────────────────────────────────────────────────────────────────┐
│DOCUMENT               HOLDER        HELD FOR  EXPIRES IN     NOTE            │
│minutes                Anna          5.0s      ██████ 30.0s                   │
│plan                   Ben           5.0s      ██████ 30.0s   requested by Co…│
│quarterly-report-2026  Konstantin    5.0s      ██████ 30.0s                   │
│                                                                              │
└──────────────────────────────────────────────────────────────────────────────┘
┌ events, newest first ────────────────────────────────────────────────────────┐
│     0s ago  plan: Cora (user-a) asks Ben to hand it over                     │
│     0s ago  quarterly-report-2025: taken from Konstantin by Ben: the deadlin…│
│     0s ago  notes: unlocked, Cora held it                                    │
└──────────────────────────────────────────────────────────────────────────────┘
q quit  ↑↓ move  / filter";
        assert_eq!(text.trim_start(), expected, "\n{text}");
    }

    #[test]
    fn keys_filter_move_and_quit() {
        let start = Instant::now();
        let board = board(start);
        let mut screen = Screen::new(String::new());
        assert_eq!(
            press(&mut screen, &board, &[KeyCode::Char('/'), KeyCode::Char('q'), KeyCode::Backspace]),
            Next::Stay
        );
        press(&mut screen, &board, &[KeyCode::Char('b'), KeyCode::Char('e'), KeyCode::Enter]);
        let text = drawn(&mut screen, &board, (100, 14), start);
        assert!(text.contains("plan") && !text.contains("minutes") && text.contains("filter: be"), "{text}");
        assert_eq!(press(&mut screen, &board, &[KeyCode::Esc]), Next::Stay, "the filter goes first");
        press(&mut screen, &board, &[KeyCode::Down, KeyCode::Down, KeyCode::PageDown]);
        assert_eq!(screen.table.selected(), Some(1));
        press(&mut screen, &board, &[KeyCode::Home]);
        assert_eq!(screen.table.selected(), Some(0));
        assert_eq!(press(&mut screen, &board, &[KeyCode::Char('q')]), Next::Quit);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen.handle(&Event::Key(control_c), &board), Next::Quit);
    }

    #[test]
    fn any_size_of_terminal_will_do() {
        let start = Instant::now();
        let mut screen = Screen::new("x".into());
        for size in [(1, 1), (10, 3), (30, 8), (300, 100), (80, 24)] {
            drawn(&mut screen, &board(start), size, start);
        }
    }

    #[test]
    fn a_lost_connection_is_seen() {
        let start = Instant::now();
        let mut board = board(start);
        board.link = Link::Lost("connection refused".into());
        let text = drawn(&mut Screen::new("x".into()), &board, (80, 10), start);
        assert!(text.contains("○ not connected: connection refused"), "{text}");
    }
}
