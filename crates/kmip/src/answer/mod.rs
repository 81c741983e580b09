//! From the bytes of a request to the bytes of its response, and what has to be changed for it.
//!
//! ```text
//! bytes --decode--> header, batch items --each over the view of those before--> response items --encode--> bytes
//!                                                  '--> changes, acts
//! ```
//! A batch is decided in order over one view, so that a later item sees what an earlier one made; an item that fails
//! leaves nothing behind, and `Undo` takes the whole batch back before anything was ever written. Nothing is read from
//! a clock, and every request has an answer, be it the shortest that the standard allows.

mod adjust;
mod attributes;
mod batch;
mod create;
mod cryptography;
mod get;
mod life;
mod locate;
mod operations;
mod query;
mod rekey;
mod template;

use zeroize::Zeroizing;

use crate::codec::Codec;
use crate::enumeration::{BatchErrorContinuation, Operation, ResultReason, ResultStatus};
use crate::fields::{Fields, Required};
use crate::refusal::Refused;
use crate::store::{AuditedAct, ObjectChange, ObjectStore};
use crate::ttlv::{Item, Limits, Tag, Value, decode, encode, encoded_len};
use crate::version::{VERSIONS, Version};
use crate::view::View;
use batch::Batch;
use operations::{Done, carry_out, operations};

/// Most items of one batch.
pub const BATCH_COUNT_MAX: usize = 256;

/// Longest response, in bytes: a batch of searches would else ask for any amount of memory.
const RESPONSE_LEN_MAX: usize = 4 << 20;

/// What is spoken to someone who does not say in which version, which every client of 1.x and 2.x can read.
const UNKNOWN: Version = Version::V1_4;

/// Who asks, as the connection's certificate says. Credentials within a message are read and not believed: they add
/// nothing to a certificate, and PyKMIP sends them when it is told to.
#[derive(Debug, Clone)]
pub struct Requester {
    /// Whose objects it may see and make: those of its domain alone.
    pub domain: String,
    /// What it may do with them.
    pub permitted: Permitted,
}

/// What a requester may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permitted {
    /// Every operation.
    All,
    /// These, and Query and Discover Versions, which tell nothing of objects.
    Only(Vec<Operation>),
}

impl Permitted {
    fn check(&self, operation: Operation) -> Result<(), Refused> {
        match self {
            Self::Only(operations)
                if !operations.contains(&operation)
                    && !matches!(operation, Operation::Query | Operation::DiscoverVersions) =>
            {
                Err(Refused::denied("this client may not do that: ask the compliance officer"))
            }
            Self::All | Self::Only(_) => Ok(()),
        }
    }
}

/// What was decided about a request.
pub struct RequestDecision {
    /// The response, to be sent once the changes are committed.
    pub response: Zeroizing<Vec<u8>>,
    /// What must be committed, all or none, before the response is sent; on a conflict the request is decided again.
    pub changes: Vec<ObjectChange>,
    /// What may be committed too, each by itself: that a fresh key was read. The response does not rest on it.
    pub notes: Vec<ObjectChange>,
    /// What the audit log has to say.
    pub acts: Vec<AuditedAct>,
}

/// Decides a request.
///
/// `now_s` is in seconds since 1970. There is always a response: bytes that are no KMIP message at all are answered
/// with `Invalid Message`, after which a server closes the connection, as it cannot know where the next message begins.
pub fn answer(request: &[u8], requester: &Requester, objects: &dyn ObjectStore, now_s: i64) -> RequestDecision {
    let whole = |version: Version, refused: &Refused| {
        let refused = refused.clone().told_by(Codec::of(version));
        RequestDecision {
            response: encode(&response(version, now_s, vec![failed(None, None, &refused)])),
            changes: Vec::new(),
            notes: Vec::new(),
            acts: vec![refused_act(None, &refused)],
        }
    };
    let message = match decode(request, &Limits::default()) {
        Ok(message) if message.tag == Tag::REQUEST_MESSAGE => message,
        Ok(_) => return whole(UNKNOWN, &Refused::message("this is not a request")),
        Err(malformed) => return whole(UNKNOWN, &Refused::message(malformed.to_string())),
    };
    let version = match version_of(&message) {
        Ok(version) => version,
        Err((nearest, refused)) => return whole(nearest, &refused),
    };
    let header = match Header::read(&message) {
        Ok(header) => header,
        Err(refused) => return whole(version, &refused),
    };
    header.decide(version, &message, requester, objects, now_s)
}

