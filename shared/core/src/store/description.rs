//! [`ListingDescription`]: what a host publishes, packed into one allocation.

use core::fmt;
use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;
use std::sync::Arc;

use crate::limits::{
    ATTRIBUTE_KEY_LEN_MAX, ATTRIBUTE_VALUE_LEN_MAX, ATTRIBUTES_MAX, NAME_LEN_MAX, PROTOCOL_LEN_MAX,
    SLOT_LEN_MAX,
};

/// Whether a listing is found by browsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// Browsed by everybody in the tenant.
    Public,
    /// Found by its id or join code only.
    Unlisted,
}

/// What a [`ListingDescription`] is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptionParts {
    /// The game's protocol; browsing is scoped by it. At most [`PROTOCOL_LEN_MAX`] bytes.
    pub protocol: String,
    /// Shown to players. At most [`NAME_LEN_MAX`] bytes.
    pub name: String,
    /// Whether it is browsed.
    pub visibility: Visibility,
    /// Players it takes.
    pub player_capacity: u32,
    /// Free-form properties, sorted by key, keys unique. At most [`ATTRIBUTES_MAX`] of at most
    /// [`ATTRIBUTE_KEY_LEN_MAX`] and [`ATTRIBUTE_VALUE_LEN_MAX`] bytes.
    pub attributes: Vec<(String, String)>,
    /// A name, unique in the tenant, under which the same owner's next registration replaces this one. At most
    /// [`SLOT_LEN_MAX`] bytes.
    pub slot: Option<String>,
}

/// A part is longer than its limit, or the attributes are not sorted by unique keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part of the description breaks its limit, or its attributes are not sorted by unique keys")]
pub struct MalformedDescription;

/// The immutable description of a joinable session. Clones share its text.
///
/// A million listings are held in memory, and a page looks into hundreds of them: so all texts lie in one string,
/// one behind the other. What is not in the struct stands before its text as a character whose code is the length,
/// so the string is cut where its characters begin and nothing is decoded twice.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ListingDescription {
    /// Protocol, name, slot; then for each attribute the two lengths, its key and its value.
    text: Arc<str>,
    player_capacity: u32,
    mask: AttributeMask,
    visibility: Visibility,
    protocol_len: u8,
    name_len: u8,
    slot_len: Option<u8>,
}

impl ListingDescription {
    /// Packs `parts`.
    ///
    /// # Errors
    /// [`MalformedDescription`] when they break a limit or an order stated at [`DescriptionParts`].
    pub fn new(parts: &DescriptionParts) -> Result<Self, MalformedDescription> {
        let short = |text: &str, max: usize| {
            let len = Some(text.len()).filter(|&len| len <= max);
            len.and_then(|len| u8::try_from(len).ok()).ok_or(MalformedDescription)
        };
        let protocol_len = short(&parts.protocol, PROTOCOL_LEN_MAX)?;
        let name_len = short(&parts.name, NAME_LEN_MAX)?;
        let slot_len = parts.slot.as_deref().map(|slot| short(slot, SLOT_LEN_MAX)).transpose()?;
        let sorted = parts.attributes.is_sorted_by(|(one, _), (next, _)| one < next);
        if parts.attributes.len() > ATTRIBUTES_MAX || !sorted {
            return Err(MalformedDescription);
        }
        let mut text = format!("{}{}{}", parts.protocol, parts.name, parts.slot.as_deref().unwrap_or(""));
        for (key, value) in &parts.attributes {
            text.push(length(key, ATTRIBUTE_KEY_LEN_MAX)?);
            text.push(length(value, ATTRIBUTE_VALUE_LEN_MAX)?);
            text.push_str(key);
            text.push_str(value);
        }
        Ok(Self {
            text: text.into(),
            player_capacity: parts.player_capacity,
            mask: parts.attributes.iter().map(|(key, value)| (&**key, &**value)).collect(),
            visibility: parts.visibility,
            protocol_len,
            name_len,
            slot_len,
        })
    }

    /// The game's protocol.
    #[must_use]
    pub fn protocol(&self) -> &str {
        &self.text[..self.protocol_len.into()]
    }

    /// The name shown to players.
    #[must_use]
    pub fn name(&self) -> &str {
        let start = usize::from(self.protocol_len);
        &self.text[start..start + usize::from(self.name_len)]
    }

    /// Whether it is browsed.
    #[must_use]
    pub const fn visibility(&self) -> Visibility {
        self.visibility
    }

    /// Players it takes.
    #[must_use]
    pub const fn player_capacity(&self) -> u32 {
        self.player_capacity
    }

    /// The name under which the same owner's next registration replaces this one.
    #[must_use]
    pub fn slot(&self) -> Option<&str> {
        let start = usize::from(self.protocol_len) + usize::from(self.name_len);
        self.slot_len.map(|len| &self.text[start..start + usize::from(len)])
    }

    /// Keys and values, sorted by key.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'_> {
        let slot_len = self.slot_len.unwrap_or(0);
        let start = [self.protocol_len, self.name_len, slot_len].into_iter().map(usize::from).sum();
        Attributes(&self.text[start..])
    }

    /// Whether it may have all attributes of `mask`, judged without a look at its text: false is certain.
    #[must_use]
    pub const fn may_have(&self, mask: AttributeMask) -> bool {
        self.mask.0 & mask.0 == mask.0
    }

    /// The value of the attribute `key`.
    #[must_use]
    pub fn attribute(&self, key: &str) -> Option<&str> {
        let mut rest = self.attributes().0;
        loop {
            let mut chars = rest.chars();
            let (key_len, value_len) = (chars.next()? as usize, chars.next()? as usize);
            rest = chars.as_str();
            // Pages ask this of hundreds of listings: a key of another length is not looked at.
            if key_len == key.len() && rest.starts_with(key) {
                return rest.get(key_len..key_len + value_len);
            }
            rest = rest.get(key_len + value_len..)?;
        }
    }
}

