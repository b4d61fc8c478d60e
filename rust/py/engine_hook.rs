//! The engine's hook for Python: events are gathered where they happen, without Python, and handed
//! to the function in order on a callback thread.

use super::call_python::CallPython;
use super::callback_threads;
use super::runtime;
use crate::engine::{Event, Hook, HookEvent};
use crate::lock::Lock;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

struct Notification {
    event: &'static str,
    id: u64,
    name: String,
    ctx: String,
    time_ns: u64,
}

#[derive(Default)]
struct Events {
    list: Vec<Notification>,
    /// True while a delivery is queued or running.
    is_due: bool,
}

struct PythonHook {
    function: Py<PyAny>,
    events: Lock<Events>,
}

impl Hook for Arc<PythonHook> {
    fn event(&self, step: HookEvent<'_>) {
        let event = match step.event {
            Event::Queued => "queued",
            Event::Started => "started",
            Event::Finished => "finished",
        };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut events = self.events.lock();
        events.list.push(Notification {
            event,
            id: step.id,
            name: step.name.to_owned(),
            ctx: step.ctx.to_string(),
            time_ns: time.as_nanos() as u64,
        });
        if !std::mem::replace(&mut events.is_due, true) {
            drop(events);
            let this = self.clone();
            callback_threads::submit(Box::new(move |py| this.deliver(py)));
        }
    }
}

impl PythonHook {
    /// Delivers the queued events; one delivery at a time, so that they arrive in order.
    fn deliver(&self, py: Python<'_>) {
        loop {
            let list = {
                let mut events = self.events.lock();
                events.is_due = !events.list.is_empty();
                std::mem::take(&mut events.list)
            };
            if list.is_empty() {
                return;
            }
            for t in list {
                let args = (t.event, t.id, t.name, t.ctx, t.time_ns);
                if let Err(e) = self.function.bind(py).call_python(args) {
                    e.write_unraisable(py, Some(self.function.bind(py)));
                }
            }
        }
    }
}

/// Sets or clears the hook. Events of the one before may still be on their way.
pub fn set(py: Python<'_>, function: Option<Py<PyAny>>) {
    let hook = function.map(|function| -> Arc<dyn Hook> {
        Arc::new(Arc::new(PythonHook { function, events: Lock::default() }))
    });
    py.detach(|| runtime().engine.set_hook(hook));
}
