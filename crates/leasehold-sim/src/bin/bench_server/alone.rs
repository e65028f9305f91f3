//! Comparisons of Leasehold with itself: what the default log and a thousand watchers cost, what ten minutes of work do,
//! what is left of a PostgreSQL behind it, and how much of a call is HTTP.

use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_sim::load::ForeignLoad;

use crate::calls::{ACQUIRE_STEP, Caller, Filler, Protocol, RENEW_STEP, STEPS, Target, watch};
use crate::mixed;
use crate::report::{Figures, Report, print_load};
use crate::servers::Servers;
use crate::{Args, drive, turn};

/// With so many connections.
const CONNECTIONS: usize = 64;

/// How many documents are watched.
const WATCHERS: usize = 1_000;

/// The default log to a file, and a thousand watchers of other documents, beside a server that has neither. The audit is
/// on in all of them, as it is by default.
pub async fn extras(args: &Args) -> Result<()> {
    let mut servers = Servers::none()?;
    servers.leasehold(&args.program, "plain", &["--log", "warn"])?;
    servers.leasehold(&args.program, "log", &[])?;
    servers.leasehold(&args.program, "watchers", &["--log", "warn"])?;
    let mut streams = Vec::new();
    for number in 0..WATCHERS {
        streams.push(watch(servers.named("watchers")?, number).await?);
    }
    let load = ForeignLoad::start();
    let report = turns(args, &servers.targets).await?;
    for target in &servers.targets {
        print(target.name, report.figures(target.name, CONNECTIONS), report.figures("plain", CONNECTIONS));
    }
    print_load(load.cores());
    Ok(())
}

/// Two builds of the program and a Redis, turn by turn: what a change has brought on a machine that is not always as fast.
pub async fn builds(args: &Args) -> Result<()> {
    let mut servers = Servers::none()?;
    let beside = args.beside.as_ref().context("which other build? name it with --beside FILE")?;
    servers.leasehold(&args.program, "this", &["--log", "warn"])?;
    servers.leasehold(beside, "beside", &["--log", "warn"])?;
    servers.redis()?;
    let load = ForeignLoad::start();
    let mut report = Report::new();
    for _ in 0..args.rounds {
        for &connections in &args.connections {
            for target in &servers.targets {
                let figures = turn(target, connections, Duration::from_secs(args.seconds)).await?;
                report.add(target.name, connections, figures);
            }
        }
    }
    for &connections in &args.connections {
        println!("\n{connections} connections");
        for target in &servers.targets {
            print(
                target.name,
                report.figures(target.name, connections),
                report.figures("redis_aof", connections),
            );
        }
    }
    print_load(load.cores());
    Ok(())
}

/// How many turns a server that has worked for long and a fresh one take at the end.
const TURNS_BESIDE_A_FRESH_ONE: usize = 8;

/// One server under load, minute by minute; and then in turns with a fresh one, because a machine is not as fast after ten
/// minutes either.
pub async fn minutes(args: &Args) -> Result<()> {
    let mut servers = Servers::none()?;
    servers.leasehold(&args.program, "leasehold", &["--log", "warn"])?;
    let load = ForeignLoad::start();
    let first = turn(servers.named("leasehold")?, CONNECTIONS, Duration::from_secs(10)).await?;
    print("10 s", first, first);
    for minute in 1..=args.rounds {
        let figures = turn(servers.named("leasehold")?, CONNECTIONS, Duration::from_secs(60)).await?;
        print(&format!("{minute} min"), figures, first);
    }
    servers.leasehold(&args.program, "fresh", &["--log", "warn"])?;
    let mut report = Report::new();
    for _ in 0..TURNS_BESIDE_A_FRESH_ONE {
        for target in &servers.targets {
            let figures = turn(target, CONNECTIONS, Duration::from_secs(args.seconds)).await?;
            report.add(target.name, CONNECTIONS, figures);
        }
    }
    println!("\nin turns of {} s:", args.seconds);
    for target in &servers.targets {
        print(target.name, report.figures(target.name, CONNECTIONS), report.figures("fresh", CONNECTIONS));
    }
    print_load(load.cores());
    Ok(())
}

/// A server on PostgreSQL, beside a loop by hand that takes two trips for each step, as a decision in a program does.
pub async fn database(args: &Args) -> Result<()> {
    let mut servers = Servers::none()?;
    servers.postgres()?;
    let Target { address, process, .. } = *servers.named("postgres")?;
    let url = format!("postgres://postgres@{address}/postgres");
    servers.leasehold_on(&url, &args.program, "leasehold", &["--log", "warn"])?;
    servers.targets.push(Target {
        name: "two trips",
        address,
        protocol: Protocol::PostgresTwice,
        process,
        pusher_key: None,
    });
    let load = ForeignLoad::start();
    let report = turns(args, &servers.targets).await?;
    for target in &servers.targets {
        print(
            target.name,
            report.figures(target.name, CONNECTIONS),
            report.figures("two trips", CONNECTIONS),
        );
    }
    print_load(load.cores());
    Ok(())
}

