//! `cargo xtask mutants`: changes the rules in hundreds of small ways, one at a time, and asks whether a test notices.
//!
//! cargo-mutants makes the changes, in a copy of the workspace. Which ones is drawn by a seed that is printed, evenly over
//! four parts. A change that no test notices is either a hole in the tests or a change without a consequence: `survivors.txt`
//! gives the reasons for the latter. What became of a change is kept, so that a run that was cut goes on where it stopped.

mod verdicts;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::{Table, presets};

use self::verdicts::{Verdict, Verdicts};
use crate::scratch::Scratch;
use crate::tools::{self, Workspace};

const CARGO_MUTANTS: &str = "27.1.0";

/// Seconds for the tests of one change: several times what they take unchanged. A change that makes them hang is noticed.
const SECONDS: u64 = 120;

/// How many changes are tried at a time; between them the time limit is looked at, and the verdicts are kept.
const AT_A_TIME: usize = 6;

/// The smallest share that tests must notice, in per cent.
const BAR: usize = 90;

const COUNT: usize = 320;
const MINUTES: u64 = 240;

/// How many, which and how long.
#[derive(Args)]
pub struct Options {
    /// How many changes to try, over all parts; those that do not compile do not count
    #[arg(long, value_name = "N", default_value_t = COUNT)]
    count: usize,
    /// Draw the same changes again; by default others each time
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Try no more after this many minutes; the same seed goes on from there
    #[arg(long, value_name = "N", default_value_t = MINUTES)]
    minutes: u64,
    /// Only this part: rules, keeper, section or writer
    #[arg(long, value_name = "PART")]
    part: Option<String>,
    /// Take tests for hanging after this many seconds; a busy machine needs more
    #[arg(long, value_name = "N", default_value_t = SECONDS)]
    seconds: u64,
    /// Try those again that no test noticed, or that made the tests hang
    #[arg(long)]
    again: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { count: COUNT, seed: None, minutes: MINUTES, part: None, seconds: SECONDS, again: false }
    }
}

/// Files whose changes the tests of some packages must notice.
struct Part {
    name: &'static str,
    package: &'static str,
    files: &'static [&'static str],
    /// Packages whose tests are run.
    tests: &'static [&'static str],
    /// For `cargo test`.
    arguments: &'static [&'static str],
    /// How many cases of each property are tried: fewer than in the tests, since there are hundreds of changes.
    cases: &'static str,
}

const PARTS: [Part; 4] = [
    Part {
        name: "rules",
        package: "leasehold-core",
        files: &["lease.rs", "job.rs"],
        tests: &["leasehold-core"],
        arguments: &["--lib", "--test", "rules"],
        cases: "64",
    },
    Part {
        name: "keeper",
        package: "leasehold-core",
        files: &["holder.rs", "backoff.rs"],
        tests: &["leasehold-core"],
        arguments: &["--lib", "--test", "rules"],
        cases: "64",
    },
    Part {
        name: "section",
        package: "leasehold-project-rules",
        files: &["guarded.rs", "section.rs", "record.rs"],
        tests: &["leasehold-project-rules"],
        arguments: &["--lib", "--test", "rules"],
        cases: "64",
    },
    Part {
        name: "writer",
        package: "leasehold-store",
        files: &["writer.rs", "resident.rs", "changes.rs", "embedded/epoch.rs", "embedded/upkeep.rs"],
        tests: &["leasehold-store"],
        arguments: &[
            "--no-default-features",
            "--features",
            "embedded,conformance",
            "--lib",
            "--test",
            "stores",
        ],
        cases: "24",
    },
];

/// Tests that are left out: each takes longer than all others together, and they are about SQLite's file, full disks and
/// killed processes. A change that only they notice counts as missed.
const SLOW: [&str; 4] = [
    "a_flipped_byte_is_noticed_or_harmless",
    "a_full_disk_loses_nothing_and_works_again_once_there_is_room",
    "law_12_events_that_end_no_lease_are_bounded_in_the_file_too",
    "processes::",
];