/// Two of 32 bits for each attribute with its value. A set lacks what has a bit that it lacks; most that it does not have
/// are told so. A page examines hundreds of listings, and need not read the text of those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttributeMask(u32);

impl<'a> FromIterator<(&'a str, &'a str)> for AttributeMask {
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a str)>>(attributes: T) -> Self {
        let bits = |attribute: (&str, &str)| {
            let mut hasher = DefaultHasher::new();
            attribute.hash(&mut hasher);
            let hash = hasher.finish();
            1 << (hash % 32) | 1 << (hash / 32 % 32)
        };
        Self(attributes.into_iter().fold(0, |mask, attribute| mask | bits(attribute)))
    }
}

/// The attributes of a description, in order.
#[derive(Clone, Debug)]
pub struct Attributes<'a>(&'a str);

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let mut chars = self.0.chars();
        let key_len = chars.next()? as usize;
        let value_len = chars.next()? as usize;
        let (key, rest) = chars.as_str().split_at_checked(key_len)?;
        let (value, rest) = rest.split_at_checked(value_len)?;
        self.0 = rest;
        Some((key, value))
    }
}

/// The character that stands for the length of `text`: below the surrogates, as every limit is.
fn length(text: &str, max: usize) -> Result<char, MalformedDescription> {
    let len = u32::try_from(text.len()).ok().filter(|_| text.len() <= max);
    len.and_then(char::from_u32).ok_or(MalformedDescription)
}

impl fmt::Debug for ListingDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListingDescription")
            .field("protocol", &self.protocol())
            .field("name", &self.name())
            .field("visibility", &self.visibility)
            .field("player_capacity", &self.player_capacity)
            .field("attributes", &self.attributes().collect::<Vec<_>>())
            .field("slot", &self.slot())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> DescriptionParts {
        DescriptionParts {
            protocol: "gämé/1".to_owned(),
            name: "Über name".to_owned(),
            visibility: Visibility::Public,
            player_capacity: 8,
            attributes: Vec::new(),
            slot: None,
        }
    }

    #[test]
    fn every_part_comes_back() {
        let long = "ü".repeat(ATTRIBUTE_VALUE_LEN_MAX / 2);
        let attributes = vec![
            ("".to_owned(), "".to_owned()),
            ("k".repeat(ATTRIBUTE_KEY_LEN_MAX), long),
            ("map".to_owned(), "north".to_owned()),
        ];
        for slot in [None, Some(String::new()), Some("s".repeat(SLOT_LEN_MAX))] {
            let parts = DescriptionParts { attributes: attributes.clone(), slot, ..parts() };
            let packed = ListingDescription::new(&parts).unwrap();
            assert_eq!((packed.protocol(), packed.name()), ("gämé/1", "Über name"));
            assert_eq!(packed.slot(), parts.slot.as_deref());
            assert_eq!((packed.player_capacity(), packed.visibility()), (8, Visibility::Public));
            let unpacked = packed.attributes().map(|(key, value)| (key.to_owned(), value.to_owned()));
            assert_eq!(unpacked.collect::<Vec<_>>(), attributes);
            assert_eq!(packed.attribute("map"), Some("north"));
            assert_eq!(packed.attribute("ma"), None);
        }
    }

    /// What a description has is never denied, whatever it has; of what it does not have, little is thought possible.
    #[test]
    fn a_mask_denies_only_what_is_not_there() {
        let mut possible = 0;
        for round in 0..1_000 {
            let pairs = (0..1 + round % ATTRIBUTES_MAX).map(|it| (format!("k{it:02}"), format!("{round}")));
            let attributes: Vec<_> = pairs.collect();
            let packed = ListingDescription::new(&DescriptionParts { attributes, ..parts() }).unwrap();
            assert!(packed.may_have(AttributeMask::default()));
            assert!(packed.attributes().all(|it| packed.may_have([it].into_iter().collect())));
            assert!(packed.may_have(packed.attributes().collect()));
            let other = format!("{}", round + 1);
            if round % ATTRIBUTES_MAX == 2 {
                possible += usize::from(packed.may_have([("k00", &*other)].into_iter().collect()));
            }
        }
        assert!(possible <= 1_000 / ATTRIBUTES_MAX / 5, "{possible} of three attributes");
    }

    #[test]
    fn what_breaks_a_limit_is_refused() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let many = (0..=ATTRIBUTES_MAX).map(|it| pair(&format!("{it:02}"), "")).collect();
        let bad = [
            DescriptionParts { protocol: "p".repeat(PROTOCOL_LEN_MAX + 1), ..parts() },
            DescriptionParts { name: "n".repeat(NAME_LEN_MAX + 1), ..parts() },
            DescriptionParts { slot: Some("s".repeat(SLOT_LEN_MAX + 1)), ..parts() },
            DescriptionParts { attributes: many, ..parts() },
            DescriptionParts {
                attributes: vec![pair(&"k".repeat(ATTRIBUTE_KEY_LEN_MAX + 1), "")],
                ..parts()
            },
            DescriptionParts {
                attributes: vec![pair("k", &"v".repeat(ATTRIBUTE_VALUE_LEN_MAX + 1))],
                ..parts()
            },
            DescriptionParts { attributes: vec![pair("b", ""), pair("a", "")], ..parts() },
            DescriptionParts { attributes: vec![pair("a", "1"), pair("a", "2")], ..parts() },
        ];
        for parts in bad {
            assert_eq!(ListingDescription::new(&parts), Err(MalformedDescription), "{parts:?}");
        }
    }
}
