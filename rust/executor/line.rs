//! The user's line behind what a thread pushes.
//!
//! The engine names in errors and reports the line that pushed an operation ([`Push::call_site`](crate::engine::Push)).
//! Only the caller of this layer knows that line, and between its call and the pushes lie executors, gradients and
//! copies; so it says it for the time of the call, and every push of the layer has it from here.

use std::cell::Cell;
use std::sync::Arc;

/// Where a line comes from.
#[derive(Clone)]
pub enum Line {
    /// Found beforehand: for a call that pushes much, or from where it cannot be asked for.
    Known(Option<Arc<str>>),
    /// Asked for at each push that needs it: for a call that mostly runs at once.
    Ask(fn() -> Option<Arc<str>>),
}

impl Default for Line {
    fn default() -> Self {
        Line::Known(None)
    }
}

thread_local! {
    static LINE: Cell<Line> = const { Cell::new(Line::Known(None)) };
}

/// Puts back the line that was there before.
struct Before(Line);

impl Drop for Before {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.0);
        let _ = LINE.try_with(|line| line.set(before));
    }
}

/// Runs `f`, whose pushes on this thread come from `line`.
#[inline]
pub fn at<R>(line: Line, f: impl FnOnce() -> R) -> R {
    // (While the thread ends there is no place for it any more.)
    let _before = LINE.try_with(|now| Before(now.replace(line)));
    f()
}

/// The line that this thread works for, as [`Push::call_site`](crate::engine::Push) wants it.
pub fn of_thread() -> Option<Arc<str>> {
    let look = |line: &Cell<Line>| {
        let now = line.take();
        line.set(now.clone());
        now
    };
    match LINE.try_with(look).unwrap_or_default() {
        Line::Known(line) => line,
        Line::Ask(ask) => ask(), // nothing is borrowed: it may run anything
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, at, of_thread};

    fn asked() -> Option<std::sync::Arc<str>> {
        Some("asked".into())
    }

    #[test]
    fn a_line_holds_for_the_time_of_a_call() {
        let now = || of_thread().map(|l| l.to_string());
        assert_eq!(now(), None);
        at(Line::Known(Some("outer".into())), || {
            assert_eq!(now().as_deref(), Some("outer"));
            at(Line::Ask(asked), || assert_eq!(now().as_deref(), Some("asked")));
            let failed = std::panic::catch_unwind(|| at(Line::Ask(asked), || panic!("expected")));
            assert!(failed.is_err());
            assert_eq!(now().as_deref(), Some("outer"));
            std::thread::spawn(|| assert!(of_thread().is_none())).join().unwrap();
        });
        assert_eq!(now(), None);
    }
}