/// Optimising a change takes longer than its tests take without.
const UNOPTIMISED: [&str; 2] = [
    "--config=profile.test.package.leasehold-core.opt-level=0",
    "--config=profile.test.package.leasehold-project-rules.opt-level=0",
];

/// A change can make a test collect things without end: one took all of the machine's memory before its time was up, and the
/// kernel ended it. With 4 GiB of addresses, many times what the tests need, such a test fails by itself.
const LIMITED: &str =
    r#"--config=target.'cfg(unix)'.runner=["sh", "-c", 'ulimit -v 4194304; exec "$0" "$@"']"#;

/// Lines of the store's manifest that make its tests link PostgreSQL's and Google's clients, and what the copy has instead.
/// With them, one change takes three times as long.
const LEAN: [(&str, &str); 3] = [
    ("\n[dev-dependencies]\ngcloud-sdk = { workspace = true }\n", "\n[dev-dependencies]\n"),
    ("\n[dev-dependencies]\njiff = { workspace = true }\n", "\n[dev-dependencies]\n"),
    (
        r#"leasehold-store = { path = ".", features = ["conformance", "firestore"] }"#,
        r#"leasehold-store = { path = ".", default-features = false, features = ["conformance", "embedded"] }"#,
    ),
];

/// What became of the changes of one part.
#[derive(Default)]
struct Outcome {
    caught: usize,
    /// Of these, the tests did not end in time. On a machine that is busy with something else, that says little.
    hung: usize,
    /// Changes that do not compile say nothing.
    unviable: usize,
    missed: Vec<String>,
}

impl Outcome {
    fn tried(&self) -> usize {
        self.caught + self.missed.len()
    }

    fn add(&mut self, name: &str, verdict: Verdict) {
        match verdict {
            Verdict::Noticed => self.caught += 1,
            Verdict::Hung => {
                self.caught += 1;
                self.hung += 1;
            }
            Verdict::DoesNotCompile => self.unviable += 1,
            Verdict::Missed => self.missed.push(name.to_owned()),
        }
    }
}

/// A part, its changes in the order in which they are tried, and what became of those that were.
struct Course {
    part: &'static Part,
    mutator: Mutator,
    verdicts: Verdicts,
    waiting: VecDeque<String>,
    outcome: Outcome,
}

impl Course {
    fn new(
        workspace: &Workspace,
        part: &'static Part,
        program: &Path,
        seed: u64,
        options: &Options,
    ) -> Result<Self> {
        let mutator = Mutator::new(workspace, part, program, options.seconds)?;
        let mut verdicts = Verdicts::open(workspace, part.package, &mutator.folder.join("verdicts.txt"))?;
        if options.again {
            verdicts.forget(|verdict| matches!(verdict, Verdict::Missed | Verdict::Hung));
        }
        let waiting = shuffle(mutator.list()?, seed).into();
        Ok(Self { part, mutator, verdicts, waiting, outcome: Outcome::default() })
    }

    /// Goes on until `count` changes that compile were tried, there are no more, or time is up.
    fn try_until(&mut self, count: usize, deadline: Instant) -> Result<()> {
        while self.outcome.tried() < count && !self.waiting.is_empty() {
            self.take_known(count);
            let some = self.next_unknown(count);
            if some.is_empty() {
                continue;
            }
            if Instant::now() > deadline {
                println!("   {}: out of time", self.part.name);
                return Ok(());
            }
            for (name, verdict) in self.mutator.try_some(&some)? {
                self.verdicts.keep(&name, verdict)?;
            }
            self.take_known(count);
            println!(
                "   {}: {} of {count} tried, {} noticed",
                self.part.name,
                self.outcome.tried(),
                self.outcome.caught
            );
        }
        Ok(())
    }

    /// Counts the next changes as long as it is known what became of them.
    fn take_known(&mut self, count: usize) {
        while self.outcome.tried() < count {
            let Some(name) = self.waiting.front() else { return };
            let Some(verdict) = self.verdicts.of(name) else { return };
            self.outcome.add(name, verdict);
            self.waiting.pop_front();
        }
    }