/// Refuses a whole request, for a server that cannot do now what was decided, or does not let the requester in.
///
/// The message is for whoever reads the client's log; it must hold nothing secret.
pub fn refuse(request: &[u8], reason: ResultReason, message: &str, now_s: i64) -> RequestDecision {
    let refused = Refused::new(reason, message.to_owned());
    let request = decode(request, &Limits::default()).ok();
    let version = request.as_ref().map_or(Ok(UNKNOWN), version_of).unwrap_or_else(|(nearest, _)| nearest);
    let refused = refused.told_by(Codec::of(version));
    let asked = request.iter().flat_map(Item::items).filter(|item| item.tag == Tag::BATCH_ITEM).take(BATCH_COUNT_MAX);
    let (mut items, mut acts): (Vec<Item>, Vec<AuditedAct>) = (Vec::new(), Vec::new());
    for item in asked {
        let operation = item.number(Tag::OPERATION).ok().flatten();
        items.push(failed(operation, item.child(Tag::UNIQUE_BATCH_ITEM_ID), &refused));
        acts.push(refused_act(operation, &refused));
    }
    if items.is_empty() {
        items.push(failed(None, None, &refused));
        acts.push(refused_act(None, &refused));
    }
    let response = encode(&response(version, now_s, items));
    RequestDecision { response, changes: Vec::new(), notes: Vec::new(), acts }
}

fn refused_act(operation: Option<u32>, refused: &Refused) -> AuditedAct {
    AuditedAct { operation: operation.and_then(Operation::from_number), uids: Vec::new(), outcome: Err(refused.reason) }
}

/// The version that a request is in, or the one to refuse it in.
fn version_of(message: &Item) -> Result<Version, (Version, Refused)> {
    let asked = asked_version(message).map_err(|refused| (UNKNOWN, refused))?;
    if VERSIONS.contains(&asked) {
        return Ok(asked);
    }
    let Version { major, minor } = asked;
    let why = format!("KMIP {major}.{minor} is not spoken here, but 1.0 to 1.4, 2.0 and 2.1");
    Err((asked.nearest(), Refused::new(ResultReason::UnsupportedProtocolVersion, why)))
}

fn asked_version(message: &Item) -> Result<Version, Refused> {
    let header = message.structure(Tag::REQUEST_HEADER)?.required(Tag::REQUEST_HEADER)?;
    let version = header.structure(Tag::PROTOCOL_VERSION)?.required(Tag::PROTOCOL_VERSION)?;
    let major = version.integer(Tag::PROTOCOL_VERSION_MAJOR)?.required(Tag::PROTOCOL_VERSION_MAJOR)?;
    let minor = version.integer(Tag::PROTOCOL_VERSION_MINOR)?.required(Tag::PROTOCOL_VERSION_MINOR)?;
    Ok(Version { major, minor })
}

/// What a request's header asks for, its version apart.
struct Header {
    response_len_max: usize,
    on_error: BatchErrorContinuation,
    synchronous: Result<(), Refused>,
}

impl Header {
    fn read(message: &Item) -> Result<Self, Refused> {
        let header = message.structure(Tag::REQUEST_HEADER)?.required(Tag::REQUEST_HEADER)?;
        let response_len_max = match header.integer(Tag::MAXIMUM_RESPONSE_SIZE)? {
            None => RESPONSE_LEN_MAX,
            Some(len) => usize::try_from(len)
                .map_err(|_| Refused::field("a negative Maximum Response Size"))?
                .min(RESPONSE_LEN_MAX),
        };
        // A boolean until KMIP 2.0, since 2.1 one of Mandatory, Optional and Prohibited.
        let synchronous = match header.child(Tag::ASYNCHRONOUS_INDICATOR).map(|item| &item.value) {
            Some(Value::Boolean(true) | Value::Enumeration(1)) => Err(Refused::new(
                ResultReason::OperationNotSupported,
                "everything is answered at once here: leave the Asynchronous Indicator out",
            )),
            None | Some(Value::Boolean(false) | Value::Enumeration(2 | 3)) => Ok(()),
            Some(_) => return Err(Refused::message("Asynchronous Indicator is of another type")),
        };
        let on_error = header
            .known(Tag::BATCH_ERROR_CONTINUATION_OPTION, BatchErrorContinuation::from_number)?
            .unwrap_or(BatchErrorContinuation::Stop);
        let count = header.integer(Tag::BATCH_COUNT)?.required(Tag::BATCH_COUNT)?;
        let items = message.items().iter().filter(|item| item.tag == Tag::BATCH_ITEM).count();
        if usize::try_from(count).ok() != Some(items) || items == 0 {
            return Err(Refused::message(format!("the Batch Count is {count}, and there are {items} batch items")));
        }
        if items > BATCH_COUNT_MAX {
            return Err(Refused::message(format!("a batch has at most {BATCH_COUNT_MAX} items here")));
        }
        Ok(Self { response_len_max, on_error, synchronous })
    }

