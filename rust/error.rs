//! The one error type of the core.
//!
//! An [`Error`] says what was wrong and where: operator, node, argument, and the line that pushed
//! the work. It is cheap to clone (one `Arc`), because a failed operation hands the same error to
//! every variable it would have written. A foreign exception (a Python one) travels inside as an
//! opaque payload, so the binding can raise the original object again.

use std::any::Any;
use std::fmt::{self, Write};
use std::sync::Arc;

/// The kind of mistake or failure that an [`Error`] reports; the binding maps each to an exception
/// class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A value that is not acceptable: wrong shape, range, count or contradiction.
    Value,
    /// A value of the wrong kind: dtype, object where an array is wanted.
    Type,
    /// An index outside of its axis.
    Index,
    /// A name that is not there.
    Key,
    /// An operator parameter that is missing, unknown or cannot be parsed.
    Parameter,
    /// Something an operator or device does not offer.
    NotImplemented,
    /// A file or buffer that cannot be read or written.
    Io,
    /// Memory that could not be allocated.
    Memory,
    /// A wait that was given up because of a signal or the time limit.
    Interrupted,
    /// An operation failed while running: a panic, or a callback that raised.
    Execution,
    /// A broken invariant of the core itself.
    Internal,
}

impl ErrorKind {
    /// Every kind, in the order of the discriminants.
    pub const ALL: [ErrorKind; 11] = [
        ErrorKind::Value,
        ErrorKind::Type,
        ErrorKind::Index,
        ErrorKind::Key,
        ErrorKind::Parameter,
        ErrorKind::NotImplemented,
        ErrorKind::Io,
        ErrorKind::Memory,
        ErrorKind::Interrupted,
        ErrorKind::Execution,
        ErrorKind::Internal,
    ];
}

/// `Result` with the core's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The most characters of a value that a message shows.
const SHOWN: usize = 80;

/// A value as messages show it: in one line, cut short.
pub fn shown(value: impl fmt::Display) -> String {
    let mut line = ShownLine { text: String::new(), left: Some(SHOWN), after_break: false };
    let _ = write!(line, "{value}"); // fails where the line is full
    line.text
}

/// Takes the characters of a value while there is room, with a blank for each line break and the
/// indentation after it.
struct ShownLine {
    text: String,
    /// Room for characters; `None` once the text has been cut.
    left: Option<usize>,
    after_break: bool,
}

impl ShownLine {
    fn push(&mut self, c: char) -> fmt::Result {
        match self.left.ok_or(fmt::Error)?.checked_sub(1) {
            Some(left) => {
                self.left = Some(left);
                self.text.push(c);
                Ok(())
            }
            None => {
                self.left = None;
                self.text.push_str("...");
                Err(fmt::Error)
            }
        }
    }
}

impl fmt::Write for ShownLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '\n' => self.after_break = true,
                ' ' if self.after_break => {}
                c => {
                    if std::mem::take(&mut self.after_break) {
                        self.push(' ')?;
                    }
                    self.push(c)?;
                }
            }
        }
        Ok(())
    }
}

/// Runs `f` and converts a panic to an error.
pub fn guarded<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Err(Error::from_panic(panic)))
}

/// Drops the payload of a panic. If that panics as well, the second payload is leaked.
pub fn drop_panic(panic: Box<dyn Any + Send>) {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}

/// Where an error arose; either text may be empty, but not both.
#[derive(Clone)]
struct Place {
    operator: String,
    node: String,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    place: Option<Place>,
    argument: Option<String>,
    call_site: Option<String>,
    payload: Option<Arc<dyn Any + Send + Sync>>,
    is_reported: bool,
    is_inherited: bool,
}

/// An error with its place: operator, node, argument and the user's line, as far as they are known.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