    /// The next changes that were not tried yet.
    fn next_unknown(&self, count: usize) -> Vec<String> {
        let needed = (count - self.outcome.tried()).min(AT_A_TIME);
        let unknown = self.waiting.iter().take(needed).filter(|name| self.verdicts.of(name).is_none());
        unknown.cloned().collect()
    }
}

/// Draws changes and tries them; answers whether enough were noticed, and every other one has its reason.
pub fn run(workspace: &Workspace, options: &Options) -> Result<bool> {
    let Some(program) = tools::built_program(workspace, "cargo-mutants", CARGO_MUTANTS)? else {
        anyhow::bail!("cargo-mutants cannot be installed; its output is above");
    };
    let seed = options.seed.unwrap_or_else(fresh_seed);
    println!(
        "seed {seed}; `cargo xtask mutants --seed {seed} --count {}` draws the same changes, and goes on if it was cut",
        options.count
    );
    let deadline = Instant::now() + Duration::from_secs(options.minutes * 60);
    let parts = PARTS.iter().filter(|part| options.part.as_ref().is_none_or(|name| name == part.name));
    let mut courses: Vec<Course> =
        parts.map(|part| Course::new(workspace, part, &program, seed, options)).collect::<Result<_>>()?;
    ensure!(!courses.is_empty(), "there is no such part; the parts are rules, keeper, section and writer");
    let share = options.count.div_ceil(courses.len());
    for course in &mut courses {
        course.try_until(share, deadline)?;
    }
    make_up(&mut courses, options.count, deadline)?;
    let outcomes: Vec<_> = courses.into_iter().map(|course| (course.part, course.outcome)).collect();
    show(&outcomes);
    judge(&outcomes, &reasons(workspace)?)
}

/// What a part is short of, because it has no more changes that compile, the others try in its place.
fn make_up(courses: &mut [Course], count: usize, deadline: Instant) -> Result<()> {
    let tried: usize = courses.iter().map(|course| course.outcome.tried()).sum();
    let mut short_of = count.saturating_sub(tried);
    for course in courses {
        let before = course.outcome.tried();
        course.try_until(before + short_of, deadline)?;
        short_of -= course.outcome.tried() - before;
    }
    Ok(())
}

/// Another one each time.
fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs() % 1_000_000)
}

/// The changes in an order that is the same for the same seed.
fn shuffle(mut all: Vec<String>, seed: u64) -> Vec<String> {
    let mut state = seed;
    for at in (1..all.len()).rev() {
        let other = usize::try_from(split_mix(&mut state) % (at as u64 + 1)).unwrap_or(at);
        all.swap(at, other);
    }
    all
}

/// The generator SplitMix64: small, and good enough to shuffle.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// cargo-mutants in a copy of the workspace, which it changes in place: what was built for one change serves the next.
struct Mutator {
    part: &'static Part,
    program: PathBuf,
    /// The copy, what is built from it, and the verdicts. Each package has its own, so that two can be tried at a time.
    folder: PathBuf,
    /// After how long tests are taken for hanging.
    seconds: u64,
    scratch: Option<Scratch>,
}

