//! A client in a few lines: requests put together item by item, responses taken apart.

use capstan_kmip::{Item, MemoryStore, Operation, Permitted, Requester, State, Tag, Value, answer, decode, encode};

pub(crate) const NOW_S: i64 = 1_790_000_000;

pub(crate) struct Client {
    pub(crate) objects: MemoryStore,
    pub(crate) requester: Requester,
    pub(crate) now_s: i64,
    pub(crate) major: i32,
    pub(crate) minor: i32,
}

/// What a request's header may say besides its version.
#[derive(Default, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) on_error: Option<u32>,
    pub(crate) response_len_max: Option<i32>,
    pub(crate) asynchronous: Option<bool>,
}

/// A batch item that was not done.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: u32,
    pub(crate) reason: Option<u32>,
}

impl Client {
    pub(crate) fn new() -> Self {
        let requester = Requester { domain: "library".to_owned(), permitted: Permitted::All };
        Self { objects: MemoryStore::new(), requester, now_s: NOW_S, major: 1, minor: 4 }
    }

    pub(crate) fn request(&self, options: Options, items: Vec<(Operation, Vec<Item>)>) -> Vec<u8> {
        let version = vec![
            Item::integer(Tag::PROTOCOL_VERSION_MAJOR, self.major),
            Item::integer(Tag::PROTOCOL_VERSION_MINOR, self.minor),
        ];
        let mut header = vec![Item::structure(Tag::PROTOCOL_VERSION, version)];
        header.extend(options.response_len_max.map(|len| Item::integer(Tag::MAXIMUM_RESPONSE_SIZE, len)));
        header.extend(options.asynchronous.map(|yes| Item::new(Tag::ASYNCHRONOUS_INDICATOR, Value::Boolean(yes))));
        header.extend(options.on_error.map(|option| Item::enumeration(Tag::BATCH_ERROR_CONTINUATION_OPTION, option)));
        header.push(Item::integer(Tag::BATCH_COUNT, items.len() as i32));
        let mut message = vec![Item::structure(Tag::REQUEST_HEADER, header)];
        message.extend(items.into_iter().enumerate().map(|(number, (operation, fields))| {
            let fields = vec![
                Item::enumeration(Tag::OPERATION, operation),
                Item::bytes(Tag::UNIQUE_BATCH_ITEM_ID, vec![number as u8]),
                payload(fields),
            ];
            Item::structure(Tag::BATCH_ITEM, fields)
        }));
        encode(&Item::structure(Tag::REQUEST_MESSAGE, message)).to_vec()
    }

    /// The payload of each item, or why there is none. What was decided is done.
    pub(crate) fn batch(&mut self, options: Options, items: Vec<(Operation, Vec<Item>)>) -> Vec<Result<Item, Failure>> {
        let decided = answer(&self.request(options, items), &self.requester, &self.objects, self.now_s);
        self.objects.apply(&decided.changes).unwrap();
        self.objects.apply(&decided.notes).unwrap();
        let response = decode(&decided.response, &Default::default()).unwrap();
        let items = response.items().iter().filter(|item| item.tag == Tag::BATCH_ITEM);
        items
            .map(|item| match (number(item, Tag::RESULT_STATUS), item.child(Tag::RESPONSE_PAYLOAD)) {
                (Some(0), Some(payload)) => Ok(payload.clone()),
                (Some(status), None) => Err(Failure { status, reason: number(item, Tag::RESULT_REASON) }),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    pub(crate) fn one(&mut self, operation: Operation, payload: Vec<Item>) -> Result<Item, Failure> {
        self.batch(Options::default(), vec![(operation, payload)]).remove(0)
    }

    pub(crate) fn state(&mut self, created: &Item) -> State {
        let asked = vec![uid(created), Item::text(Tag::ATTRIBUTE_NAME, "State")];
        let told = self.one(Operation::GetAttributes, asked).unwrap();
        let state = number(of(&told, &[Tag::ATTRIBUTE]), Tag::ATTRIBUTE_VALUE);
        State::from_number(state.unwrap()).unwrap()
    }
}

fn number(item: &Item, tag: Tag) -> Option<u32> {
    match item.child(tag)?.value {
        Value::Enumeration(number) => Some(number),
        _ => None,
    }
}

pub(crate) fn payload(items: Vec<Item>) -> Item {
    Item::structure(Tag::REQUEST_PAYLOAD, items)
}

/// The item at the end of a path.
pub(crate) fn of<'a>(item: &'a Item, path: &[Tag]) -> &'a Item {
    path.iter().fold(item, |item, tag| item.child(*tag).unwrap())
}

/// The Unique Identifier of a response.
pub(crate) fn uid(response: &Item) -> Item {
    of(response, &[Tag::UNIQUE_IDENTIFIER]).clone()
}

pub(crate) fn attribute(name: &str, value: Value) -> Item {
    Item::structure(Tag::ATTRIBUTE, vec![Item::text(Tag::ATTRIBUTE_NAME, name), Item::new(Tag::ATTRIBUTE_VALUE, value)])
}

pub(crate) fn custom(name: &str, value: &str) -> Item {
    attribute(name, Value::TextString(value.to_owned()))
}

pub(crate) fn name(text: &str) -> Item {
    let items = vec![Item::text(Tag::NAME_VALUE, text), Item::enumeration(Tag::NAME_TYPE, 1u32)];
    attribute("Name", Value::Structure(items))
}
