//! Every target reads its committed inputs, and every folder of inputs has a target.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use iscsitrace_fuzz::targets::TARGETS;

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

#[test]
fn every_target_reads_its_inputs() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let folders: BTreeSet<PathBuf> = entries(&corpus)?.into_iter().collect();
    assert_eq!(folders, TARGETS.iter().map(|(name, _)| corpus.join(name)).collect());
    for (name, run) in TARGETS {
        let inputs = entries(&corpus.join(name))?;
        assert!(!inputs.is_empty(), "no input for {name}");
        for input in inputs {
            // the output of a test that fails
            println!("{}", input.display());
            run(&fs::read(&input)?);
        }
    }
    Ok(())
}
