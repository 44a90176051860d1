//! Which source addresses are looked at at all.

use std::net::IpAddr;

use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::limits::SOURCE_PORT_MIN;
use rendezvous_shared::outcome::DatagramOutcome;

use super::{HandlerOptions, Received};

/// The canonical source, if it may take part.
pub(super) fn admit(options: &HandlerOptions, received: &Received<'_>) -> Result<Endpoint, DatagramOutcome> {
    let source = Endpoint::from(received.source);
    let asked = received.local.unwrap_or(options.bound.ip());
    let is_asked = source.port() == options.bound.port() && source.ip() == asked.to_canonical();
    if is_asked || options.own.contains(&source) {
        return Err(DatagramOutcome::OwnAddress);
    }
    admit_endpoint(options, source)?;
    Ok(source)
}

/// Whether an endpoint may be answered and introduced.
pub(super) fn admit_endpoint(options: &HandlerOptions, endpoint: Endpoint) -> Result<(), DatagramOutcome> {
    if endpoint.port() < SOURCE_PORT_MIN {
        return Err(DatagramOutcome::BadSourcePort);
    }
    let ip: IpAddr = endpoint.ip();
    if options.policy.admits(ip) { Ok(()) } else { Err(DatagramOutcome::AddressPolicy) }
}
