//! The Leasehold server: edit locks for people, jobs for workers and leases for programs, over HTTP and server-sent events.
//!
//! [`run`] serves a store on a listener until a shutdown; the command `leasehold serve` only wires it up. The routes are
//! thin: they parse a request, apply a command to the store and show the outcome. A store that holds jobs and nothing else
//! makes a server that has jobs only.
//!
//! No lease rule may be here, and a lease id may leave only to its holder.

#![forbid(unsafe_code)]

mod accept;
mod audit;
pub mod auth;
pub mod caller;
mod config;
mod demo;
mod dev;
mod error;
mod files;
pub mod flags;
mod hub;
mod metrics;
mod nodes;
mod openapi;
mod page;
mod presence;
mod pusher;
mod rates;
mod ready;
mod routes;
mod server_lease;
mod session;
mod sse;
mod subscription;
mod surround;
mod sweeper;
pub mod telemetry;
mod tickets;
mod views;
mod visible;
mod watchers;
pub mod webhooks;

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::header::HeaderName;
use axum::http::{HeaderValue, Method};
use leasehold_store::clock::{Clock, SystemClock};
use leasehold_store::{JobStore, Opened, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceBuilder;
use tower_http::cors::{AllowOrigin, CorsLayer};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use audit::Audit;
pub use config::{Config, Limits, TelemetrySettings, TlsFiles, WallClock};
pub use dev::{Dev, DevSigner, DevUser};
pub use files::ConfigError;
pub use pusher::settings::{PusherApp, PusherSettings};

use audit::Audit as AuditLog;
use error::{Code, Failure};
use flags::CurrentFlags;
use hub::Hub;
use metrics::Metrics;
use nodes::{Nodes, TakePart};
use pusher::Pusher;
use rates::{Rates, Streams, Who};
use ready::Ready;
use surround::Surround;
use telemetry::Collector;
use tickets::Tickets;
use views::ShownClock;
use watchers::Watchers;

/// Why a server did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The network failed.
    #[error("the network failed: {0}")]
    Network(#[from] std::io::Error),
    /// A file could not be used.
    #[error(transparent)]
    Audit(#[from] audit::AuditError),
    /// A setting cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system provides no random numbers.
    #[error("the system provides no random numbers: {0}")]
    Randomness(#[from] getrandom::Error),
}

/// What all requests share.
struct App {
    store: Arc<dyn JobStore>,
    /// The same store, if it has lists and events; otherwise the server has jobs only.
    whole: Option<Arc<dyn Store>>,
    config: Config,
    hub: Arc<Hub>,
    /// The other servers on the same store.
    nodes: Nodes,
    ready: Ready,
    shown: ShownClock,
    tickets: Tickets,
    rates: Rates,
    streams: Streams,
    watchers: Watchers,
    /// The WebSocket door, if it is open.
    pusher: Option<Arc<Pusher>>,
    metrics: Metrics,
    audit: Option<Arc<AuditLog>>,
    /// Cancelled once webhooks know from which event on they are sent.
    webhooks_begun: CancellationToken,
    /// Which phase pages are in.
    flags: CurrentFlags,
    telemetry: Option<Arc<Collector>>,
    /// How often one sender may send telemetry.
    telemetry_rates: Rates,
    openapi: String,
    api_page: String,
    stop: CancellationToken,
}

impl App {
    /// The store, for what needs lists and events.
    fn whole(&self) -> Result<&dyn Store, Failure> {
        self.whole.as_deref().ok_or_else(jobs_only)
    }

    /// Refuses a caller or an address that makes too many requests.
    fn slow_down(&self, who: Who<'_>) -> Result<(), Failure> {
        let who = match who {
            Who::Address(address) => Who::Address(accept::network_of(address)),
            Who::Caller(_) => who,
        };
        self.rates.check(who).map_err(|wait| self.too_many_requests(wait))
    }

    /// The same for a request that asks for `things` at once, after it was counted as one.
    fn slow_down_by(&self, who: Who<'_>, things: usize) -> Result<(), Failure> {
        self.rates.check_more(who, things.saturating_sub(1)).map_err(|wait| self.too_many_requests(wait))
    }

    fn too_many_requests(&self, wait: std::time::Duration) -> Failure {
        self.metrics.rate_limited();
        Failure::new(Code::TooManyRequests)
            .because_of("wait as long as Retry-After says, and make fewer requests a second")
            .retry_after(wait)
    }
}

/// Serves `store` on `listener` until `shutdown` completes and the requests in progress are done.
pub async fn run(
    listener: TcpListener,
    store: Arc<dyn Store>,
    config: Config,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    Server::start(store, config)?.serve(listener, shutdown).await
}

/// How long a server waits for its audit before it accepts connections. If the store is unavailable for longer, it
/// starts anyway: nothing can be taken over without the store.
const AUDIT_BEGINS: std::time::Duration = std::time::Duration::from_secs(5);

/// How long the background tasks have to end: longer than the audit's last round takes on a working disk.
const LAST_WORK: std::time::Duration = std::time::Duration::from_secs(5);

/// A server without a listener, which [`run`] adds, and which tests on virtual time do not need.
pub struct Server {
    app: Arc<App>,
    tasks: TaskTracker,
}

impl Server {
    /// Starts the background tasks: the hub, the sweeper, the audit, and what talks to other servers.
    pub fn start(store: Arc<dyn Store>, config: Config) -> Result<Self, Error> {
        Self::open(Opened::Store(store), config)
    }

    /// The same on a store of either level. A server that has jobs only needs none of these tasks.
    pub fn open(store: Opened, config: Config) -> Result<Self, Error> {
        config.check()?;
        let (store, whole): (Arc<dyn JobStore>, _) = match store {
            Opened::Store(store) => (store.clone(), Some(store)),
            Opened::Jobs(store) => (store, None),
        };
        accept::check_tls(&config)?;
        let doors = Doors::of(whole.is_some());
        let metrics = Metrics::new();
        if doors == Doors::Jobs {
            metrics.jobs_only();
        }
        let stop = CancellationToken::new();
        let audit = config.audit.as_deref().map(AuditLog::open).transpose()?;
        let flags = CurrentFlags::open(config.flags_file.clone(), config.phase.clone())?;
        let telemetry = config.telemetry.as_ref().map(open_collector).transpose()?;
        let document = openapi::finish(&api(doors).into_openapi());
        let (nodes, take_part) = Nodes::new();
        let tasks = TaskTracker::new();
        let pusher = config.pusher.clone().filter(|_| doors == Doors::All);
        let app = Arc::new(App {
            pusher: pusher.map(|settings| Arc::new(Pusher::new(settings, nodes.clone(), tasks.clone()))),
            watchers: Watchers::new(nodes.clone()),
            nodes,
            ready: Ready::default(),
            shown: ShownClock::new(store.as_ref()),
            hub: Arc::new(Hub::new(config.limits.stream_backlog)),
            tickets: Tickets::new(config.ticket_secret.clone().map_or_else(random_secret, Ok)?),
            rates: Rates::new(&config.limits),
            streams: Streams::new(&config.limits, &metrics),
            api_page: openapi::page(&document),
            openapi: document.to_string(),
            store,
            whole,
            config,
            metrics,
            audit,
            webhooks_begun: CancellationToken::new(),
            flags,
            telemetry,
            telemetry_rates: Rates::new(&routes::telemetry::limits()),
            stop,
        });
        if let Some(store) = &app.whole {
            follow(&app, store, take_part, &tasks);
        }
        if let Some(pusher) = &app.pusher {
            pusher.start(&app, &app.stop);
        }
        if let Some(collector) = &app.telemetry {
            collector.report_to(&app.metrics);
            tasks.spawn(collector.clone().run(app.config.wall_clock.clone(), app.stop.clone()));
        }
        tasks.close();
        Ok(Self { app, tasks })
    }

    /// Serves on `listener` until `shutdown` completes and the requests in progress are done.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Error> {
        let app = self.app.clone();
        // No take-over may come before the audit can record it.
        let _ = tokio::time::timeout(AUDIT_BEGINS, self.begun()).await;
        let stop = app.stop.clone();
        tokio::spawn(async move {
            shutdown.await;
            stop.cancel();
        });
        let served =
            accept::serve(listener, self.router(), &app.config, app.metrics.clone(), app.stop.clone()).await;
        self.end().await;
        Ok(served?)
    }

    /// Completes when every later take-over will be in the audit and posted as a webhook.
    pub async fn begun(&self) {
        if let Some(audit) = &self.app.audit {
            audit.begun().await;
        }
        if self.app.whole.is_some() && self.app.config.webhook.is_some() {
            self.app.webhooks_begun.cancelled().await;
        }
    }

    /// All routes and their middleware.
    pub fn router(&self) -> Router {
        let doors = Doors::of(self.app.whole.is_some());
        let (router, _) = api(doors).split_for_parts();
        router
            .route("/openapi.json", axum::routing::get(routes::service::openapi))
            .route("/docs", axum::routing::get(routes::service::docs))
            .merge(page::routes(doors))
            .merge(demo::routes(doors, self.app.config.dev.is_some()))
            .merge(sockets_api(doors))
            .fallback(async move |uri: axum::http::Uri| doors.no_such_address(uri.path()))
            // One layer of layers: the router boxes each that it is given, for every request.
            .layer(
                ServiceBuilder::new()
                    .layer(DefaultBodyLimit::max(self.app.config.limits.body))
                    .option_layer(cors(&self.app.config))
                    .layer(Surround(self.app.clone())),
            )
            .with_state(self.app.clone())
    }

    /// Stops the background tasks.
    pub async fn end(self) {
        self.app.stop.cancel();
        if tokio::time::timeout(LAST_WORK, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                tasks = self.tasks.len(),
                "background tasks did not end in time and were abandoned"
            );
        }
    }
}

fn open_collector(settings: &TelemetrySettings) -> Result<Arc<Collector>, ConfigError> {
    Collector::open(&settings.folder, settings.keep).map(Arc::new)
}

/// Starts what keeps watchers, the audit and the other servers informed.
fn follow(app: &App, store: &Arc<dyn Store>, take_part: TakePart, tasks: &TaskTracker) {
    let (metrics, stop) = (&app.metrics, &app.stop);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    tasks.spawn(take_part.run(store.clone(), clock.clone(), metrics.clone(), stop.clone()));
    tasks.spawn(app.watchers.clone().listen(stop.clone()));
    tasks.spawn(app.hub.clone().follow(store.clone(), metrics.clone(), stop.clone()));
    tasks.spawn(sweeper::run(store.clone(), clock, app.nodes.clone(), metrics.clone(), stop.clone()));
    if let Some(audit) = &app.audit {
        audit.report_to(metrics);
        tasks.spawn(audit.clone().follow(store.clone(), app.config.wall_clock.clone(), stop.clone()));
    }
    if let Some(webhook) = app.config.webhook.clone() {
        let wall_clock = app.config.wall_clock.clone();
        let follower = webhooks::Follower {
            store: store.clone(),
            wall_clock,
            metrics: metrics.clone(),
            begun: app.webhooks_begun.clone(),
            shutdown: stop.clone(),
        };
        tasks.spawn(follower.run(webhook));
    }
}

/// Which doors a server has: a store without lists and events can hold jobs only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doors {
    All,
    Jobs,
}

