//! A database of one's own under a clock that only the test moves.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_store::clock::ManualClock;
use leasehold_store::conformance::{Harness, JobHarness, Restart};
use leasehold_store::{JobStore, Postgres, PostgresUrl, Store};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use tokio_postgres::Client;

use super::server::{Server, server};
use crate::harness::LIMITS;

/// How the store reaches its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Direct,
    Bouncer,
}

/// All tests share one server. Who crashes it waits until nobody else is using it.
static GATE: std::sync::LazyLock<Arc<RwLock<()>>> = std::sync::LazyLock::new(Arc::default);

pub struct PostgresHarness {
    server: &'static Server,
    way: Way,
    state: Mutex<State>,
    clock_setter: tokio::sync::Mutex<Option<Client>>,
    /// The clock of the servers' machines, on which as much time passes as on the database's.
    clock: Arc<ManualClock>,
}

struct State {
    database: String,
    store: Option<Arc<Postgres>>,
    in_use: Option<OwnedRwLockReadGuard<()>>,
}

const TEST_CLOCK: &str = "CREATE TABLE test_clock (millis bigint NOT NULL); \
    INSERT INTO test_clock VALUES (leasehold.clock_ms()); \
    CREATE OR REPLACE FUNCTION leasehold.clock_ms() RETURNS bigint LANGUAGE sql VOLATILE AS \
      'SELECT millis FROM public.test_clock'";

/// The server that all tests share, which no test crashes while this one uses it.
pub async fn shared_server() -> Option<(&'static Server, OwnedRwLockReadGuard<()>)> {
    let server = server()?;
    Some((server, GATE.clone().read_owned().await))
}

impl PostgresHarness {
    pub async fn start(way: Way) -> Option<Self> {
        let (server, in_use) = shared_server().await?;
        let in_use = Some(in_use);
        let database = server.create_database().await;
        let state = Mutex::new(State { database, store: None, in_use });
        let (clock_setter, clock) = (tokio::sync::Mutex::default(), Arc::default());
        let harness = Self { server, way, state, clock_setter, clock };
        let store = harness.another();
        // Makes the tables.
        store.now().await.unwrap();
        harness.state.lock().unwrap().store = Some(Arc::new(store));
        harness.connect().await.batch_execute(TEST_CLOCK).await.unwrap();
        Some(harness)
    }

    pub fn server(&self) -> &'static Server {
        self.server
    }

    pub fn database(&self) -> String {
        self.state.lock().unwrap().database.clone()
    }

    /// The database's URL, the way of this harness.
    pub fn url(&self) -> String {
        match self.way {
            Way::Direct => self.server.url(&self.database()),
            Way::Bouncer => self.server.bouncer_url(&self.database()),
        }
    }

    pub fn url_at(&self, port: u16) -> String {
        self.server.url_at(port, &self.database())
    }

    /// Another server's store on the same database.
    pub fn another(&self) -> Postgres {
        Postgres::options()
            .limits(LIMITS)
            .clock(self.clock.clone())
            .open(&PostgresUrl::parse(&self.url()).unwrap())
            .unwrap()
    }

    /// A connection past the store, straight to the database.
    pub async fn connect(&self) -> Client {
        self.server.connect(&self.database()).await
    }

    /// Moves the database's clock back.
    pub async fn turn_back(&self, by: Duration) {
        self.move_clock(-i64::try_from(by.as_millis()).unwrap()).await;
    }

    /// Moves the database's clock ahead, while no time passes.
    pub async fn step_ahead(&self, by: Duration) {
        self.move_clock(i64::try_from(by.as_millis()).unwrap()).await;
    }

    async fn move_clock(&self, millis: i64) {
        let sql = format!("UPDATE test_clock SET millis = millis + {millis}");
        let mut client = self.clock_setter.lock().await;
        if client.as_ref().is_none_or(Client::is_closed) {
            *client = Some(self.connect().await);
        }
        client.as_ref().unwrap().batch_execute(&sql).await.unwrap();
    }

    /// Puts back the function that the store came with.
    pub async fn use_real_clock(&self) {
        let migration = include_str!("../../../src/postgres/migrations/1.sql");
        let start = migration.find("CREATE FUNCTION leasehold.clock_ms").unwrap();
        let function = migration[start..].split(";\n").next().unwrap();
        let sql = function.replacen("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1);
        self.connect().await.batch_execute(&sql).await.unwrap();
    }

    /// Removes the database: a test that makes one for each of its scripts would fill the disk.
    pub async fn drop_database(self) {
        let sql = format!("DROP DATABASE {} WITH (FORCE)", self.database());
        self.server.connect("postgres").await.batch_execute(&sql).await.unwrap();
    }

    async fn crash(&self) {
        // Nothing of this test may hold up the others that wait for their turn.
        *self.clock_setter.lock().await = None;
        self.state.lock().unwrap().in_use = None;
        let alone = GATE.clone().write_owned().await;
        let server = self.server;
        tokio::task::spawn_blocking(move || server.crash()).await.unwrap();
        let in_use = alone.downgrade();
        self.state.lock().unwrap().in_use = Some(in_use);
    }
}

#[async_trait]
impl Harness for PostgresHarness {
    fn store(&self) -> Arc<dyn Store> {
        self.state.lock().unwrap().store.clone().unwrap()
    }
}

#[async_trait]
impl JobHarness for PostgresHarness {
    fn job_store(&self) -> Arc<dyn JobStore> {
        self.store()
    }

    async fn advance(&self, by: Duration) {
        if !by.is_zero() {
            self.clock.advance(by);
            self.move_clock(i64::try_from(by.as_millis()).unwrap()).await;
        }
    }

    async fn restart(&self, how: Restart) -> bool {
        match how {
            Restart::Orderly => {}
            Restart::Crash => self.crash().await,
            // The database's clock runs on.
            Restart::Restore | Restart::DownForAnHour => return false,
        }
        let store = Some(Arc::new(self.another()));
        self.state.lock().unwrap().store = store;
        true
    }
}
