//! `cargo xtask tidy`: the house rules that the compiler does not know, checked over the files git knows.
//!
//! A rule is a function from the files to the problems it finds, with a test that shows it biting. The forbidden words
//! are put together from parts here, so that this file may be checked like any other.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use crate::tally::Report;
use crate::tools::{self, Workspace};

/// A function should fit on a screen.
const LONGEST_FUNCTION: usize = 70;

/// Folders that exist on one machine only.
const MACHINE_FOLDERS: [&str; 4] = ["work", "root", "home", "farm"];

/// Registries have mirrors: which one is used is up to the machine.
const REGISTRY_HOSTS: [&str; 4] = [
    concat!("static.", "crates.io"),
    concat!("registry.", "npmjs.org"),
    concat!("deb.", "debian.org"),
    concat!("py", "pi.org"),
];

/// What is left in code that is not finished.
const UNFINISHED: [&str; 4] =
    [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("db", "g!("), concat!("#[", "ignore")];

/// The crates without a clock, randomness or IO.
const PURE: [&str; 2] = ["crates/leasehold-core/src/", "crates/leasehold-project-rules/src/"];

/// The ways in which time and randomness would creep into the rules.
const IMPURE: [&str; 4] = ["SystemTime", "Instant::now", "thread::sleep", "rand::"];

/// Where waits between attempts are made.
const RETRY_POLICIES: [&str; 2] =
    ["crates/leasehold-core/src/backoff.rs", "crates/leasehold-project-rules/src/"];

/// How they are made.
const BACKOFF: [&str; 3] = [concat!("Backoff", " {"), concat!("Backoff", "::"), concat!("RetryPolicy", " {")];

/// What each crate may depend on: dependencies point one way. A new crate gets its line here.
const MAY_DEPEND_ON: [(&str, &[&str]); 10] = [
    ("leasehold-core", &[]),
    ("leasehold-store", &["leasehold-core"]),
    ("leasehold-server", &["leasehold-core", "leasehold-store"]),
    // The server only in its tests, which talk to the real one.
    ("leasehold-client", &["leasehold-core", "leasehold-store", "leasehold-server"]),
    ("leasehold-project-rules", &["leasehold-core"]),
    ("leasehold-project", &["leasehold-core", "leasehold-project-rules"]),
    (
        "leasehold-cli",
        &["leasehold-core", "leasehold-store", "leasehold-server", "leasehold-client", "leasehold-project"],
    ),
    ("leasehold-example-worker", &["leasehold-core", "leasehold-store", "leasehold-client"]),
    ("leasehold-wasm", &["leasehold-core", "leasehold-project-rules"]),
    // Nothing may depend on this one, so it may see everything.
    (
        "leasehold-sim",
        &[
            "leasehold-core",
            "leasehold-store",
            "leasehold-server",
            "leasehold-client",
            "leasehold-project-rules",
            "leasehold-project",
            "leasehold-cli",
        ],
    ),
];

/// What only a store needs.
const DATABASES: [&str; 5] =
    ["rusqlite", "libsqlite3-sys", "tokio-postgres", "deadpool-postgres", "gcloud-sdk"];

/// A file that git knows. The text is empty when it is not text.
struct File {
    path: String,
    text: String,
}

type Rule = fn(&[File]) -> Vec<String>;

const RULES: &[Rule] = &[
    no_machine_paths,
    no_registry_hosts,
    nothing_unfinished,
    functions_fit_on_a_screen,
    modules_say_what_they_are,
    rules_are_pure,
    one_retry_policy,
    serde_stays_in_wire,
    links_lead_somewhere,
    dependencies_point_one_way,
];

/// Checks every rule.
pub fn stage(workspace: &Workspace) -> Result<Report> {
    let files = read_files(&workspace.root, workspace.files()?);
    let mut problems: Vec<String> = RULES.iter().flat_map(|rule| rule(&files)).collect();
    problems.extend(databases_of_an_http_client(&dependencies_of_an_http_client(workspace)?));
    problems.iter().for_each(|problem| println!("{problem}"));
    println!("   {} files, {} rules, {} problems", files.len(), RULES.len() + 1, problems.len());
    Ok(Report::check(problems.is_empty()))
}

/// What a program builds that only talks to a server.
fn dependencies_of_an_http_client(workspace: &Workspace) -> Result<String> {
    let args = ["tree", "--package", "leasehold-client", "--no-default-features", "--features", "http"];
    let finished =
        tools::watch(workspace.cargo(&args).args(["--edges", "normal,build", "--prefix", "none"]))?;
    anyhow::ensure!(finished.ok, "cargo tree failed: {}", finished.output);
    Ok(finished.output)
}