impl Doors {
    fn of(is_whole: bool) -> Self {
        if is_whole { Self::All } else { Self::Jobs }
    }

    /// The refusal of an address that this server does not have.
    fn no_such_address(self, path: &str) -> Failure {
        let is_missing_door =
            self == Self::Jobs && path.starts_with("/api/") && !path.starts_with("/api/jobs");
        if is_missing_door {
            return jobs_only();
        }
        Failure::new(Code::NotFound).because_of("GET /docs lists all addresses")
    }
}

fn jobs_only() -> Failure {
    let detail = "its store holds jobs and has no lists and no events; ask a server on a file or on PostgreSQL for everything else";
    Failure::new(Code::JobsOnly).because_of(detail)
}

fn api(doors: Doors) -> OpenApiRouter<Arc<App>> {
    let router = OpenApiRouter::with_openapi(openapi::begin(doors)).merge(jobs_api()).merge(service_api());
    match doors {
        Doors::All => router.merge(documents_api()).merge(leases_api()),
        Doors::Jobs => router,
    }
}

fn documents_api() -> OpenApiRouter<Arc<App>> {
    use routes::{events, handover, lists, locks, presence};
    OpenApiRouter::new()
        .routes(routes!(locks::acquire, locks::renew, locks::release, locks::look))
        .routes(routes!(locks::soft_release))
        .routes(routes!(locks::resume))
        .routes(routes!(locks::take_over))
        .routes(routes!(locks::force_release))
        .routes(routes!(locks::check))
        .routes(routes!(locks::renew_many))
        .routes(routes!(handover::request, handover::withdraw))
        .routes(routes!(handover::told))
        .routes(routes!(handover::answer))
        .routes(routes!(presence::presence))
        .routes(routes!(lists::documents))
        .routes(routes!(lists::audit))
        .routes(routes!(events::ticket))
        .routes(routes!(events::of_room))
        .routes(routes!(events::of_all))
}

