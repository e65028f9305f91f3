//! `cargo xtask mutants`: changes the rules in hundreds of small ways, one at a time, and asks whether a test notices.
//!
//! cargo-mutants makes the changes, in a copy of the workspace. Which ones is drawn by a seed that is printed, evenly over
//! four parts. A change that no test notices is either a hole in the tests or a change without a consequence: `survivors.txt`
//! gives the reasons for the latter.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::{Table, presets};

use crate::scratch::Scratch;
use crate::tools::{self, Workspace};

const CARGO_MUTANTS: &str = "27.1.0";

/// Seconds for the tests of one change: several times what they take unchanged. A change that makes them hang is noticed.
const SECONDS: u64 = 120;

/// How many cases of each property are tried for one change: fewer than in the tests, since there are hundreds of changes.
const CASES: &str = "64";

/// How many changes are tried at a time; between them the time limit is looked at.
const AT_A_TIME: usize = 20;

/// The smallest share that tests must notice, in per cent.
const BAR: usize = 90;

const COUNT: usize = 320;
const MINUTES: u64 = 240;

/// How many, which and how long.
#[derive(Args)]
pub struct Options {
    /// How many changes to try, over all parts
    #[arg(long, value_name = "N", default_value_t = COUNT)]
    count: usize,
    /// Draw the same changes again; by default others each time
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Try no more after this many minutes
    #[arg(long, value_name = "N", default_value_t = MINUTES)]
    minutes: u64,
    /// Only this part: rules, keeper, section or writer
    #[arg(long, value_name = "PART")]
    part: Option<String>,
    /// Take tests for hanging after this many seconds; a busy machine needs more
    #[arg(long, value_name = "N", default_value_t = SECONDS)]
    seconds: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { count: COUNT, seed: None, minutes: MINUTES, part: None, seconds: SECONDS }
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
}

const PARTS: [Part; 4] = [
    Part {
        name: "rules",
        package: "leasehold-core",
        files: &["lease.rs", "job.rs"],
        tests: &["leasehold-core"],
        arguments: &["--lib", "--test", "rules"],
    },
    Part {
        name: "keeper",
        package: "leasehold-core",
        files: &["holder.rs", "backoff.rs"],
        tests: &["leasehold-core"],
        arguments: &["--lib", "--test", "rules"],
    },
    Part {
        name: "section",
        package: "leasehold-project-rules",
        files: &["guarded.rs", "section.rs", "record.rs"],
        tests: &["leasehold-project-rules"],
        arguments: &["--lib", "--test", "rules"],
    },
    Part {
        name: "writer",
        package: "leasehold-store",
        files: &["writer.rs", "resident.rs", "changes.rs", "embedded/epoch.rs", "embedded/upkeep.rs"],
        tests: &["leasehold-store"],
        arguments: &["--features", "embedded,conformance", "--lib", "--test", "stores"],
    },
];

/// Tests that are left out: each takes longer than all others together, and they are about SQLite's file, full disks,
/// killed processes and other databases. A change that only they notice counts as missed.
const SLOW: [&str; 6] = [
    "a_flipped_byte_is_noticed_or_harmless",
    "a_full_disk_loses_nothing_and_works_again_once_there_is_room",
    "law_12_events_that_end_no_lease_are_bounded_in_the_file_too",
    "processes::",
    "postgres",
    "firestore",
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

    fn add(&mut self, other: Self) {
        self.caught += other.caught;
        self.hung += other.hung;
        self.unviable += other.unviable;
        self.missed.extend(other.missed);
    }
}

/// Draws changes and tries them; answers whether enough were noticed, and every other one has its reason.
pub fn run(workspace: &Workspace, options: &Options) -> Result<bool> {
    let Some(program) = tools::built_program(workspace, "cargo-mutants", CARGO_MUTANTS)? else {
        anyhow::bail!("cargo-mutants cannot be installed; its output is above");
    };
    let seed = options.seed.unwrap_or_else(fresh_seed);
    println!(
        "seed {seed}; `cargo xtask mutants --seed {seed} --count {}` draws the same changes",
        options.count
    );
    let mutator = Mutator::new(workspace, program, options.seconds)?;
    let deadline = Instant::now() + Duration::from_secs(options.minutes * 60);
    let parts: Vec<&Part> =
        PARTS.iter().filter(|part| options.part.as_ref().is_none_or(|name| name == part.name)).collect();
    ensure!(!parts.is_empty(), "there is no such part; the parts are rules, keeper, section and writer");
    let share = options.count.div_ceil(parts.len());
    let mut outcomes = Vec::new();
    for part in parts {
        let drawn = draw(mutator.list(part)?, share, seed);
        outcomes.push((part, mutator.try_all(part, &drawn, deadline)?));
    }
    show(&outcomes);
    judge(&outcomes, &reasons(workspace)?)
}