/// Who only talks HTTP builds no database.
fn databases_of_an_http_client(tree: &str) -> Vec<String> {
    let is_there = |name: &str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    let says = |what: &str| format!("crates/leasehold-client/Cargo.toml: feature `http` {what}");
    // Otherwise the tree would be that of something else, and nothing would ever be found in it.
    let talks_http = is_there("reqwest");
    let missing = (!talks_http).then(|| says("brings no HTTP client"));
    let found = DATABASES.iter().filter(|name| is_there(name));
    missing.into_iter().chain(found.map(|name| says(&format!("alone builds {name}, a database")))).collect()
}

/// A file that git tracks but that is deleted, or is a link to nowhere, cannot be read and is left out.
fn read_files(root: &Path, paths: Vec<String>) -> Vec<File> {
    let read = |path: String| {
        let bytes = std::fs::read(root.join(&path)).ok()?;
        Some(File { path, text: String::from_utf8(bytes).unwrap_or_default() })
    };
    paths.into_iter().filter_map(read).collect()
}

fn no_machine_paths(files: &[File]) -> Vec<String> {
    let folders = MACHINE_FOLDERS.map(|folder| format!("/{folder}/"));
    let found = |line: &str| folders.iter().find(|folder| starts_a_path(line, folder)).cloned();
    in_lines(files, |line| found(line).map(|folder| format!("{folder} is a folder of one machine only")))
}

/// Whether an absolute path begins with this folder somewhere in the line; inside of a relative path it is harmless.
fn starts_a_path(line: &str, folder: &str) -> bool {
    let goes_on = |before: &str| before.ends_with(|c: char| c.is_alphanumeric() || "._-~*})".contains(c));
    line.match_indices(folder).any(|(at, _)| !line.get(..at).is_some_and(goes_on))
}

fn no_registry_hosts(files: &[File]) -> Vec<String> {
    let found = |line: &str| REGISTRY_HOSTS.iter().find(|host| line.contains(*host)).copied();
    in_lines(files, |line| found(line).map(|host| format!("names the registry host {host}")))
}

fn nothing_unfinished(files: &[File]) -> Vec<String> {
    let found = |line: &str| UNFINISHED.iter().find(|mark| line.contains(*mark)).copied();
    in_lines(rust_files(files), |line| found(line).map(|mark| format!("{mark} is for unfinished code")))
}

fn functions_fit_on_a_screen(files: &[File]) -> Vec<String> {
    product_files(files).flat_map(long_functions).collect()
}

fn long_functions(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().take_while(|line| *line != "mod tests {").collect();
    let measured = lines.iter().enumerate().filter(|(_, line)| is_function(line));
    let lengths = measured.map(|(at, _)| (at, function_length(lines.get(at..).unwrap_or_default())));
    let long = lengths.filter(|(_, length)| *length > LONGEST_FUNCTION);
    long.map(|(at, length)| problem(file, at, &format!("{length} lines, the limit is {LONGEST_FUNCTION}")))
        .collect()
}

fn is_function(line: &str) -> bool {
    let before_the_name = line.trim_start().split("fn ").next().unwrap_or_default();
    let qualifier = |word: &str| {
        word.starts_with("pub") || word.ends_with(')') || word.starts_with('"') || is_function_keyword(word)
    };
    line.contains("fn ") && before_the_name.split_whitespace().all(qualifier)
}

fn is_function_keyword(word: &str) -> bool {
    ["const", "async", "unsafe", "extern", "default"].contains(&word)
}

/// The code is formatted, so a function ends at the first line that is indented like its start and closes it.
fn function_length(from: &[&str]) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let depth = from.first().map(|line| indent(line)).unwrap_or_default();
    let closes = |line: &&str| indent(line) == depth && (line.ends_with('}') || line.ends_with(';'));
    from.iter().position(closes).map_or(from.len(), |last| last + 1)
}

fn modules_say_what_they_are(files: &[File]) -> Vec<String> {
    let silent = product_files(files).filter(|file| !file.text.starts_with("//! "));
    silent
        .map(|file| problem(file, 0, "opens without a `//!` paragraph: what it is, what it must never do"))
        .collect()
}

fn rules_are_pure(files: &[File]) -> Vec<String> {
    let rules = files.iter().filter(|file| PURE.iter().any(|folder| file.path.starts_with(folder)));
    let found = |line: &str| IMPURE.iter().find(|word| has_word(line, word)).copied();
    in_lines(rules, |line| {
        found(line).map(|word| format!("{word}: time and randomness are arguments of the rules"))
    })
}

