//! Tuning of the number of connections against our own target, which serves commands in parallel or one at a time.

use super::*;
use crate::protocol::target::{Ending, ServiceDelay, ServiceOrder, TaskEnd};
use crate::workload::tuning::{Decision, TuningRule, TuningSettings};

const RULES: [TuningRule; 2] = [TuningRule::GoldenSection, TuningRule::Predicted];
const MS: i64 = 1_000_000;

fn tuned(rule: TuningRule, change: impl Fn(&mut ClientSettings)) -> Client {
    let tuning = TuningSettings { rule, measure_ns: 2 * MS, ..TuningSettings::default() };
    let workload = WorkloadSettings {
        block_size_bytes: 4096,
        queue_depth: 1,
        total_bytes: None,
        duration_ns: Some(100 * MS),
        verify: false,
        tuning: Some(tuning),
        ..workload(Operation::Read)
    };
    let mut settings = settings(1, workload);
    change(&mut settings);
    Client::new(settings).unwrap()
}

fn slow(settings: &mut PortalSettings) {
    settings.read_delay = ServiceDelay::Fixed { delay_ns: 100_000 };
    settings.write_delay = settings.read_delay;
}

#[test]
fn all_available_connections_are_used_if_each_adds_throughput() {
    for rule in RULES {
        for operation in [Operation::Read, Operation::Write] {
            let mut client = tuned(rule, |settings| settings.workload.operation = operation);
            let mut portals = [portal(slow)];
            let results = run(&mut client, &mut portals);
            assert_eq!(results.errors, [] as [String; 0]);
            let tuning = results.tuning.unwrap();
            // of 8 that it allows
            assert_eq!((tuning.settled_connections, tuning.most_connections), (Some(8), 8), "{tuning:?}");
            let reason = "login refused: Too many connections (0x0206) (RFC 7143 section 11.13.5)";
            assert_eq!(tuning.refusal.as_deref(), Some(reason));
            let (first, last) = (&tuning.steps[0], tuning.steps.last().unwrap());
            assert_eq!((last.connections, last.decision), (8, Decision::Watch));
            let each = |step: &results::TuningStep| step.goodput_bytes_per_s / f64::from(step.connections);
            assert!((each(first) / each(last) - 1.0).abs() < 0.1, "{tuning:?}");
            // a command takes its service time and the time of the steps
            assert!(tuning.steps.iter().all(|step| (1e-4..1.2e-4).contains(&step.command_s.unwrap())), "{tuning:?}");
            let log = portals[0].log();
            let logged_in = log.connections.iter().filter(|connection| connection.session.is_some());
            assert!(logged_in.clone().all(|connection| connection.ending == Ending::LoggedOut));
            assert!(log.tasks.iter().all(|task| task.end == TaskEnd::Answered), "no task is lost");
        }
    }
}

#[test]
fn connections_are_removed_if_fewer_are_as_fast() {
    for rule in RULES {
        let mut client = tuned(rule, |_| {});
        let mut portals = [portal(|settings| {
            slow(settings);
            settings.service_order = ServiceOrder::OneAtATime;
        })];
        let results = run(&mut client, &mut portals);
        assert_eq!(results.errors, [] as [String; 0]);
        let tuning = results.tuning.unwrap();
        // two, because of the time between an answer and the next command
        assert!((1..=2).contains(&tuning.connections), "{tuning:?}");
        assert_eq!(tuning.settled_connections, Some(tuning.connections));
        assert!(tuning.converged_s.unwrap() < 0.1);
        let left = results.connections.iter().filter(|connection| connection.left_ns < Some(90 * MS)).count();
        assert_eq!(left, results.connections.len() - usize::from(tuning.connections));
        assert_eq!(results.connections.iter().map(|connection| connection.bytes).sum::<u64>(), results.read.bytes);
        // one at a time: a command every 0.1 ms, whatever the number of connections
        assert!((900..=1001).contains(&results.calls), "{}", results.calls);
    }
}

#[test]
fn each_connection_has_queue_depth_commands_in_flight() {
    let mut client = tuned(TuningRule::Predicted, |settings| settings.workload.queue_depth = 3);
    let mut portals = [portal(slow)];
    let results = run(&mut client, &mut portals);
    let tuning = results.tuning.unwrap();
    for step in &tuning.steps {
        // Little's law: commands in flight / latency
        let outstanding = step.goodput_bytes_per_s / 4096.0 * step.command_s.unwrap();
        assert!((outstanding / f64::from(3 * step.connections) - 1.0).abs() < 0.1, "{step:?}");
    }
}

#[test]
fn a_measurement_may_be_limited_by_bytes() {
    let mut client = tuned(TuningRule::GoldenSection, |settings| {
        let tuning = settings.workload.tuning.as_mut().unwrap();
        (tuning.measure_bytes, tuning.is_unsettled) = (Some(40_960), true);
    });
    let results = run(&mut client, &mut [portal(slow)]);
    let tuning = results.tuning.unwrap();
    let first = &tuning.steps[0];
    // ten blocks over four connections, measured at once: the last of them in the third round
    assert!((2.9e-4..4e-4).contains(&first.time_s), "{first:?}");
    assert_eq!(first.connections, 4);
}

#[test]
fn a_lost_connection_ends_the_run_and_keeps_its_measurements() {
    let mut client = tuned(TuningRule::GoldenSection, |_| {});
    let results = run_with(&mut client, &mut [portal(slow)], |now_ns, portal| {
        if now_ns == 5 * MS {
            portal.close(now_ns, 2);
        }
    });
    assert_eq!(results.error_count, 1);
    assert!(results.errors[0].contains("connection 2 lost"), "{:?}", results.errors);
    let tuning = results.tuning.unwrap();
    assert_eq!(tuning.steps.len(), 2, "{tuning:?}");
    assert_eq!(tuning.converged_s, None);
}

#[test]
fn tuning_is_for_one_session() {
    let mut settings =
        settings(2, WorkloadSettings { tuning: Some(TuningSettings::default()), ..workload(Operation::Read) });
    let words = "the number of connections can be tuned for one session of one target only, not for 2 sessions";
    assert_eq!(Client::new(settings.clone()).unwrap_err().to_string(), words);
    settings.targets.truncate(1);
    settings.workload.connections = 4;
    assert!(Client::new(settings).unwrap_err().to_string().starts_with("connections is 4"));
}
