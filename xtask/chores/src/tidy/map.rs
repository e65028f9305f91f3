//! The absences that ARCHITECTURE.md states, as far as a program can check them.

use super::{File, in_lines, problem, product_files};

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

pub(super) fn rules_are_pure(files: &[File]) -> Vec<String> {
    let rules = files.iter().filter(|file| PURE.iter().any(|folder| file.path.starts_with(folder)));
    let found = |line: &str| IMPURE.iter().find(|word| has_word(line, word)).copied();
    in_lines(rules, |line| {
        found(line).map(|word| format!("{word}: time and randomness are arguments of the rules"))
    })
}

/// Whether the line has this word, and not only as the end of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let longer = |before: &str| before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| !line.get(..at).is_some_and(longer))
}

/// Waits between attempts are made in one place, and beside it those that the sources of the project lock prescribe.
pub(super) fn one_retry_policy(files: &[File]) -> Vec<String> {
    let elsewhere =
        product_files(files).filter(|file| !RETRY_POLICIES.iter().any(|path| file.path.starts_with(path)));
    in_lines(elsewhere, |line| {
        let makes_one = BACKOFF.iter().any(|made| line.contains(made));
        makes_one.then(|| "waits between attempts are those of a RetryPolicy in backoff.rs".to_owned())
    })
}

/// Where shapes of JSON, files and queries may be declared. Everything else takes and gives types of these files.
const SERDE: [&str; 19] = [
    "crates/leasehold-core/src/json.rs",
    "crates/leasehold-core/src/wire",
    "crates/leasehold-project-rules/src/wire",
    "crates/leasehold-project/src/draft.rs",
    "crates/leasehold-project/src/lock_file.rs",
    "crates/leasehold-project/src/request.rs",
    "crates/leasehold-server/src/audit.rs",
    "crates/leasehold-server/src/flags.rs",
    "crates/leasehold-server/src/tickets.rs",
    "crates/leasehold-server/src/pusher/between.rs",
    "crates/leasehold-server/src/pusher/message.rs",
    "crates/leasehold-server/src/routes/broadcast.rs",
    "crates/leasehold-server/src/routes/events.rs",
    "crates/leasehold-server/src/routes/lists.rs",
    "crates/leasehold-server/src/routes/sockets.rs",
    "crates/leasehold-server/src/watchers.rs",
    "crates/leasehold-cli/src/job.rs",
    "crates/leasehold-cli/src/logs.rs",
    "crates/leasehold-cli/src/serve/settings.rs",
];

pub(super) fn serde_stays_where_it_may_be(files: &[File]) -> Vec<String> {
    let crates = product_files(files).filter(|file| file.path.starts_with("crates/"));
    let (listed, others): (Vec<&File>, Vec<&File>) =
        crates.partition(|file| SERDE.iter().any(|place| file.path.starts_with(place)));
    let mut problems = in_lines(others, |line| {
        derives_serde(line)
            .then(|| "declares a shape of JSON; xtask/chores/src/tidy/map.rs lists where that may be".into())
    });
    let is_unused =
        |file: &&&File| SERDE.contains(&file.path.as_str()) && !file.text.lines().any(derives_serde);
    let unused = listed.iter().filter(is_unused);
    problems.extend(
        unused.map(|file| problem(file, 0, "declares no shape of JSON any more; take it off the list")),
    );
    problems
}

fn derives_serde(line: &str) -> bool {
    let line = line.trim_start();
    let derives = line.contains("derive(");
    let implements = line.starts_with("impl") && line.contains(" for ");
    let names = ["Serialize", "Deserialize"].iter().any(|name| {
        line.match_indices(name).any(|(at, _)| {
            let rest = line.get(at + name.len()..).unwrap_or_default();
            !rest.starts_with(|c: char| c.is_alphanumeric())
        })
    });
    !line.starts_with("//") && (derives || implements) && names
}

const SERVER: &str = "crates/leasehold-server/src/";
const ERRORS: &str = "crates/leasehold-server/src/error.rs";

/// The statuses that a route may name itself: those of success.
const SUCCESSES: [&str; 5] = ["OK", "CREATED", "ACCEPTED", "NO_CONTENT", "NOT_MODIFIED"];

