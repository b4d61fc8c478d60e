//! Recorders without an engine: which records are kept, nested, dropped and written.

use super::*;
use serde_json::Value;

fn recorder(name: &str, config: Config) -> (Recorder, PathBuf) {
    let path = std::env::temp_dir().join(format!("rsnet-{}-{name}.json", std::process::id()));
    let recorder = Recorder::default();
    recorder.configure(Config { path: path.clone(), ..config });
    recorder.set_running(true);
    (recorder, path)
}

fn events(path: &PathBuf) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    value["traceEvents"].as_array().unwrap().clone()
}

/// The names of begins and ends in their order, and whether every end belongs to the last begin.
fn edges(events: &[Value]) -> Vec<String> {
    let mut open = Vec::new();
    let mut seen = Vec::new();
    let mut last = 0.0;
    for event in events {
        let (ph, name) = (event["ph"].as_str().unwrap(), event["name"].as_str().unwrap());
        match ph {
            "B" => open.push(name.to_owned()),
            "E" => assert_eq!(open.pop().as_deref(), Some(name)),
            _ => continue,
        }
        let ts = event["ts"].as_f64().unwrap();
        assert!(ts >= last);
        last = ts;
        seen.push(format!("{ph} {name}"));
    }
    assert!(open.is_empty());
    seen
}

#[test]
fn spans_of_a_thread_are_nested_and_appended_to_a_whole_file() {
    let (recorder, path) = recorder("nested", Config::default());
    let cpu = Context::default();
    let run = |name: &'static str| recorder.operator(mode::IMPERATIVE, name, "", cpu);
    {
        let _outer = run("outer");
        drop(run("first"));
        drop(run("second"));
    }
    recorder.dump(false).unwrap();
    let inner = ["B outer", "B first", "E first", "B second", "E second", "E outer"];
    assert_eq!(edges(&events(&path)), inner);
    drop(run("third"));
    recorder.dump(true).unwrap();
    assert_eq!(edges(&events(&path))[6..], ["B third", "E third"]);
    assert_eq!(recorder.state(), State::Stopped);
    assert!(run("never").is_none());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn what_is_not_asked_for_is_not_recorded() {
    let (recorder, path) = recorder("modes", Config { mode: mode::SYMBOLIC, ..Config::default() });
    assert!(recorder.begin(mode::IMPERATIVE).is_none());
    assert!(recorder.begin(mode::SYMBOLIC | mode::API).is_some());
    recorder.set_paused(true);
    assert_eq!(recorder.state(), State::Paused);
    assert!(recorder.begin(mode::SYMBOLIC).is_none());
    recorder.set_paused(false);
    assert!(recorder.begin(mode::OWN).is_some());
    assert!(!path.exists());
}

#[test]
fn a_span_that_outlives_its_session_is_forgotten() {
    let (recorder, path) = recorder("session", Config::default());
    let late = recorder.operator(mode::SYMBOLIC, "late", "", Context::default());
    recorder.dump(true).unwrap();
    recorder.set_running(true);
    drop(late);
    recorder.dump(true).unwrap();
    assert_eq!(events(&path), Vec::<Value>::new());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn threads_lose_nothing_and_the_statistics_are_those_of_the_trace() {
    let (recorder, path) = recorder("threads", Config { aggregates: true, ..Config::default() });
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    drop(recorder.operator(mode::IMPERATIVE, "op", "", Context::default()));
                }
            });
        }
    });
    let text = recorder.summary(Format::Json, SortBy::Total, false, false).unwrap();
    let figures: Value = serde_json::from_str(&text).unwrap();
    let figures = &figures["Time"][OPERATOR]["op"];
    assert_eq!(figures["Count"], 8000);
    recorder.dump(true).unwrap();
    let sum = |ph: &str| -> f64 {
        let of = |e: &Value| if e["ph"] == ph { e["ts"].as_f64().unwrap() } else { 0.0 };
        events(&path).iter().map(of).sum()
    };
    let total = figures["Total"].as_f64().unwrap();
    assert!((sum("E") - sum("B") - total * 1000.0).abs() < 1e-3 * 8000.0);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_forked_child_is_stopped_and_empty() {
    let (recorder, path) = recorder("fork", Config::default());
    drop(recorder.operator(mode::IMPERATIVE, "op", "", Context::default()));
    recorder.before_fork().release_in_child();
    assert_eq!(recorder.state(), State::Stopped);
    recorder.set_running(true);
    recorder.dump(true).unwrap();
    assert_eq!(events(&path), Vec::<Value>::new());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn who_writes_to_the_file_holds_up_nobody_and_no_fork() {
    let (recorder, path) = recorder("writing", Config::default());
    let output = recorder.output();
    let _writing = output.lock();
    recorder.set_paused(true);
    recorder.configure(Config { path: path.clone(), ..Config::default() });
    assert_eq!(recorder.state(), State::Paused);
    recorder.before_fork().release_in_child();
    assert_eq!(recorder.state(), State::Stopped);
    recorder.set_running(true);
    drop(recorder.operator(mode::IMPERATIVE, "op", "", Context::default()));
    recorder.dump(true).unwrap();
    assert_eq!(edges(&events(&path)), ["B op", "E op"]);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_session_begins_with_no_scopes() {
    let (recorder, path) = recorder("scopes", Config::default());
    set_scope(Some("net:".into()));
    for _ in 0..2 {
        recorder.set_running(true);
        recorder.memory(Context::default(), 64, 64);
        recorder.memory(Context::default(), 64, 128);
        recorder.dump(true).unwrap();
        let values =
            events(&path).into_iter().filter_map(|e| e["args"]["net:Memory: cpu/0"].as_i64());
        assert_eq!(values.collect::<Vec<_>>(), [64, 128]);
        assert!(recorder.scopes.lock().is_empty());
    }
    set_scope(None);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_thread_has_the_systems_number_and_name() {
    let named = std::thread::Builder::new().name("called so".to_owned());
    let seen = || (thread::number(), thread::name());
    let (number, name) = named.spawn(seen).unwrap().join().unwrap();
    assert_eq!(name, "called so");
    assert_ne!(number, thread::number());
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let recorder = Recorder::default();
    recorder.configure(Config { path: "/no such folder/trace.json".into(), ..Config::default() });
    let error = recorder.dump(true).unwrap_err().to_string();
    assert!(error.contains("/no such folder/trace.json"), "{error}");
}
