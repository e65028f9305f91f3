//! The page at `/`: who holds what, as it happens. Its files are part of the program, and it uses the same HTTP API as every
//! other client.
//!
//! The page loads nothing from elsewhere, and its policy allows no inline script. A token is given away only to the page of a
//! server that was started with made-up users, and only on this machine.

use std::sync::{Arc, LazyLock};

use axum::extract::{Path, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, REFERRER_POLICY,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::auth::Auth;
use crate::error::{Code, Failure};
use crate::routes::is_known;
use crate::session::is_own_page;
use crate::{App, Doors};

/// What pages of this server may load: their own files, and nothing inline. They differ in their scripts, and in the name of
/// their policy for the addresses of Workers.
macro_rules! policy {
    ($scripts:literal, $name:literal) => {
        concat!(
            "default-src 'none'; ",
            $scripts,
            "; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; ",
            "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types ",
            $name
        )
    };
}
pub(crate) use policy;

const POLICY: &str = policy!("script-src 'self'", "leasehold");

/// A file of the page.
struct PageFile {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($name:literal $kind:literal),* $(,)?) => {
        [$(PageFile { name: $name, kind: $kind, bytes: include_bytes!(concat!("../page/", $name)) }),*]
    };
}

const INDEX: &str = "index.html";

static FILES: [PageFile; 13] = files! {
    "index.html" "text/html; charset=utf-8",
    "style.css" "text/css; charset=utf-8",
    "docs.css" "text/css; charset=utf-8",
    "icon.svg" "image/svg+xml",
    "app.js" "text/javascript; charset=utf-8",
    "api.js" "text/javascript; charset=utf-8",
    "live.js" "text/javascript; charset=utf-8",
    "board.js" "text/javascript; charset=utf-8",
    "holding.js" "text/javascript; charset=utf-8",
    "presence.js" "text/javascript; charset=utf-8",
    "view.js" "text/javascript; charset=utf-8",
    "words.js" "text/javascript; charset=utf-8",
    "ticker.js" "text/javascript; charset=utf-8",
};

/// The ETags of the files, in their order.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| FILES.iter().map(|file| tag(file.bytes)).collect());

/// The ETag of a file.
pub(crate) fn tag(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes).iter().take(12).map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("\"{digits}\"")
}

/// The page, its files and how to sign in. A server that has jobs only shows its API instead.
pub(crate) fn routes(doors: Doors) -> Router<Arc<App>> {
    let index = match doors {
        Doors::All => get(async |headers: HeaderMap| file(&headers, INDEX)),
        Doors::Jobs => get(async || Redirect::temporary("/docs")),
    };
    Router::new()
        .route("/", index)
        .route("/favicon.ico", get(async || Redirect::permanent("/page/icon.svg")))
        .route("/page/sign-in", get(sign_in))
        .route(
            "/page/{name}",
            get(async |headers: HeaderMap, Path(name): Path<String>| file(&headers, &name)),
        )
}

/// Headers of every page: what it may load, and that links tell nobody where they were.
pub(crate) fn guards() -> [(HeaderName, &'static str); 2] {
    [(CONTENT_SECURITY_POLICY, POLICY), (REFERRER_POLICY, "no-referrer")]
}

fn file(headers: &HeaderMap, name: &str) -> Response {
    let found = FILES.iter().zip(TAGS.iter()).find(|(file, _)| file.name == name);
    let Some((file, tag)) = found else {
        return Failure::new(Code::NotFound).because_of("GET / is the page").into_response();
    };
    // A new version of the program has new files: browsers ask every time, and get a 304 while nothing changed.
    let fixed = [(ETAG, tag.as_str()), (CACHE_CONTROL, "no-cache")];
    if is_known(headers, tag) {
        return (StatusCode::NOT_MODIFIED, fixed).into_response();
    }
    (fixed, guards(), [(CONTENT_TYPE, file.kind)], file.bytes).into_response()
}

/// How the page signs in: not at all, with a token that is pasted, or as one of the made-up users.
async fn sign_in(State(app): State<Arc<App>>, headers: HeaderMap) -> Json<Value> {
    let signer = app.config.dev.as_ref().filter(|_| is_own_page(&headers));
    // Without a token the page asks for one.
    let users = signer.and_then(|signer| signer.users().ok()).unwrap_or_default();
    let by = match &app.config.auth {
        Auth::Open => "nothing",
        Auth::Jwt(_) if users.is_empty() => "token",
        Auth::Jwt(_) => "user",
    };
    let users = users.iter().map(|user| json!({ "id": user.id, "name": user.name, "token": user.token }));
    Json(json!({ "by": by, "users": users.collect::<Vec<_>>() }))
}