    fn decide(
        self,
        version: Version,
        message: &Item,
        requester: &Requester,
        objects: &dyn ObjectStore,
        now_s: i64,
    ) -> RequestDecision {
        let mut batch = Batch::new(View::new(objects, &requester.domain), version, now_s, operations);
        let start = batch.view.mark();
        let (mut items, mut acts): (Vec<Item>, Vec<AuditedAct>) = (Vec::new(), Vec::new());
        let mut undo = None;
        let mut items_len = 0;
        for request in message.items().iter().filter(|item| item.tag == Tag::BATCH_ITEM) {
            let operation = request.number(Tag::OPERATION).ok().flatten();
            let id = request.child(Tag::UNIQUE_BATCH_ITEM_ID);
            // What is too large already is refused below, and the rest is not done.
            let room = if items_len > self.response_len_max { Err(too_large(items_len)) } else { Ok(()) };
            let ready = room.and_then(|()| self.synchronous.clone());
            let result = ready.and_then(|()| carry_out(&mut batch, request, &requester.permitted));
            let result = result.map_err(|refused| refused.told_by(batch.codec));
            acts.push(AuditedAct {
                operation: operation.and_then(Operation::from_number),
                uids: std::mem::take(&mut batch.uids),
                outcome: result.as_ref().map(|_| ()).map_err(|refused| refused.reason),
            });
            match result {
                Ok(Done { operation, payload }) => items.push(succeeded(operation, id, payload)),
                Err(refused) => {
                    items.push(failed(operation, id, &refused));
                    match self.on_error {
                        BatchErrorContinuation::Continue => {}
                        BatchErrorContinuation::Stop => break,
                        BatchErrorContinuation::Undo => {
                            undo = Some(start);
                            break;
                        }
                    }
                }
            }
            items_len += items.last().map_or(0, encoded_len);
        }
        if let Some(start) = undo {
            batch.view.back_to(start);
            let earlier = items.len() - 1;
            items[..earlier].iter_mut().for_each(undone);
            acts[..earlier].iter_mut().for_each(|act| act.outcome = Err(ResultReason::OperationCanceledByRequester));
        }
        let mut response = response(version, now_s, items);
        let (mut changes, mut notes) = batch.view.into_changes();
        let len = encoded_len(&response);
        if self.response_len_max < len {
            // The client could not read what was done, so nothing is.
            (changes, notes) = (Vec::new(), Vec::new());
            let refused = too_large(len);
            acts.iter_mut().for_each(|act| act.outcome = Err(ResultReason::ResponseTooLarge));
            refuse_all(&mut response, &refused);
        }
        RequestDecision { response: encode(&response), changes, notes, acts }
    }
}

fn too_large(len: usize) -> Refused {
    Refused::new(
        ResultReason::ResponseTooLarge,
        format!("the response has {len} bytes or more: ask for less at a time"),
    )
}

fn response(version: Version, now_s: i64, items: Vec<Item>) -> Item {
    let count = i32::try_from(items.len()).unwrap_or(i32::MAX);
    let header = vec![version.item(), Item::date_time(Tag::TIME_STAMP, now_s), Item::integer(Tag::BATCH_COUNT, count)];
    let mut message = vec![Item::structure(Tag::RESPONSE_HEADER, header)];
    message.extend(items);
    Item::structure(Tag::RESPONSE_MESSAGE, message)
}

fn succeeded(operation: Operation, id: Option<&Item>, payload: Vec<Item>) -> Item {
    let mut items = vec![Item::enumeration(Tag::OPERATION, operation)];
    items.extend(id.cloned());
    items.push(Item::enumeration(Tag::RESULT_STATUS, ResultStatus::Success));
    items.push(Item::structure(Tag::RESPONSE_PAYLOAD, payload));
    Item::structure(Tag::BATCH_ITEM, items)
}

fn failed(operation: Option<u32>, id: Option<&Item>, refused: &Refused) -> Item {
    let mut items = Vec::new();
    items.extend(operation.map(|operation| Item::enumeration(Tag::OPERATION, operation)));
    items.extend(id.cloned());
    items.extend(failure(refused));
    Item::structure(Tag::BATCH_ITEM, items)
}

fn failure(refused: &Refused) -> [Item; 3] {
    [
        Item::enumeration(Tag::RESULT_STATUS, ResultStatus::OperationFailed),
        Item::enumeration(Tag::RESULT_REASON, refused.reason),
        Item::text(Tag::RESULT_MESSAGE, refused.message.clone()),
    ]
}

/// What an item was before the whole batch was taken back.
fn undone(item: &mut Item) {
    let Value::Structure(fields) = &mut item.value else { return };
    fields.retain(|field| field.tag != Tag::RESPONSE_PAYLOAD && field.tag != Tag::RESULT_STATUS);
    fields.push(Item::enumeration(Tag::RESULT_STATUS, ResultStatus::OperationUndone));
}

fn refuse_all(response: &mut Item, refused: &Refused) {
    let Value::Structure(items) = &mut response.value else { return };
    for item in items.iter_mut().filter(|item| item.tag == Tag::BATCH_ITEM) {
        let Value::Structure(fields) = &mut item.value else { continue };
        fields.retain(|field| matches!(field.tag, Tag::OPERATION | Tag::UNIQUE_BATCH_ITEM_ID));
        fields.extend(failure(refused));
    }
}
