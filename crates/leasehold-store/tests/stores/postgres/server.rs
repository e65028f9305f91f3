//! A PostgreSQL and a pgbouncer of our own, from the system's packages: private folder, private ports, one pair per test
//! program. They end with it, in whatever way it ends.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::{Client, NoTls};

use crate::harness::{skipped, wait_for};

/// Not a secret: it guards a server that only this test program can find.
const PASSWORD: &str = "only for tests";

pub struct Server {
    folder: PathBuf,
    programs: PathBuf,
    port: u16,
    bouncer_port: u16,
    /// Ends the servers when this program is gone: its other end of the pipe closes by itself.
    _undertaker: Child,
}

/// The server, started when it is first wanted; `None`, loudly, where it is not installed.
pub fn server() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(start_if_installed).as_ref()
}

fn start_if_installed() -> Option<Server> {
    let programs = newest_postgresql();
    let missing = if programs.is_none() { "postgresql" } else { "pgbouncer" };
    match programs {
        Some(programs) if Path::new(BOUNCER).exists() => Some(Server::start(programs)),
        _ => {
            skipped(&format!("the PostgreSQL tests, because {missing} is not installed"));
            None
        }
    }
}

/// A server that only one test uses, and may stop.
#[allow(dead_code, reason = "for the tests of several servers, which are with the command line")]
pub fn own_server() -> Option<Server> {
    start_if_installed()
}

const BOUNCER: &str = "/usr/sbin/pgbouncer";

/// The folder of PostgreSQL's programs.
pub fn newest_postgresql() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let programs = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    programs.filter(|programs| programs.join("initdb").exists()).max()
}

impl Server {
    fn start(programs: PathBuf) -> Self {
        let folder = tempfile::Builder::new().prefix("leasehold-postgres-").tempdir().unwrap().keep();
        // The server runs as another user, who must be able to get in.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let own = folder.join("own");
        fs::create_dir(&own).unwrap();
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(&own));
        }
        let undertaker = undertaker(&folder);
        let (port, bouncer_port) = (free_port(), free_port());
        let server = Self { folder, programs, port, bouncer_port, _undertaker: undertaker };
        server.make_cluster();
        server.make_certificate("server");
        server.start_postgres();
        server.start_bouncer();
        server
    }

    fn own(&self, name: &str) -> PathBuf {
        self.folder.join("own").join(name)
    }

    fn make_cluster(&self) {
        let password = self.folder.join("password");
        fs::write(&password, PASSWORD).unwrap();
        let mut initdb = as_postgres(&self.programs.join("initdb"));
        initdb.arg("-D").arg(self.own("data")).arg("--pwfile").arg(&password);
        run(initdb.args(["-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8", "--no-sync", "--no-locale"]));
        let settings = format!(
            "port = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\nmax_connections = 200\n\
             shared_buffers = 32MB\nssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'\n",
            self.port,
            self.folder.join("own").display(),
            self.certificate().display(),
            self.own("server.key").display(),
        );
        let file = self.own("data").join("postgresql.conf");
        fs::OpenOptions::new().append(true).open(file).unwrap().write_all(settings.as_bytes()).unwrap();
    }

    /// The certificate that the server shows, which is its own authority.
    pub fn certificate(&self) -> PathBuf {
        self.own("server.pem")
    }

    /// Makes a certificate for the server's address, and its key. `openssl` comes with PostgreSQL's package.
    pub fn make_certificate(&self, name: &str) -> PathBuf {
        let (key, certificate) = (self.own(&format!("{name}.key")), self.own(&format!("{name}.pem")));
        let mut openssl = as_postgres(Path::new("openssl"));
        openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
        openssl.args(["-addext", "subjectAltName=IP:127.0.0.1"]);
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-subj", &format!("/CN={name}")]);
        run(openssl.arg("-keyout").arg(key).arg("-out").arg(&certificate));
        certificate
    }

    pub fn start_postgres(&self) {
        // After a crash it first syncs every file of every database, which takes minutes on a disk that others keep busy.
        run(self.pg_ctl().arg("-l").arg(self.own("log")).args(["-w", "-t", "600", "start"]));
    }

    fn pg_ctl(&self) -> Command {
        let mut command = as_postgres(&self.programs.join("pg_ctl"));
        command.arg("-D").arg(self.own("data"));
        command
    }

    /// Ends the server as if it had been killed, and starts it again: it recovers from its log.
    pub fn crash(&self) {
        self.stop();
        self.start_postgres();
    }

    /// Ends the server as if it had been killed.
    pub fn stop(&self) {
        run(self.pg_ctl().args(["-m", "immediate", "-w", "stop"]));
    }

    fn start_bouncer(&self) {
        let own = self.folder.join("own");
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres password='{PASSWORD}'\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = 20\nmax_client_conn = 500\nserver_login_retry = 0.2\nlogfile = {}\npidfile = {}\n",
            self.port,
            self.bouncer_port,
            own.join("bouncer.log").display(),
            own.join("bouncer.pid").display(),
        );
        let file = self.folder.join("pgbouncer.ini");
        fs::write(&file, settings).unwrap();
        run(as_postgres(Path::new(BOUNCER)).args(["-q", "-d"]).arg(&file));
        wait_for("pgbouncer", || std::net::TcpStream::connect(("127.0.0.1", self.bouncer_port)).ok());
    }

    /// The URL of a database, straight to the server.
    pub fn url(&self, database: &str) -> String {
        self.url_at(self.port, database)
    }

    /// The URL of a database, through pgbouncer.
    pub fn bouncer_url(&self, database: &str) -> String {
        self.url_at(self.bouncer_port, database)
    }

    /// The URL of a database behind this port.
    pub fn url_at(&self, port: u16, database: &str) -> String {
        format!("postgres://postgres:{}@127.0.0.1:{port}/{database}", PASSWORD.replace(' ', "%20"))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// A connection past the store.
    pub async fn connect(&self, database: &str) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(database), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// A new database of one's own.
    pub async fn create_database(&self) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.connect("postgres").await.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        name
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// PostgreSQL and pgbouncer both refuse to run as root.
pub fn as_postgres(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(program);
    command
}

/// Runs a program to its end.
pub fn run(command: &mut Command) {
    // What becomes a server must not keep our own streams open.
    let log = tempfile::tempfile().unwrap();
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log.try_clone().unwrap())
        .current_dir("/");
    let status = command.status().unwrap();
    if !status.success() {
        let mut said = String::new();
        std::io::Seek::rewind(&mut &log).unwrap();
        std::io::Read::read_to_string(&mut &log, &mut said).unwrap();
        panic!("{command:?}: {status}\n{said}");
    }
}

/// Ends the servers in a folder, and removes it, when this program is gone.
pub fn undertaker(folder: &Path) -> Child {
    let script = "trap '' INT TERM HUP; cat >/dev/null; cd /; \
        kill $(head -n 1 \"$1/own/bouncer.pid\"); \
        for pid in \"$1\"/own/*/postmaster.pid; do kill -QUIT $(head -n 1 \"$pid\"); \
        while [ -e \"$pid\" ]; do sleep 0.1; done; done; rm -rf \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "undertaker"]).arg(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
