//! A simulated world that hunts the engine: clients, servers and a store on virtual time, and everything that can go
//! wrong between them. Unpublished; only this crate sees all the others.
