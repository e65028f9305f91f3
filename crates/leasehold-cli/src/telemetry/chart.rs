//! The plots of the page, as SVG without text: lines and bars stretch with the page, and words are HTML beside them, so that they
//! keep their size on a phone.

use std::fmt::Write;

use leasehold_core::wire::telemetry::{RatePoint, TelemetryReport};

use super::report::{Scale, percent, time};

/// How many colours there are for phases; more phases share them.
pub(super) const COLOURS: usize = 6;

/// The marks of an axis that begins at zero.
pub(super) struct Axis {
    step: f64,
    pub(super) top: f64,
}

impl Axis {
    /// An axis up to at least `most`, with three to six marks.
    pub(super) fn up_to(most: f64) -> Self {
        let most = if most.is_finite() && most > 0.0 { most } else { 0.1 };
        let tens = 10_f64.powf((most / 3.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * tens).into_iter().find(|step| most / step <= 5.0 + 1e-9);
        let step = step.unwrap_or(most);
        Self { step, top: (most / step - 1e-9).ceil() * step }
    }

    fn marks(&self) -> impl Iterator<Item = f64> {
        let many = (self.top / self.step).round() as u32;
        (0..=many).map(|mark| f64::from(mark) * self.step)
    }
}

/// The plot of the rate against the threshold over time.
pub(super) fn rates(report: &TelemetryReport, phases: &[&str]) -> String {
    let most = report.series.iter().map(|point| point.rate).fold(report.threshold * 2.0, f64::max);
    let axis = Axis::up_to(most);
    let plot = Plot { report, axis: &axis };
    let mut html = String::from("<div class=\"plot\"><div class=\"ys\">");
    for mark in axis.marks() {
        let _ = write!(html, "<span style=\"top:{:.2}%\">{}</span>", plot.y(mark), short_percent(mark));
    }
    let said = format!(
        "Read-only rate of {} against the threshold of {}",
        phases.join(", "),
        percent(Some(report.threshold))
    );
    let _ = write!(
        html,
        "</div><div class=\"area\"><svg viewBox=\"0 0 100 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{said}\">"
    );
    for mark in axis.marks() {
        let y = plot.y(mark);
        let _ = write!(html, "<path class=\"grid\" d=\"M0 {y:.2}H100\"/>");
    }
    let y = plot.y(report.threshold);
    let _ = write!(html, "<path class=\"threshold\" d=\"M0 {y:.2}H100\"/>");
    for (number, phase) in phases.iter().enumerate() {
        let d = plot.line(phase);
        let _ = write!(html, "<path class=\"line c{}\" d=\"{d}\"/>", number % COLOURS);
    }
    for change in &report.changes {
        let (x, class) = (plot.x(change.at), if change.rollback { "rollback" } else { "change" });
        let _ = write!(html, "<path class=\"{class}\" d=\"M{x:.2} 0V100\"/>");
    }
    html.push_str("</svg>");
    html.push_str(&plot.marks_of_changes());
    html.push_str("</div>");
    html.push_str(&plot.times());
    html.push_str("</div>");
    html
}

/// Where times and rates are in a plot of 100 by 100.
struct Plot<'a> {
    report: &'a TelemetryReport,
    axis: &'a Axis,
}

impl Plot<'_> {
    fn x(&self, at: u64) -> f64 {
        let (from, to) = (self.report.from, self.report.to);
        at.saturating_sub(from) as f64 / to.saturating_sub(from).max(1) as f64 * 100.0
    }

    fn y(&self, rate: f64) -> f64 {
        100.0 - rate / self.axis.top * 100.0
    }

    /// The line of a phase. Where nothing was counted there is a gap; a point alone is a short dash.
    fn line(&self, phase: &str) -> String {
        let gap = Scale::of(self.report).step * 3 / 2;
        let points: Vec<&RatePoint> =
            self.report.series.iter().filter(|point| point.phase == phase).collect();
        let mut d = String::new();
        for (at, point) in points.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|at| points.get(at));
            let goes_on = before.is_some_and(|before| point.at.saturating_sub(before.at) <= gap);
            let (x, y) = (self.x(point.at), self.y(point.rate));
            let _ = match goes_on {
                true => write!(d, "L{x:.2} {y:.2}"),
                false => write!(d, "M{:.2} {y:.2}H{x:.2}", (x - 0.4).max(0.0)),
            };
        }
        d
    }

    /// The words at the changes of the phase. Neighbours are in different rows.
    fn marks_of_changes(&self) -> String {
        let mut html = String::new();
        for (number, change) in self.report.changes.iter().enumerate() {
            let x = self.x(change.at);
            let side = if x > 60.0 { "left" } else { "right" };
            let what = if change.rollback { "rollback" } else { "change" };
            let (row, to) = (number % 3, super::page::escape(&change.to));
            let _ = write!(
                html,
                "<span class=\"mark {what} {side} row{row}\" style=\"left:{x:.2}%\">{what} to {to}</span>"
            );
        }
        html
    }

    fn times(&self) -> String {
        let Scale { with_days, .. } = Scale::of(self.report);
        let (from, to) = (self.report.from, self.report.to);
        let mut html = String::from("<div class=\"xs\">");
        for quarter in [0_u64, 1, 2, 3, 4] {
            let at = from + to.saturating_sub(from) / 4 * quarter;
            let text = time(at, with_days);
            let text = if with_days {
                text.get(5..10).unwrap_or_default()
            } else {
                text.get(..5).unwrap_or_default()
            };
            let _ = write!(html, "<span style=\"left:{}%\">{text}</span>", quarter * 25);
        }
        html + "</div>"
    }
}

/// A bar whose length is a part of the longest one, with a mark across it where there is a threshold.
pub(super) fn bar(part: f64, class: &str, mark: Option<f64>) -> String {
    let part = part.clamp(0.0, 1.0) * 100.0;
    let mark = mark.filter(|mark| *mark <= 1.0).map(|mark| {
        let x = mark * 100.0;
        format!("<path class=\"threshold\" d=\"M{x:.2} 0V10\"/>")
    });
    format!(
        "<svg class=\"bar\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"{class}\" width=\"{part:.2}\" height=\"10\"/>{}</svg>",
        mark.unwrap_or_default()
    )
}

/// A mark of an axis, without digits that say nothing.
fn short_percent(part: f64) -> String {
    let number = part * 100.0;
    let digits = if (number - number.round()).abs() < 1e-6 { 0 } else { 1 };
    format!("{number:.digits$} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_a_few_round_marks() {
        for (most, top, marks) in
            [(0.1, 0.1, 6), (0.31, 0.4, 5), (0.06, 0.06, 4), (1.0, 1.0, 6), (7.5, 8.0, 5), (0.0, 0.1, 6)]
        {
            let axis = Axis::up_to(most);
            let shown: Vec<String> = axis.marks().map(short_percent).collect();
            assert!((axis.top - top).abs() < 1e-9, "{most}: {}", axis.top);
            assert_eq!(shown.len(), marks, "{most}: {shown:?}");
        }
        assert!(Axis::up_to(f64::NAN).top > 0.0 && Axis::up_to(f64::INFINITY).top > 0.0);
    }

    #[test]
    fn a_bar_stays_in_its_place() {
        assert!(
            bar(3.0, "c0", Some(2.0)).contains("width=\"100.00\"")
                && !bar(1.0, "c0", Some(2.0)).contains("path")
        );
        assert!(bar(0.5, "c0", Some(0.25)).contains("M25.00 0V10"));
    }
}
