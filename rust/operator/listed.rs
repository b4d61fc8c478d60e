//! Lists that an operator states about itself.

use super::param::Attrs;
use std::sync::Arc;

/// A list that is the same for all parameters, or follows from them.
#[derive(Clone)]
pub enum Listed<T> {
    /// The same for all parameters.
    Fixed(Arc<[T]>),
    /// Computed from the parameters.
    By(Arc<dyn Fn(&Attrs) -> Vec<T> + Send + Sync>),
}

impl<T: Clone> Listed<T> {
    /// The same list for all parameters.
    pub fn fixed(items: &[T]) -> Self {
        Listed::Fixed(items.into())
    }

    /// The list that `f` computes from the parameters.
    pub fn by(f: impl Fn(&Attrs) -> Vec<T> + Send + Sync + 'static) -> Self {
        Listed::By(Arc::new(f))
    }

    /// Calls `f` with the list; a fixed one is not copied.
    #[inline]
    pub fn with<R>(&self, attrs: &Attrs, f: impl FnOnce(&[T]) -> R) -> R {
        match self {
            Listed::Fixed(items) => f(items),
            Listed::By(make) => f(&make(attrs)),
        }
    }

    /// A copy of the list.
    pub fn to_vec(&self, attrs: &Attrs) -> Vec<T> {
        self.with(attrs, <[T]>::to_vec)
    }

    /// Returns true if the list is empty for all parameters.
    pub fn is_never(&self) -> bool {
        matches!(self, Listed::Fixed(items) if items.is_empty())
    }
}
