//! A link between two TAP devices: `tap_link INITIATOR TARGET SETTINGS`, where the first two are a name or
//! `name@/run/netns/namespace`, and the last is JSON as `LinkSettings` reads it. Prints `ready`, runs until standard input
//! ends, prints its log as JSON.

use std::error::Error;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

use iscsitrace_lab::link::LinkSettings;
use iscsitrace_lab::world::tap::{TapLink, TapSettings};

fn tap(argument: &str) -> TapSettings {
    match argument.split_once('@') {
        Some((name, namespace)) => TapSettings { name: name.into(), namespace: Some(namespace.into()) },
        None => TapSettings { name: argument.into(), namespace: None },
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [initiator, target, settings] = arguments.as_slice() else {
        return Err("usage: tap_link INITIATOR TARGET SETTINGS".into());
    };
    let settings: LinkSettings = serde_json::from_str(settings)?;
    let taps = TapLink::open(&tap(initiator), &tap(target))?;
    println!("ready");
    let stop = AtomicBool::new(false);
    let log = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            stop.store(true, Ordering::Relaxed);
        });
        taps.run(&settings, &stop, &AtomicBool::new(false))
    })?;
    println!("{}", serde_json::to_string(&log)?);
    Ok(())
}
