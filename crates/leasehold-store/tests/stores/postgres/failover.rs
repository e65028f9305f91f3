//! A primary, a standby that follows it, and the day on which the standby has to take over.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command as Process};
use std::time::Duration;

use leasehold_core::{Command, Outcome};
use leasehold_store::{Feed, JobStore, Postgres, Retry, Store};
use tokio_postgres::{Client, NoTls};

use super::server::{as_postgres, free_port, is_root, newest_postgresql, run, undertaker};
use crate::harness::{DEADLINE, bid, key, must_acquire, skipped};

const TTL: Duration = Duration::from_secs(600);

/// What fences jump by when history was lost.
const JUMP: u64 = 1 << 32;

#[tokio::test]
async fn law_02_fences_grow_through_a_fail_over_to_a_standby_that_is_behind() {
    // The primary acknowledged a grant that the standby never received, and its machine was lost. The standby was promoted; its
    // clock was a minute behind. The next holder of the key got a smaller fence than the one before, whose writes then beat
    // its own; and consumers of events resumed at a position that was given out a second time.
    let Some(pair) = Pair::start() else { return };
    let (store, other) = (pair.store(), pair.store());
    let kept = must_acquire(&store, &key("kept"), &bid("anna", 1, TTL)).await;
    other.now().await.unwrap();
    pair.set_standbys_clock_back().await;
    pair.cut_replication().await;
    let lost = must_acquire(&store, &key("lost"), &bid("ben", 2, TTL)).await;
    let position = store.read(&key("lost")).await.unwrap().position;
    pair.fail_over();

    // Two servers notice it at once, and the fence jumps once.
    let (acquired, too) = tokio::join!(
        until_available(&store, "lost", Command::Acquire(bid("cora", 3, TTL))),
        until_available(&other, "another", Command::Acquire(bid("dora", 4, TTL))),
    );
    for outcome in [acquired, too] {
        let Outcome::Granted { lease, .. } = outcome else { panic!("{outcome:?}") };
        let ahead = lease.fence.get().checked_sub(lost.fence.get()).expect("the fence went back");
        assert!(JUMP / 2 < ahead && ahead < JUMP * 2, "ahead by {ahead}");
    }
    // What the standby had received goes on. What it had not is lost, and its holder hears so.
    for (name, lease, is_kept) in [("kept", &kept, true), ("lost", &lost, false)] {
        let renew = Command::Renew { claim: lease.proof().into(), ttl: None };
        let renewed = until_available(&store, name, renew).await;
        assert_eq!(matches!(renewed, Outcome::Renewed(_)), is_kept, "{name}: {renewed:?}");
    }
    let feed = store.events(position, 10).await.unwrap();
    assert!(matches!(feed, Feed::Gap { .. }), "{feed:?}");

    // The old primary comes back, and the store is led to it.
    pair.fall_back();
    let refused = loop {
        let error = store.now().await.expect_err("the old primary is not the store any more").to_string();
        if error.contains("timeline") {
            break error;
        }
    };
    assert!(refused.contains("timeline 1 answers") && refused.contains("stop it"), "{refused}");
}

#[tokio::test]
async fn a_copy_of_the_tables_is_noticed_when_it_is_first_used() {
    // A dump was read into another database, and nobody thought of `leasehold.after_restore()`.
    let Some(harness) = super::PostgresHarness::start(super::Way::Direct).await else { return };
    let lease = must_acquire(&harness.another(), &key("copied"), &bid("anna", 1, TTL)).await;
    let store = harness.another();
    store.now().await.unwrap();
    let unmoved = must_acquire(&store, &key("unmoved"), &bid("anna", 2, TTL)).await;
    assert!(unmoved.fence.get() < lease.fence.get() + JUMP / 2, "a restart is no restore");
    // As if the rows had been written elsewhere.
    let elsewhere = "UPDATE leasehold.store SET origin = '1/2/3'";
    harness.connect().await.batch_execute(elsewhere).await.unwrap();
    for number in [3, 4] {
        let next =
            must_acquire(&harness.another(), &key(&format!("copied-{number}")), &bid("ben", number, TTL))
                .await;
        let ahead = next.fence.get() - lease.fence.get();
        assert!(JUMP / 2 < ahead && ahead < JUMP * 2, "ahead by {ahead}");
    }
}

/// Applies a command; a store that has to connect anew is unavailable for a while.
async fn until_available(store: &Postgres, name: &str, command: Command) -> Outcome {
    let start = std::time::Instant::now();
    loop {
        match store.apply(&key(name), command.clone()).await {
            Ok(applied) => return applied.outcome,
            Err(error) => assert_ne!(error.retry(), Retry::No, "{error}"),
        }
        assert!(start.elapsed() < DEADLINE, "{name}: it did not go on after the fail-over");
    }
}