/// Statuses and words of refusals are in `error.rs` alone.
pub(super) fn refusals_stay_in_error(files: &[File]) -> Vec<String> {
    let errors = files.iter().find(|file| file.path == ERRORS);
    let words: Vec<String> = errors.map(|file| code_words(&file.text)).unwrap_or_default();
    let server = product_files(files).filter(|file| file.path.starts_with(SERVER) && file.path != ERRORS);
    let mut problems = Vec::new();
    for file in server {
        let lines = file.text.lines().take_while(|line| *line != "mod tests {").enumerate();
        let code = lines.filter(|(_, line)| !line.trim_start().starts_with("//"));
        let found = code.filter_map(|(at, line)| Some((at, refusal_in(line, &words)?)));
        problems.extend(found.map(|(at, what)| {
            problem(
                file,
                at,
                &format!("{what} belongs to a refusal; error.rs alone knows those, as a `Code`"),
            )
        }));
    }
    problems
}

fn refusal_in(line: &str, words: &[String]) -> Option<String> {
    let after = |mark: &str| line.split(mark).skip(1).map(str::to_owned).collect::<Vec<_>>();
    let name =
        |rest: String| rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect::<String>();
    let constant = after("StatusCode::").into_iter().map(name);
    let constant = constant.filter(|name| !name.is_empty()).find(|name| !SUCCESSES.contains(&name.as_str()));
    let number = after("status = ").into_iter().find(|rest| rest.starts_with(['4', '5']));
    let number = number.map(|rest| rest.chars().take(3).collect());
    let word = words.iter().find(|word| line.contains(&format!("\"{word}\""))).cloned();
    constant.or(number).or(word)
}

/// The words of the codes that `error.rs` declares: `Code, STATUS, "word",`.
fn code_words(errors: &str) -> Vec<String> {
    let declared =
        errors.lines().skip_while(|line| !line.starts_with("codes! {")).take_while(|line| *line != "}");
    let words = declared.filter_map(|line| {
        let mut parts = line.trim().split(", ");
        let (_, _, word) = (parts.next()?, parts.next()?, parts.next()?);
        Some(word.trim_matches(['"', ',']).to_owned())
    });
    words.filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '_')).collect()
}

const ROUTES: &str = "crates/leasehold-server/src/routes/";

/// How a route reads a record, and how it changes one.
const READS: [&str; 3] = [concat!(".rea", "d("), concat!(".loo", "k("), concat!("JobCommand::Loo", "k")];
const CHANGES: [&str; 3] = [concat!(".appl", "y("), concat!(".apply_b", "y("), concat!(".apply_jo", "b(")];

/// Whose lease a command is about is decided in the store: a route that reads a record and then changes it would decide on
/// what was there before.
pub(super) fn routes_read_or_change(files: &[File]) -> Vec<String> {
    let routes = product_files(files).filter(|file| file.path.starts_with(ROUTES));
    let does_both = |body: &str| {
        READS.iter().any(|reads| body.contains(reads)) && CHANGES.iter().any(|changes| body.contains(changes))
    };
    let in_file = |file: &File| -> Vec<String> {
        let both = functions(&file.text).into_iter().filter(|(_, body)| does_both(body));
        let what = "reads a record and changes it; put what is compared into the command (decision 8)";
        both.map(|(at, _)| problem(file, at, what)).collect()
    };
    routes.flat_map(in_file).collect()
}

/// The functions of a file with the lines they begin in; whatever follows one, up to the next, counts as its body.
fn functions(text: &str) -> Vec<(usize, String)> {
    let mut functions: Vec<(usize, String)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        if has_word(code, "fn ") {
            functions.push((at, String::new()));
        }
        if let Some((_, body)) = functions.last_mut() {
            body.push_str(line);
            body.push('\n');
        }
    }
    functions
}

