//! One host: registers, keeps its presence until told to stop, answers joiners.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use rendezvous_client::control::{ControlError, IdempotencyKey};
use rendezvous_client::driver::{Session, random_seed, resolve};
use rendezvous_client::host::{Host, HostEvent};
use rendezvous_client::{HostCredentials, Machine};
use rendezvous_shared::api::{PendingResponse, RegisterRequest, RegisterResponse, VisibilityBody};
use rendezvous_shared::id::{ListingId, Role};
use rendezvous_shared::limits::LEASE_MAX;
use rendezvous_shared::time::Clock;
use tokio::sync::watch;

use crate::ledger::Timed;
use crate::smoke::{Context, Tenant};
use crate::witness::Witness;

/// Time for BYE when told to stop.
const STOP_MAX: Duration = Duration::from_secs(2);

type Pending = Pin<Box<dyn Future<Output = Result<PendingResponse, ControlError>>>>;

/// Hosts until `stop` turns true. What goes wrong stands in the ledger.
pub(crate) async fn run(index: usize, context: Rc<Context>, mut stop: watch::Receiver<bool>) {
    let tenant = context.tenant_of(index);
    let result = tokio::select! {
        _ = stop.wait_for(|stop| *stop) => return,
        result = register(index, &context, tenant) => result,
    };
    let served = match result {
        Ok((session, listing)) => {
            let served = serve(index, &context, tenant, session, listing, &mut stop).await;
            // Also where the socket failed: what is not removed would stay until its lease ends.
            let _ = tenant.call(&context, "delete", || tenant.hosts.delete(listing)).await;
            served
        }
        Err(error) => Err(error),
    };
    if let Err(error) = served {
        context.trouble(format_args!("host {index}: {error}"));
        context.ledger.borrow_mut().host_failed(index);
    }
}

async fn register(
    index: usize,
    context: &Context,
    tenant: &Tenant,
) -> Result<(Session<Witness<Host>>, ListingId), String> {
    let request = RegisterRequest {
        protocol: "loadtest".to_owned(),
        name: format!("host {index}"),
        visibility: VisibilityBody::Public,
        player_capacity: 8,
        attributes: std::collections::BTreeMap::new(),
        slot: None,
        lease_ms: u64::try_from(LEASE_MAX.as_millis()).ok(),
    };
    let key = IdempotencyKey::from_text(format!("{}-host-{index}", context.run));
    let _turn = tenant.host_turns.acquire().await.map_err(|error| error.to_string())?;
    let asked = context.clock.now();
    let response = tenant.call(context, "register", || tenant.hosts.register(&request, &key)).await;
    let response = response.map_err(|error| error.to_string())?;
    let took = context.clock.now().since(asked);
    context.ledger.borrow_mut().time(Timed::Register, took);
    let session = bind(context, &response).await?;
    let address = context.address(session.local_addr().map_err(|error| error.to_string())?);
    let mut ledger = context.ledger.borrow_mut();
    ledger.hosts[index].listing = Some(response.listing.id);
    ledger.host_moved(index, address, false);
    Ok((session, response.listing.id))
}

async fn bind(context: &Context, response: &RegisterResponse) -> Result<Session<Witness<Host>>, String> {
    let server: SocketAddr = resolve(&response.udp).await.map_err(|error| error.to_string())?;
    let credentials = HostCredentials::from_response(response, server).map_err(|error| error.to_string())?;
    let seed = random_seed().map_err(|error| error.to_string())?;
    let host = Host::new(credentials, seed, context.clock.now());
    let witness = Witness::new(host, Role::Host, server, Rc::clone(&context.ledger));
    Session::bind(witness, server, context.clock).await.map_err(|error| error.to_string())
}

async fn serve(
    index: usize,
    context: &Context,
    tenant: &Tenant,
    mut session: Session<Witness<Host>>,
    listing: ListingId,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), String> {
    let mut pending: Option<Pending> = None;
    loop {
        let asked = async {
            match &mut pending {
                Some(asked) => asked.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            stamped = session.next() => {
                let stamped = stamped.map_err(|error| format!("the socket failed: {error}"))?;
                let mut ledger = context.ledger.borrow_mut();
                match &stamped.event {
                    HostEvent::Refreshed { round_trip, .. } => {
                        ledger.time(Timed::Presence, *round_trip);
                        ledger.host_present(index);
                    }
                    HostEvent::Attempt { attempt, event } => {
                        ledger.told(Role::Host, *attempt, event, stamped.at);
                    }
                    HostEvent::ChangePort => {
                        let local = session.local_addr().map_err(|error| error.to_string())?;
                        ledger.host_moved(index, context.address(local), true);
                    }
                    HostEvent::AttemptsPending if pending.is_none() => {
                        let control = tenant.hosts.clone();
                        pending = Some(Box::pin(async move { control.pending(listing, Duration::ZERO).await }));
                    }
                    HostEvent::PresenceRefused(refused) => return Err(format!("presence refused: {refused}")),
                    HostEvent::InstanceChanged { .. } => return Err("the server restarted".to_owned()),
                    HostEvent::AttemptsPending
                    | HostEvent::ChangeSecondPort
                    | HostEvent::Draining
                    | HostEvent::Closed { .. } => {}
                }
            }
            answer = asked => {
                pending = None;
                adopt(&mut session, answer);
            }
        }
        let closable = std::mem::take(&mut context.ledger.borrow_mut().hosts[index].closable);
        let (witness, _) = session.machine_mut();
        closable.into_iter().for_each(|attempt| witness.inner_mut().close_link(attempt));
    }
    say_bye(session).await;
    Ok(())
}

/// Binds to attempts whose NOTICE was lost. A refusal is no harm: the next ACK says it again.
fn adopt(session: &mut Session<Witness<Host>>, answer: Result<PendingResponse, ControlError>) {
    let (witness, now) = session.machine_mut();
    for pending in answer.into_iter().flat_map(|it| it.attempts).filter(|it| it.joiner_bound) {
        witness.inner_mut().bind(now, pending.id, Duration::from_millis(pending.remaining_ms));
    }
    witness.handle_timeout(now);
}

async fn say_bye(mut session: Session<Witness<Host>>) {
    let (witness, now) = session.machine_mut();
    witness.inner_mut().close(now);
    let closed = async {
        while let Ok(stamped) = session.next().await {
            if matches!(stamped.event, HostEvent::Closed { .. }) {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(STOP_MAX, closed).await;
}
