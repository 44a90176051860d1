//! One joiner: one attempt at one host, from its creation to both reports.

use std::rc::Rc;
use std::time::Duration;

use rendezvous_client::JoinerCredentials;
use rendezvous_client::control::IdempotencyKey;
use rendezvous_client::driver::{Session, random_seed, resolve};
use rendezvous_client::joiner::{Joiner, JoinerEvent};
use rendezvous_shared::api::AttemptRequest;
use rendezvous_shared::id::{AttemptId, ListingId, Role};
use rendezvous_shared::limits::ATTEMPT_DEFAULT;
use rendezvous_shared::time::{Clock, Instant};
use tokio::sync::Notify;

use crate::ledger::Timed;
use crate::smoke::Context;
use crate::witness::Witness;

/// Longest course of one attempt: its life, all punches, all reports.
const COURSE_MAX: Duration = Duration::from_secs(ATTEMPT_DEFAULT.as_secs() + 15);

/// Joins `host`. `intended` is when the plan wanted it to start: waiting for a turn counts into the time of the
/// creation where a rate is kept.
pub(crate) async fn run(
    index: u32,
    host: usize,
    listing: ListingId,
    intended: Option<Instant>,
    context: Rc<Context>,
) {
    match open(index, host, listing, intended, &context).await {
        Ok((session, id, host_over)) => {
            let course = course(session, id, &host_over, &context);
            if tokio::time::timeout(COURSE_MAX, course).await.is_err() {
                context.ledger.borrow_mut().lost(id, "never_ended");
            }
            context.ledger.borrow_mut().done(id);
        }
        Err((reason, detail)) => {
            context.trouble(format_args!("joiner {index}: {detail}"));
            context.ledger.borrow_mut().never_created(reason);
        }
    }
}

type Opened = (Session<Witness<Joiner>>, AttemptId, Rc<Notify>);

async fn open(
    index: u32,
    host: usize,
    listing: ListingId,
    intended: Option<Instant>,
    context: &Context,
) -> Result<Opened, (String, String)> {
    let ours = |detail: String| ("client".to_owned(), detail);
    let tenant = context.tenant_of(host);
    let key = IdempotencyKey::from_text(format!("{}-joiner-{index}", context.run));
    let request = AttemptRequest::default();
    let turn = tenant.joiner_turns.acquire().await.map_err(|error| ours(error.to_string()))?;
    let asked = intended.unwrap_or_else(|| context.clock.now());
    let answer = tenant
        .call(context, "create attempt", || tenant.joiners.create_attempt(listing, &request, &key))
        .await;
    drop(turn);
    let response = answer
        .map_err(|error| (format!("create_{}", error.code().unwrap_or("unreachable")), error.to_string()))?;
    let created = context.clock.now();
    context.ledger.borrow_mut().time(Timed::Create, created.since(asked));
    let server = resolve(&response.udp).await.map_err(|error| ours(error.to_string()))?;
    let credentials =
        JoinerCredentials::from_response(&response, server).map_err(|error| ours(error.to_string()))?;
    let seed = random_seed().map_err(|error| ours(error.to_string()))?;
    let joiner = Joiner::new(credentials, seed, created);
    let witness = Witness::new(joiner, Role::Joiner, server, Rc::clone(&context.ledger));
    let session =
        Session::bind(witness, server, context.clock).await.map_err(|error| ours(error.to_string()))?;
    let local = session.local_addr().map_err(|error| ours(error.to_string()))?;
    let host_over = context.ledger.borrow_mut().created(response.id, host, context.address(local), created);
    Ok((session, response.id, host_over))
}

/// Drives the attempt until both sides are over: a joiner that left at once could leave a host unconnected whose
/// last punch was lost.
async fn course(mut session: Session<Witness<Joiner>>, id: AttemptId, host_over: &Notify, context: &Context) {
    loop {
        let (own, host) = {
            let ledger = context.ledger.borrow();
            (ledger.is_over(Role::Joiner, id), ledger.is_over(Role::Host, id))
        };
        if own && host {
            return;
        }
        tokio::select! {
            () = host_over.notified(), if !host => {}
            stamped = session.next() => {
                let stamped = match stamped {
                    Ok(stamped) => stamped,
                    Err(error) => return context.ledger.borrow_mut().lost(id, &format!("socket_{}", error.kind())),
                };
                let mut ledger = context.ledger.borrow_mut();
                match &stamped.event {
                    JoinerEvent::Attempt(event) => ledger.told(Role::Joiner, id, event, stamped.at),
                    JoinerEvent::ChangePort => {
                        if let Ok(local) = session.local_addr() {
                            ledger.joiner_moved(id, context.address(local));
                        }
                    }
                    JoinerEvent::InstanceChanged { .. } => return ledger.lost(id, "server_restarted"),
                    JoinerEvent::Proved { .. } | JoinerEvent::ChangeSecondPort => {}
                }
            }
        }
    }
}
