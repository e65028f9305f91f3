//! The project lock: the machine among other tabs, the guarded section, and the tables of the sources.

mod guard;
mod machine;
mod tables;
mod world;
