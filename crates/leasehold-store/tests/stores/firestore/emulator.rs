//! Google's own Firestore emulator, from its package: a private port, one for each test program. It ends with it, in
//! whatever way it ends.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::harness::{skipped, wait_for};

const PACKAGE: &str = "google-cloud-cli-firestore-emulator";
const PROGRAM: &str = "com.google.cloud.datastore.emulator.firestore.CloudFirestore";

pub struct Emulator {
    /// Host and port.
    pub host: String,
    /// Ends the emulator when this program is gone: its other end of the pipe closes by itself.
    _keeper: Option<Child>,
}

/// The emulator, started when it is first wanted, or the one that `FIRESTORE_EMULATOR_HOST` names; `None`, loudly, where
/// there is none.
pub fn emulator() -> Option<&'static Emulator> {
    static EMULATOR: OnceLock<Option<Emulator>> = OnceLock::new();
    EMULATOR.get_or_init(find_or_start).as_ref()
}

fn find_or_start() -> Option<Emulator> {
    if let Some(host) = std::env::var("FIRESTORE_EMULATOR_HOST").ok().filter(|host| !host.is_empty()) {
        return Some(Emulator { host, _keeper: None });
    }
    let missing = match (jar(), has_java()) {
        (Some(jar), true) => return Some(start(&jar)),
        (None, _) => PACKAGE,
        (_, false) => "java",
    };
    skipped(&format!("the Firestore tests, because {missing} is not installed"));
    None
}

/// Where the package has put it.
fn jar() -> Option<PathBuf> {
    let listed = Command::new("dpkg").args(["-L", PACKAGE]).output().ok()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    listed.lines().find(|line| line.ends_with("firestore-emulator.jar")).map(PathBuf::from)
}

fn has_java() -> bool {
    let asked = Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

fn start(jar: &std::path::Path) -> Emulator {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = "trap '' INT TERM HUP; java -Xmx512m -cp \"$1\" \"$2\" start --host=127.0.0.1 --port=\"$3\" & \
        java=$!; cat; kill -KILL $java";
    let mut keeper = Command::new("sh");
    keeper.args(["-c", script, "keeper"]).arg(jar).args([PROGRAM, &port.to_string()]);
    let keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the Firestore emulator", || TcpStream::connect(("127.0.0.1", port)).ok());
    Emulator { host: format!("127.0.0.1:{port}"), _keeper: Some(keeper) }
}
