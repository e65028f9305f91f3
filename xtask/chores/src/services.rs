//! The programs that some tests start for themselves, from Debian's packages: PostgreSQL, pgbouncer in front of it, PHP for
//! the snippets of the documentation, promtool for the alert rules, Google's Firestore emulator with the Java that it runs on, and two browsers.
//!
//! This only makes sure that the programs are there. A server that is installed or running already is left alone.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::tally::Report;
use crate::tools;

/// A package, and what shows that it is installed.
type Package = (&'static str, fn() -> bool);

/// Not Debian's own: where Google's list of packages is not known, this one cannot be had.
const EMULATOR: &str = "google-cloud-cli-firestore-emulator";

const SERVICES: &[Package] = &[
    ("postgresql", has_postgresql),
    ("pgbouncer", has_pgbouncer),
    ("php-cli", has_php),
    ("prometheus", has_promtool),
    ("default-jre-headless", has_java),
    (EMULATOR, has_emulator),
];

const BROWSERS: &[Package] = &[("chromium", has_chromium), ("firefox-esr", has_firefox)];

/// What the server is measured beside.
const RIVALS: &[Package] = &[("postgresql", has_postgresql), ("redis-server", has_redis)];

/// The server's programs: the folder alone may belong to the client.
fn has_postgresql() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.into_iter().any(|version| version.path().join("bin/initdb").exists())
}

fn has_pgbouncer() -> bool {
    Path::new("/usr/sbin/pgbouncer").exists()
}

fn has_php() -> bool {
    tools::works(Command::new("php").arg("--version"))
}

fn has_promtool() -> bool {
    tools::works(Command::new("promtool").arg("--version"))
}

fn has_java() -> bool {
    tools::works(Command::new("java").arg("-version"))
}

/// Installed, or running somewhere that was named.
fn has_emulator() -> bool {
    std::env::var_os("FIRESTORE_EMULATOR_HOST").is_some()
        || tools::works(Command::new("dpkg").args(["-L", EMULATOR]))
}

fn has_redis() -> bool {
    tools::works(Command::new("redis-server").arg("--version"))
}

fn has_chromium() -> bool {
    Path::new("/usr/bin/chromium").exists()
}

fn has_firefox() -> bool {
    Path::new("/usr/bin/firefox-esr").exists()
}

/// Where Debian's package looks whether it should make and start a server of its own. We need only the programs.
const CLUSTER_SETTINGS: &str = "/etc/postgresql-common/createcluster.conf";

/// Installs the servers and PHP, where they are missing. The answer is empty when everything is there, and a skip when it
/// cannot be had.
pub fn ensure() -> Result<Report> {
    ensure_packages(SERVICES)
}

/// The same for the servers that ours is measured beside.
pub fn ensure_rivals() -> Result<Report> {
    ensure_packages(RIVALS)
}

/// The same for the browsers.
pub fn ensure_browsers() -> Result<Report> {
    ensure_packages(BROWSERS)
}

fn ensure_packages(packages: &[Package]) -> Result<Report> {
    if missing(packages).is_empty() {
        return Ok(Report::default());
    }
    if is_root() && tools::works(Command::new("apt-get").arg("--version")) {
        install(&missing(packages))?;
    }
    Ok(match missing(packages) {
        missing if missing.is_empty() => Report::default(),
        missing => Report::skip(&missing.join(", "), &advice(&missing)),
    })
}

fn missing(packages: &[Package]) -> Vec<&'static str> {
    packages.iter().filter(|(_, is_there)| !is_there()).map(|(package, _)| *package).collect()
}

fn advice(missing: &[&str]) -> String {
    format!("what needs it was not tested: as root, run `apt-get install {}`", missing.join(" "))
}

fn is_root() -> bool {
    tools::works(Command::new("sh").args(["-c", "test \"$(id -u)\" = 0"]))
}

fn install(packages: &[&str]) -> Result<()> {
    if !Path::new(CLUSTER_SETTINGS).exists() {
        let folder = Path::new(CLUSTER_SETTINGS).parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder)?;
        std::fs::write(CLUSTER_SETTINGS, "create_main_cluster = false\n")?;
    }
    apt_get(&["update"])?;
    // One by one: a package that cannot be had must not keep the others away.
    for package in packages {
        let options = ["--yes", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold"];
        apt_get(&[&["install"][..], &options, &[package]].concat())?;
    }
    Ok(())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    let finished = tools::watch(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))?;
    if !finished.ok {
        println!("{}", finished.output);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_names_what_is_missing() {
        assert!(advice(&["postgresql", "pgbouncer"]).ends_with("`apt-get install postgresql pgbouncer`"));
    }
}
