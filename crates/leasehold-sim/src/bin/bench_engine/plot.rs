//! The picture in the documentation, drawn from what was measured: one bar for each number of callers.

use std::fmt::Write;

use crate::report::Report;

/// Where the bars begin, and how long the longest may get; the rest of the line is for its figures.
const LEFT: f64 = 130.0;
const LONGEST: f64 = 377.0;
const LINE: f64 = 40.0;

const OTHERS: &str = "#8b949e";
const OURS: &str = "#2da44e";

/// The picture, as SVG.
pub fn svg(report: &Report) -> String {
    let bars = bars(report);
    let longest = bars.iter().map(|bar| bar.cycles_per_s).fold(1.0, f64::max);
    let height = 50.0 + LINE * bars.len() as f64;
    let said: Vec<String> =
        bars.iter().map(|bar| format!("{} {}", bar.name, grouped(bar.cycles_per_s))).collect();
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" viewBox="0 0 760 {height}" font-family="system-ui, DejaVu Sans, sans-serif" font-size="13" role="img" aria-label="Acquire-renew-release cycles per second: {}">
<rect width="760" height="{height}" fill="#ffffff"/>
<text x="16" y="24" font-weight="bold" fill="#1f2328">acquire-renew-release cycles per second, every one durable</text>
"##,
        said.join(", ")
    );
    for (index, bar) in bars.iter().enumerate() {
        let top = LINE * (index + 1) as f64;
        let width = (bar.cycles_per_s / longest * LONGEST).max(1.0);
        let _ = writeln!(
            svg,
            r##"<text x="120" y="{}" text-anchor="end" fill="#1f2328">{}</text><rect x="{LEFT}" y="{top}" width="{width:.0}" height="26" rx="3" fill="{}"/><text x="{:.0}" y="{}" fill="#1f2328">{} <tspan fill="#57606a">{}</tspan></text>"##,
            top + 18.0,
            bar.name,
            bar.colour,
            LEFT + width + 8.0,
            top + 18.0,
            grouped(bar.cycles_per_s),
            bar.beside,
        );
    }
    svg + "</svg>\n"
}

struct Bar {
    name: String,
    colour: &'static str,
    cycles_per_s: f64,
    /// What is said beside the figure.
    beside: String,
}

fn bars(report: &Report) -> Vec<Bar> {
    let plain = Bar {
        name: "plain SQLite".into(),
        colour: OTHERS,
        cycles_per_s: report.sqlite,
        beside: String::new(),
    };
    let ours = report.embedded.iter().map(|(callers, figures)| Bar {
        name: format!("{} caller{}", grouped(*callers as f64), if *callers == 1 { "" } else { "s" }),
        colour: OURS,
        cycles_per_s: figures.cycles_per_s,
        beside: format!(
            "{:.1} × SQLite · p99 {:.1} ms",
            figures.cycles_per_s / report.sqlite,
            figures.p99_ms
        ),
    });
    std::iter::once(plain).chain(ours).collect()
}

/// A figure with its thousands apart.
fn grouped(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
