//! A simulated world that hunts the engine: clients, servers and a store on virtual time, and everything that can go
//! wrong between them. Unpublished; only this crate sees all the others.
//!
//! [`world::run`] lives through the world of a seed, and [`checker`] says which law did not hold in it. The server in
//! it is a shell around the product's own [`leasehold_store::writer::Writer`], and the clients hold by the product's own
//! [`leasehold_core::Keeper`]; the network, the disk and time are make-believe. `docs/proof.md` is the guide.

pub mod bug;
pub mod checker;
pub mod client;
pub mod database;
pub mod desk;
pub mod disk;
pub mod job_model;
pub mod law;
pub mod lease_ids;
pub mod load;
pub mod message;
pub mod model;
pub mod project;
pub mod register;
pub mod server;
pub mod setting;
pub mod shared_set;
mod small;
pub mod tabs;
pub mod walk;
pub mod world;
