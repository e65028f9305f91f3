use leasehold_client::{AcquireOptions, Leasehold};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let leasehold = Leasehold::open("leases.db")?; // or Leasehold::connect, for the leases of a server
    let lease = leasehold.acquire("run/nightly-report", AcquireOptions::default()).await?; // waits its turn
    println!("writing the report with fence {}", lease.fence()); // let its store refuse an older one
    lease.release().await?;
    Ok(())
}
