//! A hash of what the state of a pass is made of (`ring/state.rs`): the sources of this crate and of the one below, and
//! the versions of the libraries, whose types are part of it.
//!
//! All sources count, not the declarations of the state alone: nobody has to keep a list, and a state with the same layout
//! and another meaning is refused, too. The price is that a state ends with an upgrade of the program.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Relative to this crate.
const SOURCES: [&str; 3] = ["src", "../wire/src", "../Cargo.lock"];

fn main() {
    let mut hash = Sha256::new();
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
        for file in files(Path::new(source)) {
            hash.update(fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())));
        }
    }
    let layout: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    println!("cargo:rustc-env=STATE_LAYOUT={layout}");
}

/// The files below a place, in one order.
fn files(place: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(place) else { return vec![place.to_owned()] };
    let mut places: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    places.sort();
    places.iter().flat_map(|place| files(place)).collect()
}
