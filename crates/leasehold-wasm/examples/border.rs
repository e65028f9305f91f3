//! Prints `web/src/border.ts`, as `cargo xtask web` writes it; with the argument `autosave`,
//! `web/src/autosave/border.ts`; with `documents`, `web/src/documents/border.ts`.

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("autosave") => print!("{}", leasehold_wasm::autosave_typescript()),
        Some("documents") => print!("{}", leasehold_wasm::documents_typescript()),
        _ => print!("{}", leasehold_wasm::typescript()),
    }
}