/// Whether the line has this word, and not only as the end of a longer one.
/// Waits between attempts are made in one place, and beside it those that the sources of the project lock prescribe.
fn one_retry_policy(files: &[File]) -> Vec<String> {
    let elsewhere =
        product_files(files).filter(|file| !RETRY_POLICIES.iter().any(|path| file.path.starts_with(path)));
    in_lines(elsewhere, |line| {
        let makes_one = BACKOFF.iter().any(|made| line.contains(made));
        makes_one.then(|| "waits between attempts are those of a RetryPolicy in backoff.rs".to_owned())
    })
}

fn has_word(line: &str, word: &str) -> bool {
    let longer = |before: &str| before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| !line.get(..at).is_some_and(longer))
}

fn serde_stays_in_wire(files: &[File]) -> Vec<String> {
    let is_pure = |file: &&File| {
        let within = PURE.iter().find_map(|folder| file.path.strip_prefix(folder));
        within.is_some_and(|path| !path.starts_with("wire"))
    };
    let others = files.iter().filter(is_pure);
    let uses = |line: &str| !line.trim_start().starts_with("//") && line.contains("erialize");
    in_lines(others, |line| {
        uses(line).then(|| "serde is for wire.rs and what is below it: every shape of JSON is there".into())
    })
}

fn links_lead_somewhere(files: &[File]) -> Vec<String> {
    let known = known_paths(files);
    let pages = files.iter().filter(|file| file.path.ends_with(".md"));
    pages.flat_map(|page| broken_links(page, &known)).collect()
}

/// All files, and all folders that have one.
fn known_paths(files: &[File]) -> BTreeSet<&Path> {
    files.iter().flat_map(|file| Path::new(&file.path).ancestors()).collect()
}

fn broken_links(page: &File, known: &BTreeSet<&Path>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut in_code = false;
    for (at, line) in page.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let links = if in_code { Vec::new() } else { relative_links(line) };
        let broken = links.iter().filter(|link| !leads_somewhere(&page.path, link, known));
        problems.extend(broken.map(|link| problem(page, at, &format!("the link to {link} leads nowhere"))));
    }
    problems
}

/// The targets of `[text](target#part "title")` and `[name]: target` that stay in the repository.
fn relative_links(line: &str) -> Vec<String> {
    let prose: String = line.split('`').step_by(2).collect();
    let inline = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '#']).next());
    let named = prose.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let named = named.filter(|(name, _)| !name.starts_with('^'));
    let named = named.and_then(|(_, target)| target.split([' ', '#']).next());
    let stays =
        |target: &&str| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
    inline.chain(named).filter(stays).map(String::from).collect()
}

fn leads_somewhere(page: &str, link: &str, known: &BTreeSet<&Path>) -> bool {
    let mut path = Path::new(page).parent().map(Path::to_path_buf).unwrap_or_default();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." if path.pop() => {}
            ".." => return false,
            name => path.push(name),
        }
    }
    known.contains(path.as_path())
}

fn dependencies_point_one_way(files: &[File]) -> Vec<String> {
    files
        .iter()
        .filter_map(|file| Some((file, crate_of_manifest(&file.path)?)))
        .flat_map(wrong_edges)
        .collect()
}

fn crate_of_manifest(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")
}

fn wrong_edges((manifest, name): (&File, &str)) -> Vec<String> {
    let Some((_, allowed)) = MAY_DEPEND_ON.iter().find(|(known, _)| *known == name) else {
        return vec![problem(manifest, 0, &format!("say in xtask/src/tidy.rs what {name} may depend on"))];
    };
    let edges = edges(&manifest.text).into_iter();
    let wrong = edges.filter(|(_, to)| *to != name && !allowed.contains(to));
    wrong.map(|(at, to)| problem(manifest, at, &format!("{name} must not depend on {to}"))).collect()
}

/// The crates of this workspace that a manifest names in its dependencies, of whatever kind, with their lines.
fn edges(manifest: &str) -> Vec<(usize, &str)> {
    let mut edges = Vec::new();
    let mut in_dependencies = false;
    for (at, line) in manifest.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        if line.starts_with('[') {
            in_dependencies = line.contains("dependencies");
        }
        if in_dependencies {
            let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
            edges.extend(words.filter(|word| word.starts_with("leasehold-")).map(|word| (at, word)));
        }
    }
    edges
}

