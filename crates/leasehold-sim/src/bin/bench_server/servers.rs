//! The servers, each with a folder and a port of its own. They end when this value is dropped.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::calls::{Protocol, Target};

/// Nothing that is measured here is to meet a limit.
const LIFTED: [&str; 10] = [
    "--limits-requests-per-second",
    "0",
    "--limits-connections-per-address",
    "16384",
    "--limits-streams-per-caller",
    "16384",
    "--limits-leases-per-owner",
    "10000000",
    "--limits-drain",
    "1s",
];

pub struct Servers {
    pub targets: Vec<Target>,
    children: Vec<Child>,
    folder: PathBuf,
}

impl Servers {
    /// None yet.
    pub fn none() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("leasehold-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self { targets: Vec::new(), children: Vec::new(), folder })
    }

    /// Leasehold, and the two that it is compared with.
    pub fn rivals(program: &Path) -> Result<Self> {
        let mut servers = Self::none()?;
        servers.leasehold(program, "leasehold", &["--log", "warn"])?;
        servers.redis()?;
        servers.postgres()?;
        Ok(servers)
    }

    /// The server that was started under this name.
    pub fn named(&self, name: &str) -> Result<&Target> {
        self.targets.iter().find(|target| target.name == name).context("a server of this name")
    }

    fn keep(&mut self, name: &'static str, address: SocketAddr, protocol: Protocol, child: Child) {
        self.targets.push(Target { name, address, protocol, process: child.id(), pusher_key: None });
        self.children.push(child);
    }

    /// The shipped program on a file, with tokens, and its limits lifted. Its log goes to a file.
    pub fn leasehold(&mut self, program: &Path, name: &'static str, options: &[&str]) -> Result<()> {
        let store = self.folder.join(format!("{name}.db")).display().to_string();
        self.leasehold_on(&store, program, name, options)
    }

    /// The same on any store.
    pub fn leasehold_on(
        &mut self,
        store: &str,
        program: &Path,
        name: &'static str,
        options: &[&str],
    ) -> Result<()> {
        let mut command = Command::new(program);
        command.args(["serve", "--dev", "--json", "--listen", "127.0.0.1:0", "--store", store]).args(LIFTED);
        command.args(options).stderr(std::fs::File::create(self.folder.join(format!("{name}.log")))?);
        let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start leasehold")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut line)?;
        let started: serde_json::Value = serde_json::from_str(&line).context("leasehold did not start")?;
        let text =
            |pointer: &str| started.pointer(pointer).and_then(|value| value.as_str()).context("a first line");
        let address = text("/url")?.trim_start_matches("http://").parse()?;
        let token = text("/tokens/user-a")?.to_owned();
        let key = text("/pusher/key").ok().map(ToOwned::to_owned);
        self.keep(name, address, Protocol::Http(token), child);
        if let Some(target) = self.targets.last_mut() {
            target.pusher_key = key;
        }
        Ok(())
    }

    /// A server of one call that has commands of all kinds: see `mixed.rs`.
    pub fn mixed(&mut self) -> Result<()> {
        let address = crate::mixed::start(&self.folder.join("mixed.db"))?;
        let (protocol, process) = (Protocol::Http(String::new()), std::process::id());
        self.targets.push(Target { name: "mixed", address, protocol, process, pusher_key: None });
        Ok(())
    }

    /// Redis that syncs its log before every answer.
    pub fn redis(&mut self) -> Result<()> {
        let port = free_port()?;
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--loglevel",
            "warning",
        ]);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--dir"]).arg(&self.folder);
        let child = command
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start redis-server; apt-get install redis")?;
        self.keep("redis_aof", answering(port)?, Protocol::Redis, child);
        Ok(())
    }

    /// PostgreSQL as it comes: synchronous commit, one row a key.
    pub fn postgres(&mut self) -> Result<()> {
        let programs =
            newest_postgresql().context("postgresql is not installed; apt-get install postgresql")?;
        let (port, data) = (free_port()?.to_string(), self.folder.join("postgres"));
        std::fs::create_dir(&data)?;
        run(Command::new("chown").arg("postgres").arg(&data))?;
        let as_postgres = |name: &str| {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(programs.join(name)).current_dir("/");
            command
        };
        run(as_postgres("initdb").args(["--auth", "trust", "--no-sync", "--pgdata"]).arg(&data))?;
        let mut command = as_postgres("postgres");
        command.arg("-D").arg(&data).args(["-p", &port, "-c", "max_connections=300", "-k"]).arg(&data);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let address = answering(port.parse()?)?;
        let table =
            "CREATE TABLE lease (key text PRIMARY KEY, owner text NOT NULL, expires_at timestamptz NOT NULL)";
        retry(|| run(as_postgres("psql").args(["-q", "-h", "127.0.0.1", "-p", &port, "-c", table])))?;
        self.keep("postgres", address, Protocol::Postgres, child);
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // PostgreSQL's first process is that of `runuser`, which ends with it but does not pass an interrupt on.
        let postmaster =
            std::fs::read_to_string(self.folder.join("postgres/postmaster.pid")).unwrap_or_default();
        let servers = self.children.iter().map(|child| child.id().to_string());
        for process in servers.chain(postmaster.lines().next().map(ToOwned::to_owned)) {
            let _ = Command::new("kill").args(["-INT", &process]).status();
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Waits until something listens there.
fn answering(port: u16) -> Result<SocketAddr> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    retry(|| Ok(TcpStream::connect(address).map(drop)?))?;
    Ok(address)
}

fn retry(attempt: impl Fn() -> Result<()>) -> Result<()> {
    for _ in 0..100 {
        if attempt().is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    attempt()
}

fn newest_postgresql() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let programs = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    programs.filter(|programs| programs.join("initdb").exists()).max()
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
