//! What every request has in common: errors, extraction, validation, observation.

pub(crate) mod canonical;
pub(crate) mod extract;
pub(crate) mod observe;
pub(crate) mod problem;
pub(crate) mod validate;