/// What a renewal costs: every connection locks a document, and then renews it.
pub async fn renewals(args: &Args) -> Result<()> {
    let mut servers = Servers::none()?;
    servers.leasehold(&args.program, "leasehold", &["--log", "warn"])?;
    let (target, time) = (servers.named("leasehold")?, Duration::from_secs(args.seconds));
    let load = ForeignLoad::start();
    println!("connections   renewals/s      p50      p99   CPU");
    for &connections in &args.connections {
        let mut holders = Vec::new();
        for number in 0..connections {
            let mut holder = Caller::connect(target, number).await?;
            holder.call(ACQUIRE_STEP).await?;
            holders.push(holder.repeating(RENEW_STEP)?);
        }
        let Figures { cycles_per_s, p50_ms, p99_ms, cpu_us_per_request } =
            drive(target, holders, time).await?;
        let renewals = cycles_per_s * STEPS as f64;
        println!(
            "{connections:>11}   {renewals:>10.0}  {p50_ms:>4.2} ms  {p99_ms:>4.2} ms  {cpu_us_per_request:>3.0} µs"
        );
    }
    print_load(load.cores());
    Ok(())
}

/// How many documents a call of [`ceiling`] renews.
const TOGETHER: usize = 100;

/// What HTTP alone costs: health checks, which ask no store anything; and what is left of that cost when a call renews a
/// hundred documents, or locks, renews and releases as many.
pub async fn ceiling(args: &Args) -> Result<()> {
    let mut servers = Servers::none()?;
    servers.leasehold(&args.program, "leasehold", &["--log", "warn"])?;
    servers.mixed()?;
    let (target, time) = (servers.named("leasehold")?, Duration::from_secs(args.seconds));
    let load = ForeignLoad::start();
    println!(
        "connections   health checks/s   cycles/s x 3   renewals/s, {TOGETHER} a call   mixed commands/s, {} a call",
        mixed::TOGETHER
    );
    for &connections in &args.connections {
        let mut health = Vec::new();
        for connection in 0..connections {
            let request = "GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n";
            health.push(Caller::connect(target, connection).await?.with_request(request));
        }
        let health = drive(target, health, time).await?.cycles_per_s * 3.0;
        let single = turn(target, connections, time).await?.cycles_per_s * 3.0;
        // At the same time: by the time that one after the other had its locks, the first would have lost them.
        let holders: Vec<_> = (0..connections)
            .map(|connection| tokio::spawn(holder_of_many(target.clone(), connection)))
            .collect();
        let mut together = Vec::new();
        for holder in holders {
            together.push(holder.await??);
        }
        let together = drive(target, together, time).await?.cycles_per_s * 3.0 * TOGETHER as f64;
        let mut callers = Vec::new();
        for connection in 0..connections {
            let caller = Caller::connect(servers.named("mixed")?, connection).await?;
            callers.push(caller.with_requests(mixed::calls(connection)));
        }
        let mixed =
            drive(servers.named("mixed")?, callers, time).await?.cycles_per_s * 3.0 * mixed::TOGETHER as f64;
        println!("{connections:>11}   {health:>15.0}   {single:>12.0}   {together:>24.0}   {mixed:>29.0}");
    }
    print_load(load.cores());
    Ok(())
}

/// A connection that holds documents of its own, and renews all of them with every call.
async fn holder_of_many(target: Target, connection: usize) -> Result<Caller> {
    let mut filler = Filler::connect(&target).await?;
    let mut locks = Vec::new();
    for number in (connection * TOGETHER..).take(TOGETHER) {
        locks.push((number, filler.lock(number).await?));
    }
    Ok(filler.renewing(&locks))
}

/// All of them in turns.
async fn turns(args: &Args, targets: &[Target]) -> Result<Report> {
    let mut report = Report::new();
    for _ in 0..args.rounds {
        for target in targets {
            let figures = turn(target, CONNECTIONS, Duration::from_secs(args.seconds)).await?;
            report.add(target.name, CONNECTIONS, figures);
        }
    }
    Ok(report)
}

fn print(name: &str, figures: Figures, beside: Figures) {
    let Figures { cycles_per_s, p50_ms, p99_ms, cpu_us_per_request } = figures;
    let share = cycles_per_s / beside.cycles_per_s;
    println!(
        "{name:<10} {cycles_per_s:>9.0} cycles/s  {share:>5.2}  {p50_ms:>6.2} ms  {p99_ms:>6.2} ms  {cpu_us_per_request:>6.0} µs"
    );
}