impl Mutator {
    fn new(workspace: &Workspace, part: &'static Part, program: &Path, seconds: u64) -> Result<Self> {
        let folder = workspace.target_directory()?.join("mutants").join(part.package);
        copy(workspace, part.package, &folder.join("tree"))?;
        Ok(Self { part, program: program.to_owned(), folder, seconds, scratch: Scratch::new()? })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["mutants", "--colors", "never", "--package", self.part.package]);
        command.current_dir(self.folder.join("tree"));
        for file in self.part.files {
            command.arg("--file").arg(format!("crates/{}/src/{file}", self.part.package));
        }
        // A folder of its own: the tests of the workspace would otherwise be built anew after every run.
        command.env("CARGO_TARGET_DIR", self.folder.join("build"));
        command.env("LEASEHOLD_CASES", self.part.cases).env("CARGO_PROFILE_TEST_DEBUG", "none");
        if let Some(scratch) = &self.scratch {
            command.env("TMPDIR", scratch.path());
        }
        command
    }

    /// Every change that can be made to the part, as cargo-mutants names it.
    fn list(&self) -> Result<Vec<String>> {
        let output = self.command().arg("--list").output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let list = String::from_utf8(output.stdout)?;
        Ok(list.lines().map(ToOwned::to_owned).collect())
    }

    fn try_some(&self, some: &[String]) -> Result<Vec<(String, Verdict)>> {
        let results = self.folder.join(format!("results-{}", self.part.name));
        leave_out(&results, &self.list()?, some)?;
        let mut command = self.command();
        command.args(["--in-place", "--baseline", "skip", "--no-shuffle"]);
        command.arg("--timeout").arg(self.seconds.to_string());
        command.arg("--output").arg(&results);
        for argument in UNOPTIMISED.into_iter().chain([LIMITED]) {
            command.args(["--cargo-arg", argument]);
        }
        for test in self.part.tests {
            command.args(["--test-package", test]);
        }
        command.arg("--iterate").arg("--").args(self.part.arguments).arg("--");
        command.args(SLOW.iter().flat_map(|name| ["--skip", name]));
        let finished = tools::watch_as(
            &format!("cargo-mutants: {} changes to the {}", some.len(), self.part.name),
            &mut command,
        )?;
        let verdicts = read_results(&results.join("mutants.out"), some);
        ensure!(
            verdicts.len() == some.len(),
            "{} changes were asked for and {} made:\n{}",
            some.len(),
            verdicts.len(),
            finished.output
        );
        Ok(verdicts)
    }
}

/// Copies the workspace, without what the tests of the writer can do without.
fn copy(workspace: &Workspace, package: &str, tree: &Path) -> Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    for file in workspace.files()? {
        let (from, to) = (workspace.root.join(&file), tree.join(&file));
        if from.is_file() {
            fs::create_dir_all(to.parent().context("a file is in no folder")?)?;
            fs::copy(&from, &to)?;
            // With its time: what was built from the last copy is not built again, but for the package that was changed.
            if !file.starts_with(&format!("crates/{package}/")) {
                fs::File::options().write(true).open(&to)?.set_modified(fs::metadata(&from)?.modified()?)?;
            }
        }
    }
    let manifest = tree.join("crates/leasehold-store/Cargo.toml");
    Ok(fs::write(&manifest, lean(&fs::read_to_string(&manifest)?)?)?)
}

/// The store's manifest without the clients of other databases.
fn lean(manifest: &str) -> Result<String> {
    LEAN.iter().try_fold(manifest.to_owned(), |text, (from, to)| {
        ensure!(text.contains(from), "the manifest of leasehold-store has no {from:?} any more");
        Ok(text.replace(from, to))
    })
}

/// What cargo-mutants wrote about the changes that it was asked for.
fn read_results(folder: &Path, asked: &[String]) -> Vec<(String, Verdict)> {
    let kinds = [
        ("caught.txt", Verdict::Noticed),
        ("timeout.txt", Verdict::Hung),
        ("unviable.txt", Verdict::DoesNotCompile),
        ("missed.txt", Verdict::Missed),
    ];
    let of = |(file, verdict): (&str, Verdict)| {
        let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
        let found = asked.iter().filter(|name| text.lines().any(|line| line == *name));
        found.map(|name| (name.clone(), verdict)).collect::<Vec<_>>()
    };
    kinds.into_iter().flat_map(of).collect()
}

/// Lets cargo-mutants leave out all changes but those that are asked for: `--iterate` leaves out what a run before has caught.
/// Its other filters do not look at changes to the fields of a struct.
fn leave_out(results: &Path, all: &[String], asked: &[String]) -> Result<()> {
    let folder = results.join("mutants.out");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let others = all.iter().filter(|name| !asked.contains(name));
    Ok(fs::write(folder.join("caught.txt"), others.map(|name| format!("{name}\n")).collect::<String>())?)
}

fn show(outcomes: &[(&Part, Outcome)]) {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "part",
        "tried",
        "noticed",
        "of these by hanging",
        "not noticed",
        "do not compile",
    ]);
    for (part, outcome) in outcomes {
        let counts = [outcome.tried(), outcome.caught, outcome.hung, outcome.missed.len(), outcome.unviable];
        table.add_row(std::iter::once(part.name.to_owned()).chain(counts.map(|count| count.to_string())));
    }
    println!("{table}");
}

