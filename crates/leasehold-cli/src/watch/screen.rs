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

/// How many steps a bar has.
const BAR: usize = 12;

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
        let rows: Vec<Row<'_>> = board.locks(&self.filter).map(|(room, lock)| row(room, lock, now)).collect();
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
        let widths = [
            Constraint::Fill(3),
            Constraint::Fill(2),
            Constraint::Length(16),
            Constraint::Length(9),
            Constraint::Length(23),
            Constraint::Fill(2),
        ];
        let header = Row::new(["DOCUMENT", "HOLDER", "FENCE", "HELD FOR", "EXPIRES IN", "NOTE"]).bold();
        let table = Table::new(rows, widths)
            .header(header)
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

fn row<'a>(room: &'a str, lock: &'a Lock, now: Instant) -> Row<'a> {
    Row::new([
        Cell::from(room),
        Cell::from(lock.holder.as_str()),
        Cell::from(lock.fence.to_string()),
        Cell::from(lock.held_for(now)),
        Cell::from(bar(lock, now)),
        Cell::from(lock.note.as_str()),
    ])
}

/// What is left, as a bar and in words.
fn bar(lock: &Lock, now: Instant) -> Line<'static> {
    let share = lock.share_left(now);
    let colour = match share {
        _ if share > 0.5 => Color::Green,
        _ if share > 0.2 => Color::Yellow,
        _ => Color::Red,
    };
    // At most BAR, and not negative: a share lies between 0 and 1.
    let full = (share * BAR as f64).round() as usize;
    let left = duration(whole_millis(lock.left(now)));
    Line::from(vec![
        Span::styled("█".repeat(full), colour),
        Span::styled("░".repeat(BAR.saturating_sub(full)), Style::new().dim()),
        format!(" {left}").into(),
    ])
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, board: &Board, now: Instant) {
    let item = |(ago, text): (std::time::Duration, &str)| {
        let ago = format!("{:>8} ago  ", whole_seconds(ago));
        ListItem::new(Line::from(vec![ago.dim(), text.to_owned().into()]))
    };
    let events =
        List::new(board.events(now).map(item)).block(Block::bordered().title(" events, newest first "));
    frame.render_widget(events, area);
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
│DOCUMENT            HOLDER        FENCE            HELD FOR  EXPIRES IN              NOTE         │
│minutes             Anna          7                20.0s     ██████░░░░░░ 15.0s                   │
│plan                Ben           8                20.0s     ██████░░░░░░ 15.0s                   │
│                                                                                                  │
│                                                                                                  │
└──────────────────────────────────────────────────────────────────────────────────────────────────┘
┌ events, newest first ────────────────────────────────────────────────────────────────────────────┐
│     15s ago  notes: unlocked, Cora held it (fence 3)                                             │
│                                                                                                  │
│                                                                                                  │
└──────────────────────────────────────────────────────────────────────────────────────────────────┘
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