fn jobs_api() -> OpenApiRouter<Arc<App>> {
    use routes::jobs;
    OpenApiRouter::new()
        .routes(routes!(jobs::create, jobs::look))
        .routes(routes!(jobs::acquire))
        .routes(routes!(jobs::refresh))
        .routes(routes!(jobs::release))
        .routes(routes!(jobs::complete))
        .routes(routes!(jobs::fail))
        .routes(routes!(jobs::reset))
}

fn leases_api() -> OpenApiRouter<Arc<App>> {
    use routes::leases;
    OpenApiRouter::new()
        .routes(routes!(leases::acquire, leases::renew, leases::release, leases::look))
        .routes(routes!(leases::cancel))
}

/// The Pusher protocol, which describes itself elsewhere.
fn sockets_api(doors: Doors) -> Router<Arc<App>> {
    use axum::routing::{any, get, post};
    use routes::{broadcast, sockets};
    match doors {
        Doors::All => Router::new()
            .route("/app/{key}", any(sockets::connect))
            .route("/broadcasting/auth", post(sockets::authorize))
            .route("/pusher/auth", post(sockets::authorize))
            .route("/apps/{id}/events", post(broadcast::trigger))
            .route(
                "/apps/{id}/batch_events",
                post(broadcast::trigger_batch).layer(DefaultBodyLimit::max(broadcast::LONGEST_BATCH)),
            )
            .route("/apps/{id}/channels", get(broadcast::channels))
            .route("/apps/{id}/channels/{channel}", get(broadcast::channel))
            .route("/apps/{id}/channels/{channel}/users", get(broadcast::users))
            .route("/apps/{id}/users/{user}/terminate_connections", post(broadcast::terminate))
            .route("/up", get(broadcast::up)),
        Doors::Jobs => Router::new(),
    }
}