impl Error {
    /// A new error of `kind` saying `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Arc::new(Inner {
            kind,
            message: message.into(),
            place: None,
            argument: None,
            call_site: None,
            payload: None,
            is_reported: false,
            is_inherited: false,
        }))
    }

    /// An [`ErrorKind::Value`]: a value that is not acceptable.
    pub fn value(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Value, message)
    }

    /// An [`ErrorKind::Type`]: a value of the wrong kind.
    pub fn type_(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Type, message)
    }

    /// An [`ErrorKind::Memory`]: an allocation of so many bytes failed.
    #[cold]
    pub fn no_memory(bytes: usize) -> Self {
        Self::new(ErrorKind::Memory, format!("cannot allocate {bytes} bytes"))
    }

    /// An [`ErrorKind::Index`]: an index outside of its axis.
    pub fn index(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Index, message)
    }

    /// An [`ErrorKind::Key`]: a name that is not there.
    pub fn key(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Key, message)
    }

    /// An [`ErrorKind::Parameter`]: a parameter that is missing, unknown or wrong.
    pub fn parameter(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Parameter, message)
    }

    /// An [`ErrorKind::NotImplemented`]: something that is not offered.
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotImplemented, message)
    }

    /// An [`ErrorKind::Io`]: a file or buffer that cannot be read or written.
    pub fn io(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Io, message)
    }

    /// An [`ErrorKind::Execution`]: what failed while running.
    pub fn execution(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Execution, message)
    }

    /// An [`ErrorKind::Internal`]: a broken invariant of the core itself.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// An argument that has the wrong shape, dtype, count ...:
    /// `argument 'weight' has shape (10, 3), expected (10, 4)`.
    pub fn argument(
        argument: &str,
        what: &str,
        got: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Self {
        let got = shown(got);
        let message = format!("argument '{argument}' has {what} {got}, expected {expected}");
        Self::value(message).edit(|e| e.argument = Some(argument.to_owned()))
    }

    /// A value that is not acceptable: `invalid dtype 'real': expected one of: ...`.
    pub fn invalid(what: &str, got: impl fmt::Display, expected: impl fmt::Display) -> Self {
        Self::value(format!("invalid {what} '{}': expected {expected}", shown(got)))
    }

    /// A name that is none of those that are `known`.
    pub fn unknown(what: &str, name: &str, known: &[impl AsRef<str>]) -> Self {
        let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
        let (name, known) = (shown(name), known.join(", "));
        Self::value(format!("unknown {what} '{name}': expected one of: {known}"))
    }

    /// Wraps a foreign exception, or an error type of your own, which [`Error::payload`] returns;
    /// `message` is its text for readers without the payload.
    pub fn foreign(message: impl Into<String>, payload: Arc<dyn Any + Send + Sync>) -> Self {
        Self::new(ErrorKind::Execution, message).edit(|e| e.payload = Some(payload))
    }

    /// A wait given up because of a foreign exception.
    pub fn interrupted(message: impl Into<String>, payload: Arc<dyn Any + Send + Sync>) -> Self {
        Self::new(ErrorKind::Interrupted, message).edit(|e| e.payload = Some(payload))
    }

    /// Marks an error that was reported already: no wait raises it.
    pub fn reported(self) -> Self {
        self.edit(|e| e.is_reported = true)
    }

    /// Marks the error of work that a forked child has left to its parent, or that an exit has
    /// skipped: using its results raises it, an exit does not report it.
    pub fn inherited(self) -> Self {
        self.edit(|e| e.is_inherited = true)
    }

    /// The error of an operation that was skipped because the engine had been shut down.
    pub fn shut_down() -> Self {
        Self::execution("never computed: the engine was shut down first").inherited()
    }

    /// See [`Error::inherited`].
    pub fn is_inherited(&self) -> bool {
        self.0.is_inherited
    }

    /// The payload of a panic as an error.
    pub fn from_panic(panic: Box<dyn Any + Send>) -> Self {
        let text = panic
            .downcast_ref::<&str>()
            .map(|s| (*s).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "unknown panic".to_owned());
        drop_panic(panic);
        Self::execution(format!("panic: {text}"))
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Adds a line to the message.
    pub fn with_note(self, note: &str) -> Self {
        self.edit(|e| {
            e.message.push_str("\n  ");
            e.message.push_str(note);
        })
    }

    /// Names the place where the error arose: an operator and the node that it is. The layer that
    /// owns the node calls this. An error has one place, and the first one stays: an error can pass
    /// through several operators, one calling another, and the innermost is where it arose.
    pub fn at_node(self, operator: &str, node: &str) -> Self {
        if self.0.place.is_some() || operator.is_empty() && node.is_empty() {
            return self;
        }
        let (operator, node) = (operator.to_owned(), node.to_owned());
        self.edit(|e| e.place = Some(Place { operator, node }))
    }

    /// As [`Error::at_node`], for an operator, or an operation of the engine, that is no node.
    pub fn in_operator(self, operator: &str) -> Self {
        self.at_node(operator, "")
    }

    /// Names the user's line that pushed the failing work, unless known already.
    pub fn at_call_site(self, site: &str) -> Self {
        if self.0.call_site.is_some() || site.is_empty() {
            return self;
        }
        self.edit(|e| e.call_site = Some(site.to_owned()))
    }

    /// See [`Error::reported`].
    pub fn is_reported(&self) -> bool {
        self.0.is_reported
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The bare message, without its place.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The operator or engine operation that failed.
    pub fn operator(&self) -> Option<&str> {
        self.0.place.as_ref().map(|p| p.operator.as_str()).filter(|name| !name.is_empty())
    }

    /// The node of the graph, where there is one.
    pub fn node(&self) -> Option<&str> {
        self.0.place.as_ref().map(|p| p.node.as_str()).filter(|name| !name.is_empty())
    }

    /// The argument that is wrong, where one is known.
    pub fn argument_name(&self) -> Option<&str> {
        self.0.argument.as_deref()
    }

    /// The user's line that pushed the failing work.
    pub fn call_site(&self) -> Option<&str> {
        self.0.call_site.as_deref()
    }

    /// The foreign exception, if one travels inside.
    pub fn payload(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.0.payload.as_ref()
    }

    /// Returns true if both are clones of one error, not merely equal in text.
    pub fn same(&self, other: &Error) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.operator(), self.node()) {
            (Some(op), Some(node)) => write!(f, "{op} '{node}': ")?,
            (Some(op), None) => write!(f, "{op}: ")?,
            (None, Some(node)) => write!(f, "'{node}': ")?,
            (None, None) => {}
        }
        f.write_str(&self.0.message)?;
        if let Some(site) = &self.0.call_site {
            write!(f, "\n  pushed at {site}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.0.kind)
    }
}

impl std::error::Error for Error {}

/// [`Error::at_node`] on the error of a `Result`.
pub trait AtNode<T> {
    /// The same, with operator and node named on its error.
    fn at_node(self, operator: &str, node: &str) -> Result<T>;
}

impl<T> AtNode<T> for Result<T> {
    fn at_node(self, operator: &str, node: &str) -> Result<T> {
        self.map_err(|e| e.at_node(operator, node))
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, SHOWN, shown};

    #[test]
    fn values_are_shown_in_one_line_and_cut_short() {
        assert_eq!(shown("array([[1.,\n       [2.]])\n"), "array([[1., [2.]])");
        assert_eq!(shown("ü".repeat(SHOWN)), "ü".repeat(SHOWN));
        assert_eq!(shown("ü".repeat(SHOWN + 1)), "ü".repeat(SHOWN) + "...");
        let long = Error::invalid("name", "x".repeat(1000), "a short one").to_string();
        assert_eq!(long.chars().count(), "invalid name '...': expected a short one".len() + SHOWN);
    }

    #[test]
    fn the_innermost_place_stays_whole() {
        let inner = Error::value("wrong").at_node("relu", "r0");
        assert_eq!(inner.clone().at_node("Custom", "c0").to_string(), "relu 'r0': wrong");
        assert_eq!(inner.in_operator("segment").to_string(), "relu 'r0': wrong");
        let half = Error::value("wrong").in_operator("clip").at_node("norm", "n0");
        assert_eq!(half.to_string(), "clip: wrong", "the node is of another operator");
        let other = Error::value("wrong").at_node("", "x").at_node("norm", "n0");
        assert_eq!(other.to_string(), "'x': wrong", "the operator is of another node");
        assert_eq!((other.operator(), other.node()), (None, Some("x")));
    }

    #[test]
    fn empty_names_are_no_place() {
        let bare = Error::execution("failed").at_node("", "").in_operator("");
        assert_eq!((bare.operator(), bare.node()), (None, None));
        assert_eq!(bare.in_operator("push").to_string(), "push: failed");
    }

    #[test]
    fn the_first_call_site_stays() {
        let error = Error::value("wrong").at_call_site("").at_call_site("a.py:3");
        assert_eq!(error.at_call_site("b.py:1").call_site(), Some("a.py:3"));
    }
}
