//! How far the store is behind, as far as a ring can tell.

/// Share of the ring's boxes that are with the store. Each step sheds what is newer than what the next one sheds:
/// HELLO, then the BIND of a key not heard before, then its PRESENCE; what was begun is never shed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// Less than half: everything is taken.
    #[default]
    Light,
    /// Half or more: no HELLO.
    Half,
    /// Five eighths or more: nor a BIND of a key not heard before.
    FiveEighths,
    /// Three quarters or more: nor a PRESENCE of a key not heard before.
    ThreeQuarters,
}

impl Load {
    /// The load of a ring of which `busy` boxes of `boxes` are with the store.
    #[must_use]
    pub const fn of(busy: usize, boxes: usize) -> Self {
        match busy * 8 {
            eighths if eighths >= boxes * 6 => Self::ThreeQuarters,
            eighths if eighths >= boxes * 5 => Self::FiveEighths,
            eighths if eighths >= boxes * 4 => Self::Half,
            _ => Self::Light,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_told_apart() {
        for (busy, expected) in [
            (0, Load::Light),
            (31, Load::Light),
            (32, Load::Half),
            (39, Load::Half),
            (40, Load::FiveEighths),
            (47, Load::FiveEighths),
            (48, Load::ThreeQuarters),
            (64, Load::ThreeQuarters),
        ] {
            assert_eq!(Load::of(busy, 64), expected, "{busy}");
        }
    }
}