/// The changes that are known to have no consequence: what is changed, and why no test can notice it.
type Reasons = Vec<(String, String)>;

fn reasons(workspace: &Workspace) -> Result<Reasons> {
    let path = workspace.root.join("xtask/chores/survivors.txt");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(parse_reasons(&text))
}

/// A line is a change, as cargo-mutants names it but without line and column, ` | ` and the reason.
fn parse_reasons(text: &str) -> Reasons {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(" | "))
        .map(|(change, reason)| (change.to_owned(), reason.to_owned()))
        .collect()
}

/// `path:line:column: change` without the place, which every edit above it moves.
fn without_place(name: &str) -> String {
    let mut parts = name.splitn(4, ':');
    let path = parts.next().unwrap_or_default();
    format!("{path}:{}", parts.nth(2).unwrap_or_default())
}

fn judge(outcomes: &[(&Part, Outcome)], reasons: &Reasons) -> Result<bool> {
    let (mut tried, mut caught, mut unexplained) = (0, 0, 0);
    for (_, outcome) in outcomes {
        tried += outcome.tried();
        caught += outcome.caught;
        for missed in &outcome.missed {
            let change = without_place(missed);
            let reason =
                reasons.iter().find(|(known, _)| *known == change).map(|(_, reason)| reason.as_str());
            unexplained += usize::from(reason.is_none());
            println!(
                "   not noticed: {missed}\n      {}",
                reason.unwrap_or("NO REASON: write a test, or a line in survivors.txt")
            );
        }
    }
    ensure!(tried > 0, "nothing was tried");
    println!(
        "{caught} of {tried} changes noticed, {} %; {unexplained} without a reason",
        caught * 100 / tried
    );
    Ok(caught * 100 >= tried * BAR && unexplained == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_changes_again() {
        let all = || (0..100).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(shuffle(all(), 7), shuffle(all(), 7));
        assert_ne!(shuffle(all(), 7), shuffle(all(), 8));
        assert_eq!(shuffle(all(), 7).len(), 100);
    }

    #[test]
    fn only_what_is_asked_for_is_tried() {
        let folder = std::env::temp_dir().join(format!("leasehold-mutants-{}", std::process::id()));
        let all = ["a", "b", "c"].map(str::to_owned);
        for (asked, left_out) in [(&all[1..2], "a\nc\n"), (&all[..], "")] {
            leave_out(&folder, &all, asked).unwrap();
            assert_eq!(fs::read_to_string(folder.join("mutants.out/caught.txt")).unwrap(), left_out);
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_copy_of_the_store_has_no_other_databases() {
        let manifest = include_str!("../../../crates/leasehold-store/Cargo.toml");
        let lean_one = lean(manifest).unwrap();
        let (_, tests) = lean_one.split_once("[dev-dependencies]").unwrap();
        assert!(!tests.contains("gcloud") && !tests.contains("firestore"), "{tests}");
        assert!(lean("[dev-dependencies]").is_err());
    }

    #[test]
    fn a_reason_is_found_wherever_its_line_moved() {
        let reasons = parse_reasons("# comment\nsrc/a.rs: replace > with >= in f | both are right\n");
        let missed = |name: &str| {
            vec![(&PARTS[0], Outcome { caught: 9, missed: vec![name.into()], ..Outcome::default() })]
        };
        assert!(judge(&missed("src/a.rs:3:4: replace > with >= in f"), &reasons).unwrap());
        assert!(!judge(&missed("src/a.rs:3:4: replace > with == in f"), &reasons).unwrap());
    }

    #[test]
    fn fewer_than_the_bar_fail_even_with_reasons() {
        let reasons = parse_reasons("a: b | c");
        let outcome = Outcome {
            caught: 8,
            unviable: 3,
            missed: vec!["a:1:1: b".into(), "a:2:1: b".into()],
            ..Outcome::default()
        };
        assert!(!judge(&[(&PARTS[0], outcome)], &reasons).unwrap());
    }
}