fn service_api() -> OpenApiRouter<Arc<App>> {
    use routes::{service, telemetry};
    OpenApiRouter::new()
        .routes(routes!(service::healthz))
        .routes(routes!(service::readyz))
        .routes(routes!(service::metrics))
        .routes(routes!(service::me))
        .routes(routes!(service::flags))
        .routes(routes!(telemetry::collect))
}

/// The origins whose pages may call. Without any, browsers refuse all of them by themselves.
fn cors(config: &Config) -> Option<CorsLayer> {
    if config.cors_origins.is_empty() {
        return None;
    }
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers(
            [
                "authorization",
                "content-type",
                "lease-id",
                "x-tab-id",
                "last-event-id",
                "if-none-match",
                "accept-language",
                "x-csrf-token",
                "x-requested-with",
                "x-socket-id",
            ]
            .map(HeaderName::from_static),
        )
        .expose_headers(["etag", "retry-after"].map(HeaderName::from_static))
        .max_age(std::time::Duration::from_secs(3_600));
    if config.cors_origins.iter().any(|origin| origin == "*") {
        return Some(layer.allow_origin(AllowOrigin::any()));
    }
    let origins = config.cors_origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
    Some(layer.allow_origin(AllowOrigin::list(origins)))
}

fn random_secret() -> Result<Vec<u8>, getrandom::Error> {
    let mut secret = vec![0; 32];
    getrandom::fill(&mut secret)?;
    Ok(secret)
}
