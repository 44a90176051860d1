//! Counters whose index is a closed enum: counting follows from the value a function returned.

use core::marker::PhantomData;

/// A closed set of labels.
pub trait Label: Copy + 'static {
    /// Every member, in the order of [`Label::index`].
    const ALL: &'static [Self];

    /// Its place in [`Label::ALL`].
    fn index(self) -> usize;

    /// Its name: stable, snake case, safe as a metric label and as an API code.
    fn name(self) -> &'static str;
}

/// Defines an enum of unit variants with a stable snake-case name each, as a [`Label`].
#[macro_export]
macro_rules! labels {
    ($(#[$doc:meta])* $vis:vis enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        $vis enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $crate::counter::Label for $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn index(self) -> usize {
                self as usize
            }

            fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

/// One count for each member of `L`, owned by one thread. `N` is the number of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters<L, const N: usize> {
    counts: [u64; N],
    labels: PhantomData<L>,
}

impl<L: Label, const N: usize> Counters<L, N> {
    /// All at zero.
    #[must_use]
    pub const fn new() -> Self {
        assert!(L::ALL.len() == N, "one counter for each label");
        Self { counts: [0; N], labels: PhantomData }
    }

    /// Counts one more of `label`.
    pub fn count(&mut self, label: L) {
        self.counts[label.index()] += 1;
    }

    /// Adds the counts of another.
    pub fn add_all(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
    }

    /// The count of `label`.
    #[must_use]
    pub fn get(&self, label: L) -> u64 {
        self.counts[label.index()]
    }

    /// The sum over all labels.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Each label with its count, in the order of the labels.
    pub fn iter(&self) -> impl Iterator<Item = (L, u64)> + '_ {
        L::ALL.iter().map(|&label| (label, self.get(label)))
    }
}

impl<L: Label, const N: usize> Default for Counters<L, N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    labels! {
        enum Fruit {
            Apple = "apple",
            Pear = "pear",
        }
    }

    #[test]
    fn each_label_has_its_own_count() {
        let mut counters = Counters::<Fruit, 2>::new();
        counters.count(Fruit::Pear);
        counters.count(Fruit::Pear);
        assert_eq!(
            counters.iter().map(|(f, n)| (f.name(), n)).collect::<Vec<_>>(),
            [("apple", 0), ("pear", 2)]
        );
        assert_eq!(counters.total(), 2);
    }
}