/// Another one each time.
fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs() % 1_000_000)
}

/// `count` of the changes, the same for the same seed.
fn draw(mut all: Vec<String>, count: usize, seed: u64) -> Vec<String> {
    let mut state = seed;
    for at in (1..all.len()).rev() {
        let other = usize::try_from(split_mix(&mut state) % (at as u64 + 1)).unwrap_or(at);
        all.swap(at, other);
    }
    all.truncate(count);
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
    program: PathBuf,
    folder: PathBuf,
    /// After how long tests are taken for hanging.
    seconds: u64,
    scratch: Option<Scratch>,
}

impl Mutator {
    fn new(workspace: &Workspace, program: PathBuf, seconds: u64) -> Result<Self> {
        let folder = workspace.target_directory()?.join("mutants");
        let tree = folder.join("tree");
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        for file in workspace.files()? {
            let (from, to) = (workspace.root.join(&file), tree.join(&file));
            if from.is_file() {
                fs::create_dir_all(to.parent().context("a file is in no folder")?)?;
                fs::copy(from, to)?;
            }
        }
        Ok(Self { program, folder, seconds, scratch: Scratch::new()? })
    }

    fn command(&self, part: &Part) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["mutants", "--colors", "never", "--package", part.package]);
        command.current_dir(self.folder.join("tree"));
        for file in part.files {
            command.arg("--file").arg(format!("crates/{}/src/{file}", part.package));
        }
        // A folder of its own: the tests of the workspace would otherwise be built anew after every run.
        command.env("CARGO_TARGET_DIR", self.folder.join("build"));
        command.env("LEASEHOLD_CASES", CASES).env("CARGO_PROFILE_TEST_DEBUG", "none");
        if let Some(scratch) = &self.scratch {
            command.env("TMPDIR", scratch.path());
        }
        command
    }

    /// Every change that can be made to a part, as cargo-mutants names it.
    fn list(&self, part: &Part) -> Result<Vec<String>> {
        let output = self.command(part).arg("--list").output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let list = String::from_utf8(output.stdout)?;
        Ok(list.lines().map(ToOwned::to_owned).collect())
    }

    fn try_all(&self, part: &Part, drawn: &[String], deadline: Instant) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for some in drawn.chunks(AT_A_TIME) {
            if Instant::now() > deadline {
                println!("   {}: out of time", part.name);
                break;
            }
            outcome.add(self.try_some(part, some)?);
            println!("   {}: {} of {} noticed so far", part.name, outcome.caught, outcome.tried());
        }
        Ok(outcome)
    }

    fn try_some(&self, part: &Part, some: &[String]) -> Result<Outcome> {
        let results = self.folder.join(format!("results-{}", part.name));
        let mut command = self.command(part);
        command.args(["--in-place", "--baseline", "skip", "--no-shuffle"]);
        command.arg("--timeout").arg(self.seconds.to_string());
        command.arg("--output").arg(&results);
        for test in part.tests {
            command.args(["--test-package", test]);
        }
        for name in some {
            command.arg("--re").arg(exactly(name));
        }
        command.arg("--").args(part.arguments).arg("--");
        command.args(SLOW.iter().flat_map(|name| ["--skip", name]));
        let finished = tools::watch(&mut command)?;
        let results = results.join("mutants.out");
        // It also tries changes outside of functions, whatever it was asked for.
        let lines = |name: &str| -> Vec<String> {
            let text = fs::read_to_string(results.join(name)).unwrap_or_default();
            some.iter().filter(|asked| text.lines().any(|line| line == *asked)).cloned().collect()
        };
        let hung = lines("timeout.txt").len();
        let outcome = Outcome {
            caught: lines("caught.txt").len() + hung,
            hung,
            unviable: lines("unviable.txt").len(),
            missed: lines("missed.txt"),
        };
        let all = outcome.tried() + outcome.unviable;
        ensure!(
            all == some.len(),
            "{} changes were asked for and {all} made:\n{}",
            some.len(),
            finished.output
        );
        Ok(outcome)
    }
}

/// A regular expression for one name. Only what is special is escaped: `\<` and `\>` would mean the ends of words.
fn exactly(name: &str) -> String {
    let special = |c: char| r".+*?()|[]{}^$\".contains(c);
    let escaped: String =
        name.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect();
    format!("^{escaped}$")
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
        assert_eq!(draw(all(), 10, 7), draw(all(), 10, 7));
        assert_ne!(draw(all(), 10, 7), draw(all(), 10, 8));
        assert_eq!(draw(all(), 200, 7).len(), 100);
    }

    #[test]
    fn a_name_is_matched_as_it_is() {
        assert_eq!(exactly("a.rs:1:2: replace > with f(*)"), r"^a\.rs:1:2: replace > with f\(\*\)$");
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