pub(super) fn dependencies_point_one_way(files: &[File]) -> Vec<String> {
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
        return vec![problem(
            manifest,
            0,
            &format!("say in xtask/chores/src/tidy/map.rs what {name} may depend on"),
        )];
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

/// The names by which code would get at the file of a project lock.
const LOCK_FILE: [&str; 3] = [concat!("lock_", "file"), concat!("lock", "file"), concat!("LOCK_", "FILE")];

/// Telemetry counts events. It never reads the file of a lock, so its code, comments included, does not name it.
pub(super) fn telemetry_knows_no_lock_file(files: &[File]) -> Vec<String> {
    let is_source = |file: &&File| {
        let in_web = file.path.starts_with("web/src/");
        let in_crate = file.path.starts_with("crates/") && file.path.contains("/src/");
        (in_web || in_crate) && file.path.contains("telemetry")
    };
    in_lines(files.iter().filter(is_source), |line| {
        let named = names_lock_file(line) || LOCK_FILE.iter().any(|name| line.contains(name));
        named.then(|| "telemetry must not know the file of a project lock".to_owned())
    })
}

/// Whether a line has the file's name: a dot and `lock`, but for a method call, or a part of a dotted word such as the name of an event.
fn names_lock_file(line: &str) -> bool {
    let name = concat!(".lo", "ck");
    line.match_indices(name).any(|(at, _)| {
        let before = line.get(..at).unwrap_or_default();
        let after = line.get(at + name.len()..).unwrap_or_default();
        let is_in_a_word = before.ends_with(|c: char| c.is_alphanumeric() || "_)]?".contains(c));
        let is_a_call = after.starts_with('(');
        !is_in_a_word && !is_a_call
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{accepts, bites, file};
    use super::*;

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
    fn serde_is_found_where_it_may_not_be() {
        let (rule, derive) = (serde_stays_where_it_may_be, "#[derive(Clone, Serialize)]");
        for path in ["crates/leasehold-core/src/name.rs", "crates/leasehold-server/src/hub.rs"] {
            bites(rule, path, derive);
            bites(rule, path, "impl<'de> Deserialize<'de> for Key {");
            accepts(
                rule,
                path,
                "/// Serialized in `wire`.\nuse serde::de::DeserializeOwned;\nfn f(a: &impl Serialize) {}",
            );
        }
        accepts(rule, "crates/leasehold-core/src/wire.rs", derive);
        accepts(rule, "crates/leasehold-server/src/tickets.rs", derive);
        bites(rule, "crates/leasehold-server/src/tickets.rs", "struct A;");
    }

    #[test]
    fn a_route_that_reads_before_it_changes_is_found() {
        let (read, change) =
            ("    let lease = app.read(&room).await?;\n", "    app.apply(&room, command).await\n");
        let route = |body: &str| format!("pub async fn renew() {{\n{body}}}\n");
        let path = "crates/leasehold-server/src/routes/locks.rs";
        bites(routes_read_or_change, path, &route(&format!("{read}{change}")));
        bites(
            routes_read_or_change,
            path,
            &route(&format!("{}\n{change}", "    store.apply_job(key, JobCommand::Look);")),
        );
        accepts(routes_read_or_change, path, &format!("{}{}", route(read), route(change)));
        accepts(routes_read_or_change, path, &route(&format!("    // app.read(\n{change}")));
        accepts(
            routes_read_or_change,
            "crates/leasehold-cli/src/locks.rs",
            &route(&format!("{read}{change}")),
        );
    }

    #[test]
    fn telemetry_that_names_the_file_of_a_lock_is_found() {
        let rule = telemetry_knows_no_lock_file;
        let file = concat!(".lo", "ck");
        let places = ["crates/a/src/telemetry.rs", "crates/a/src/telemetry/read.rs", "web/src/telemetry.ts"];
        for path in places {
            for line in [
                format!("folder.join(\"{file}\")"),
                format!("// reads `{file}`"),
                format!("'project/{file}.tmp'"),
                format!("glob **/{file}*"),
                format!("use crate::{}::read;", LOCK_FILE[0]),
                format!("import {{ parse }} from './{}.js';", LOCK_FILE[1]),
            ] {
                bites(rule, path, &line);
            }
            for fine in
                ["state.lock().count()", "    .lock()", "\"autosave.lock.readonly\"", "around.lock.subscribe"]
            {
                accepts(rule, path, fine);
            }
        }
        accepts(rule, "crates/a/src/folder.rs", file);
        accepts(rule, "crates/a/tests/telemetry.rs", file);
    }

    #[test]
    fn a_refusal_outside_of_error_is_found() {
        let errors = file(ERRORS, "codes! {\n    Held, CONFLICT, \"held\",\n        \"x\", \"y\";\n}\n");
        let check = |text: &str| {
            let route = file("crates/leasehold-server/src/routes/a.rs", text);
            refusals_stay_in_error(&[file(ERRORS, &errors.text), route]).len()
        };
        for bad in [
            "Err(StatusCode::CONFLICT)",
            "responses((status = 409, description = \"x\"))",
            "let code = \"held\";",
        ] {
            assert_eq!(check(bad), 1, "{bad}");
        }
        let fine = "Ok(StatusCode::NO_CONTENT)\n(status = 204)\nCode::Held\n// \"held\"\nmod tests {\nStatusCode::CONFLICT";
        assert_eq!(check(fine), 0);
        assert_eq!(code_words(&errors.text), ["held"]);
    }
}
