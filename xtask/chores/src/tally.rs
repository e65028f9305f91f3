//! Counts what `cargo test` says about its tests.

/// What became of the tests of one or more runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Tests, or whole checks, that passed.
    pub passed: u64,
    /// Tests, or whole checks, that failed.
    pub failed: u64,
    /// What was not run.
    pub skipped: Vec<Skip>,
}

/// Something that was not run. Nothing is left out silently, so each has a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// What was not run.
    pub what: String,
    /// Why not, and what to do about it.
    pub why: String,
}

impl Report {
    /// One check that passed or failed as a whole.
    pub fn check(passed: bool) -> Self {
        Self { passed: u64::from(passed), failed: u64::from(!passed), skipped: Vec::new() }
    }

    /// One check that was not made.
    pub fn skip(what: &str, why: &str) -> Self {
        let skip = Skip { what: what.into(), why: why.into() };
        Self { skipped: vec![skip], ..Self::default() }
    }

    /// Whether nothing failed.
    pub fn is_fine(&self) -> bool {
        self.failed == 0
    }

    /// Adds another report to this one.
    pub fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend_from_slice(&other.skipped);
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped.len())
    }
}

/// Sums the results of all test programs of a run.
///
/// A run can fail without a failed test: it does not compile, or a test program crashes. That counts as one failure.
pub fn count(output: &str, ok: bool) -> Report {
    let mut report = Report::default();
    let mut ignored = 0;
    let mut left_out = Vec::new();
    for line in output.lines() {
        report.skipped.extend(ignored_test(line));
        let said = line.strip_prefix("SKIPPED: ").map(|why| Skip { what: "tests".into(), why: why.into() });
        left_out.extend(said.filter(|said| !left_out.contains(said)));
        if let Some([passed, failed, not_run]) = result_line(line) {
            report.passed += passed;
            report.failed += failed;
            ignored += not_run;
        }
    }
    if !ok {
        report.failed = report.failed.max(1);
    }
    name_the_rest(&mut report.skipped, ignored);
    report.skipped.extend(left_out);
    report
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; …`, which may follow what a test printed without a newline.
fn result_line(line: &str) -> Option<[u64; 3]> {
    let (_, counts) = line.split_once("test result: ")?;
    let number_before = |word: &str| -> Option<u64> {
        let (before, _) = counts.split_once(&format!(" {word}"))?;
        before.rsplit(' ').next()?.parse().ok()
    };
    Some([number_before("passed")?, number_before("failed")?, number_before("ignored")?])
}

/// Reads `test name ... ignored, reason`.
fn ignored_test(line: &str) -> Option<Skip> {
    let (name, end) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    let why = end.strip_prefix(", ").unwrap_or("it is marked as ignored");
    Some(Skip { what: name.into(), why: why.into() })
}

/// Keeps the count right when the name of an ignored test was lost among other output.
fn name_the_rest(skipped: &mut Vec<Skip>, ignored: u64) {
    while (skipped.len() as u64) < ignored {
        skipped
            .push(Skip { what: "a test".into(), why: "it is marked as ignored; its name was lost".into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_PROGRAMS: &str = "
running 3 tests
test a ... ok
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests leasehold_core
noise without a newlinetest result: FAILED. 40 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.00s
";

    #[test]
    fn the_results_of_all_programs_are_summed() {
        assert_eq!(count(TWO_PROGRAMS, false), Report { passed: 43, failed: 2, skipped: vec![] });
    }

    #[test]
    fn a_run_that_fails_without_a_failed_test_is_a_failure() {
        assert_eq!(count("error: could not compile", false).failed, 1);
        assert_eq!(count("test result: ok. 3 passed; 0 failed; 0 ignored;", false).failed, 1);
    }

    #[test]
    fn what_a_test_says_it_left_out_is_named_once() {
        let output = "SKIPPED: no disk\nSKIPPED: no disk\ntest result: ok. 2 passed; 0 failed; 0 ignored;";
        let report = count(output, true);
        assert_eq!((report.passed, report.skipped.len()), (2, 1));
        assert_eq!(report.skipped.first().map(|skip| skip.why.as_str()), Some("no disk"));
    }

    #[test]
    fn ignored_tests_are_named_with_their_reason() {
        let output = "test slow ... ignored, needs an hour\ntest other ... ignored
test result: ok. 0 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out";
        let shown: Vec<_> =
            count(output, true).skipped.into_iter().map(|skip| (skip.what, skip.why)).collect();
        let expected = [
            ("slow", "needs an hour"),
            ("other", "it is marked as ignored"),
            ("a test", "it is marked as ignored; its name was lost"),
        ];
        assert_eq!(shown, expected.map(|(what, why)| (what.to_string(), why.to_string())));
    }

    #[test]
    fn the_last_line_has_its_exact_form() {
        let mut report = Report::check(true);
        report.add(&Report::check(false));
        report.add(&Report::skip("deny", "not installed"));
        assert_eq!(report.to_string(), "1 passed, 1 failed, 1 skipped");
    }
}
