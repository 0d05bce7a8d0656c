//! libFuzzer's program, for `tools/fuzz`: it runs the target that the environment variable FUZZ_TARGET names.
#![no_main]

use std::env;
use std::sync::LazyLock;

use iscsitrace_fuzz::targets::TARGETS;
use libfuzzer_sys::fuzz_target;

static RUN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    TARGETS.iter().find(|target| target.0 == name).expect("FUZZ_TARGET names a target").1
});

fuzz_target!(|data: &[u8]| RUN(data));