fn rust_files(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.ends_with(".rs"))
}

/// The sources of the crates and of this program, without files that hold tests only.
fn product_files(files: &[File]) -> impl Iterator<Item = &File> {
    rust_files(files).filter(|file| {
        let in_source = file.path.starts_with("xtask/src/")
            || file.path.strip_prefix("crates/").is_some_and(|rest| rest.split('/').nth(1) == Some("src"));
        in_source && !file.path.ends_with("/tests.rs")
    })
}

/// The problems that can be seen in a single line.
fn in_lines<'a>(
    files: impl IntoIterator<Item = &'a File>,
    look: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let look = &look;
    let in_file = |file: &'a File| {
        let lines = file.text.lines().enumerate();
        lines.filter_map(move |(at, line)| look(line).map(|what| problem(file, at, &what)))
    };
    files.into_iter().flat_map(in_file).collect()
}

fn problem(file: &File, at: usize, what: &str) -> String {
    format!("{}:{}: {what}", file.path, at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rule: Rule, path: &str, text: &str) -> Vec<String> {
        rule(&[File { path: path.into(), text: text.into() }])
    }

    fn bites(rule: Rule, path: &str, text: &str) {
        assert_eq!(found(rule, path, text).len(), 1, "{path}: {text}");
    }

    fn accepts(rule: Rule, path: &str, text: &str) {
        assert_eq!(found(rule, path, text), [""; 0]);
    }

    #[test]
    fn a_database_below_an_http_client_is_found() {
        assert!(
            databases_of_an_http_client("leasehold-client v0.1.0\nreqwest v0.13.5\nhttp v1.4.0").is_empty()
        );
        assert_eq!(databases_of_an_http_client("reqwest v0.13.5\nrusqlite v0.38.0 (*)").len(), 1);
        assert_eq!(databases_of_an_http_client("another-program v0.1.0").len(), 1, "nothing that talks HTTP");
    }

    #[test]
    fn machine_paths_are_found_and_relative_ones_are_not() {
        for folder in MACHINE_FOLDERS {
            bites(no_machine_paths, "README.md", &format!("see /{folder}/file"));
            bites(no_machine_paths, "a.rs", &format!("\"file:///{folder}/file\""));
            accepts(no_machine_paths, "a.sh", &format!("target/{folder}/x $DIR/{folder}/x ./{folder}/x"));
        }
    }

    #[test]
    fn registry_hosts_are_found_and_the_registry_may_be_named() {
        for host in REGISTRY_HOSTS {
            bites(no_registry_hosts, "notes.txt", &format!("from https://{host}/x"));
        }
        accepts(no_registry_hosts, "README.md", "published on crates.io and npm");
    }

    #[test]
    fn a_retry_policy_of_its_own_is_found() {
        for made in BACKOFF {
            bites(one_retry_policy, "crates/a/src/b.rs", &format!("const WAITS: Waits = {made}"));
            accepts(one_retry_policy, "crates/leasehold-core/src/backoff.rs", made);
            accepts(one_retry_policy, "crates/a/tests/all.rs", made);
        }
        let used = concat!("let mut retries = Retries::new(RetryPolicy", "::CALL, 0);");
        accepts(one_retry_policy, "crates/a/src/b.rs", used);
    }

    #[test]
    fn unfinished_code_is_found_in_rust_only() {
        for mark in UNFINISHED {
            bites(nothing_unfinished, "crates/a/tests/all.rs", &format!("    {mark}"));
            accepts(nothing_unfinished, "README.md", mark);
        }
    }

    fn function(start: &str, body_lines: usize) -> String {
        format!("impl A {{\n    {start} {{\n{}    }}\n}}\n", "        x();\n".repeat(body_lines))
    }

    #[test]
    fn a_function_of_71_lines_is_too_long() {
        let path = "crates/a/src/deep/er.rs";
        for start in
            ["fn f()", "pub(crate) async fn f()", "pub extern \"C\" fn f()", "pub(in crate::a) const fn f()"]
        {
            bites(functions_fit_on_a_screen, path, &function(start, 69));
            accepts(functions_fit_on_a_screen, path, &function(start, 68));
        }
    }

    #[test]
    fn a_long_function_is_found_where_it_starts() {
        let text = format!("fn one() -> u8 {{ 1 }}\n\n{}", function("fn f()", 69));
        let expected = ["crates/a/src/b.rs:4: 71 lines, the limit is 70"];
        assert_eq!(found(functions_fit_on_a_screen, "crates/a/src/b.rs", &text), expected);
    }

    #[test]
    fn a_declaration_without_a_body_and_a_long_test_are_not_long_functions() {
        let declarations = "    fn f(\n        &self,\n    ) -> u8;\n".repeat(30);
        accepts(functions_fit_on_a_screen, "crates/a/src/b.rs", &format!("trait A {{\n{declarations}}}\n"));
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}", function("fn f()", 80));
        accepts(functions_fit_on_a_screen, "crates/a/src/b.rs", &tests);
        accepts(functions_fit_on_a_screen, "crates/a/tests/b.rs", &function("fn f()", 80));
    }

    #[test]
    fn a_module_opens_with_a_paragraph() {
        bites(modules_say_what_they_are, "crates/a/src/b.rs", "use std::fmt;\n");
        bites(modules_say_what_they_are, "xtask/src/b.rs", "");
        accepts(modules_say_what_they_are, "crates/a/src/b.rs", "//! What it is.\n");
        accepts(modules_say_what_they_are, "crates/a/build.rs", "fn main() {}\n");
    }

    #[test]
    fn time_and_randomness_are_found_in_the_rules_only() {
        for word in IMPURE {
            for folder in PURE {
                bites(rules_are_pure, &format!("{folder}lease.rs"), &format!("    std::{word}();"));
            }
            accepts(rules_are_pure, "crates/leasehold-store/src/lib.rs", word);
        }
        accepts(rules_are_pure, "crates/leasehold-core/src/lease.rs", "operand::value()");
    }

    #[test]
    fn serde_is_found_outside_of_wire() {
        let derive = "#[derive(Clone, Serialize)]";
        bites(serde_stays_in_wire, "crates/leasehold-core/src/name.rs", derive);
        bites(
            serde_stays_in_wire,
            "crates/leasehold-core/src/name.rs",
            "impl<'de> Deserialize<'de> for Key {",
        );
        bites(serde_stays_in_wire, "crates/leasehold-project-rules/src/record.rs", derive);
        accepts(serde_stays_in_wire, "crates/leasehold-core/src/wire.rs", derive);
        accepts(serde_stays_in_wire, "crates/leasehold-project-rules/src/wire.rs", derive);
        accepts(serde_stays_in_wire, "crates/leasehold-core/src/name.rs", "/// Serialized in `wire`.");
    }

    fn found_in_page(text: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        links_lead_somewhere(&[file("docs/a/page.md", text), file("docs/b.md", ""), file("README.md", "")])
    }

    #[test]
    fn links_to_nowhere_are_found() {
        let broken =
            ["[x](c.md)", "![x](../x.png)", "[x](../../../README.md)", "[x]: gone.md", "[x](b.md \"title\")"];
        for text in broken {
            assert_eq!(found_in_page(text).len(), 1, "{text}");
        }
        assert_eq!(found_in_page("a\n[x](c.md)"), ["docs/a/page.md:2: the link to c.md leads nowhere"]);
    }

    #[test]
    fn links_that_lead_somewhere_or_elsewhere_are_fine() {
        let fine = "[x](../b.md#part) [`x`](page.md) [x](#part) [x](..) [x](https://example.org/c.md) [x](mailto:a@b)
`[x](c.md)`
[x]: ../../README.md
[^1]: a note
```
[x](c.md)
```";
        assert_eq!(found_in_page(fine), [""; 0]);
    }

    #[test]
    fn a_dependency_against_the_direction_is_found() {
        let manifest = |name: &str| format!("crates/{name}/Cargo.toml");
        let core = manifest("leasehold-core");
        bites(dependencies_point_one_way, &core, "[dependencies]\nleasehold-store = { workspace = true }");
        bites(dependencies_point_one_way, &core, "[target.'cfg(unix)'.dev-dependencies.leasehold-store]");
        let renamed = "[build-dependencies]\nx = { package = \"leasehold-cli\" }";
        bites(dependencies_point_one_way, &manifest("leasehold-client"), renamed);
        bites(dependencies_point_one_way, &manifest("leasehold-new"), "");
    }

    #[test]
    fn a_dependency_in_the_direction_is_fine() {
        let text = "[package]\nname = \"leasehold-store\"\n[dependencies]\nleasehold-core.workspace = true # not leasehold-cli";
        accepts(dependencies_point_one_way, "crates/leasehold-store/Cargo.toml", text);
        accepts(dependencies_point_one_way, "Cargo.toml", "[workspace.dependencies]\nleasehold-cli = \"1\"");
    }
}