/// Two servers, the second of which is a standby of the first.
struct Pair {
    folder: PathBuf,
    programs: PathBuf,
    ports: [u16; 2],
    _undertaker: Child,
}

const PRIMARY: usize = 0;
const STANDBY: usize = 1;

impl Pair {
    /// `None`, loudly, where there is no PostgreSQL.
    fn start() -> Option<Self> {
        let Some(programs) = newest_postgresql() else {
            skipped("a fail-over of PostgreSQL, because postgresql is not installed");
            return None;
        };
        let folder = tempfile::Builder::new().prefix("leasehold-failover-").tempdir().unwrap().keep();
        fs::create_dir(folder.join("own")).unwrap();
        if is_root() {
            run(Process::new("chown").arg("-R").arg("postgres").arg(&folder));
        }
        let undertaker = undertaker(&folder);
        let pair = Self { folder, programs, ports: [free_port(), free_port()], _undertaker: undertaker };
        pair.make_primary();
        pair.run(PRIMARY, &["-w", "start"]);
        pair.make_standby();
        pair.run(STANDBY, &["-w", "start"]);
        Some(pair)
    }

    fn data(&self, which: usize) -> PathBuf {
        self.folder.join("own").join(which.to_string())
    }

    fn make_primary(&self) {
        let mut initdb = as_postgres(&self.programs.join("initdb"));
        initdb.arg("-D").arg(self.data(PRIMARY)).args(["-U", "postgres", "-A", "trust", "-E", "UTF8"]);
        run(initdb.args(["--no-sync", "--no-locale"]));
        let sockets = self.folder.join("own");
        let settings = format!(
            "listen_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\nshared_buffers = 16MB\nfsync = off\n\
             test.clock_back_ms = 0\n",
            sockets.display()
        );
        self.set(PRIMARY, &settings);
        self.set(PRIMARY, &format!("port = {}\n", self.ports[PRIMARY]));
    }

    fn make_standby(&self) {
        let mut backup = as_postgres(&self.programs.join("pg_basebackup"));
        backup.arg("-D").arg(self.data(STANDBY)).args(["-h", "127.0.0.1", "-U", "postgres", "-c", "fast"]);
        run(backup.args(["-R", "--no-sync", "-p"]).arg(self.ports[PRIMARY].to_string()));
        self.set(STANDBY, &format!("port = {}\ntest.clock_back_ms = 60000\n", self.ports[STANDBY]));
    }

    fn set(&self, which: usize, settings: &str) {
        let file = self.data(which).join("postgresql.conf");
        OpenOptions::new().append(true).open(file).unwrap().write_all(settings.as_bytes()).unwrap();
    }

    fn run(&self, which: usize, what: &[&str]) {
        let mut pg_ctl = as_postgres(&self.programs.join("pg_ctl"));
        let log = self.data(which).join("log.txt");
        run(pg_ctl.arg("-D").arg(self.data(which)).arg("-l").arg(log).args(what));
    }

    /// A store that finds whichever of the two can be written.
    fn store(&self) -> Postgres {
        let [primary, standby] = self.ports;
        let url = format!(
            "postgres://postgres@127.0.0.1:{primary},127.0.0.1:{standby}/postgres\
             ?target_session_attrs=read-write"
        );
        Postgres::open(&url).unwrap()
    }

    async fn connect(&self, which: usize) -> Client {
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", self.ports[which]);
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// From here on the database's clock is what the machine of each server says, and the standby's says less.
    async fn set_standbys_clock_back(&self) {
        let clock = "CREATE OR REPLACE FUNCTION leasehold.clock_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$ \
            SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint \
                   - current_setting('test.clock_back_ms')::bigint $$";
        self.connect(PRIMARY).await.batch_execute(clock).await.unwrap();
    }

    /// Waits until the standby has everything, and then gives it nothing more.
    async fn cut_replication(&self) {
        let (primary, standby) = (self.connect(PRIMARY).await, self.connect(STANDBY).await);
        let is_even = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()";
        until(&primary, is_even, 1).await;
        standby.batch_execute("ALTER SYSTEM SET primary_conninfo = ''").await.unwrap();
        standby.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        until(&primary, "SELECT count(*) FROM pg_stat_replication", 0).await;
    }

    /// The primary's machine is lost, and the standby promoted.
    fn fail_over(&self) {
        self.run(PRIMARY, &["-m", "immediate", "-w", "stop"]);
        self.run(STANDBY, &["-w", "promote"]);
    }

    /// The new primary is gone, and the old one starts as if nothing had happened.
    fn fall_back(&self) {
        self.run(STANDBY, &["-m", "immediate", "-w", "stop"]);
        self.run(PRIMARY, &["-w", "start"]);
    }
}

/// Looks until the answer is this number.
async fn until(db: &Client, sql: &str, number: i64) {
    let start = std::time::Instant::now();
    while db.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) != number {
        assert!(start.elapsed() < DEADLINE, "{sql} is not {number}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
