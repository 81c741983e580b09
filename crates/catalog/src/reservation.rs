//! Reservations: what jobs have for themselves, while others run beside them.
//!
//! A job reserves what it uses (a source, objects, volumes) in one short transaction: all of it or none. What one job
//! at a time can have it has alone; what several can stand on they share. The row says who has it, until when it is
//! believed without another word (the lease), and a generation, which no other reservation ever has. Whoever lost a
//! reservation is known by an older generation, and can record nothing under it.
//!
//! Whether an owner is gone is for the caller to judge: it sees processes, the catalog does not.
//!
//! A loss of power may take the last reservations, and ends the jobs that had them. A generation may then be given a
//! second time, and nothing stands under the first: whatever is recorded under one makes that durable, too.

use capstan_format::{ObjectId, Volser};

use crate::CatalogError;
use crate::catalog::{Catalog, number};
use crate::db::{Db, Transaction, params};
use crate::volume::MAIN_LIBRARY;

/// The name of the fact that counts generations.
const GENERATION_FACT: &str = "reservation generation";

/// What a job can reserve.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// A source: the right to make its next object.
    Source {
        /// The machine that it is of.
        client: String,
        /// Its name there.
        source: Vec<u8>,
    },
    /// An object. Alone, it is written or given up; shared, it is stood on or copied.
    Object(ObjectId),
    /// The right to make copies of an object.
    CopyOf(ObjectId),
    /// A volume: its place in a drive, and what becomes of it.
    Volume(Volser),
    /// The right to empty a volume: nothing is added to it meanwhile.
    Emptying(Volser),
    /// A pool. Alone, it is removed; shared, it is written to.
    Pool(String),
    /// The right to look for what volumes of a pool hold and the catalog lacks.
    CatchUp(String),
    /// A place among those who use the drives of a library: there are as many as it has drives.
    Seat {
        /// The library.
        library: String,
        /// Which, from 0.
        number: u32,
    },
    /// The right to move runs through the queue. The generation of its reservation is the server's term.
    Server,
}

/// What a job wants to reserve, all of it or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// What it must have alone.
    pub alone: Vec<Resource>,
    /// What others may share.
    pub shared: Vec<Resource>,
    /// Seats it needs.
    pub seats: Vec<SeatsWanted>,
}

/// Seats that a job needs at the drives of a library, whichever are free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatsWanted {
    /// The library.
    pub library: String,
    /// How many.
    pub wanted: u32,
    /// How many there are.
    pub of: u32,
}

impl Wish {
    /// This alone.
    pub fn alone(resource: Resource) -> Self {
        Self { alone: vec![resource], ..Self::default() }
    }

    /// Whether nothing is wished for. What is granted then has a generation, and nothing that could be renewed.
    pub fn is_empty(&self) -> bool {
        self.alone.is_empty() && self.shared.is_empty() && self.seats.iter().all(|seats| seats.wanted == 0)
    }
}

/// A resource that a job has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// What is reserved.
    pub resource: Resource,
    /// Whether nobody shares it.
    pub is_alone: bool,
    /// Who has it: words by which others see whether its process lives.
    pub owner: String,
    /// Higher than that of every reservation before.
    pub generation: u64,
    /// How long it holds without being renewed, nanoseconds since 1970.
    pub until_ns: i64,
}

/// What became of a wish to reserve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// All of it is reserved, under this generation.
    Held(u64),
    /// Nothing is: this is in the way.
    Refused(Reservation),
}

impl Resource {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Source { .. } => "source",
            Self::Object(_) => "object",
            Self::CopyOf(_) => "copy of",
            Self::Volume(_) => "volume",
            Self::Emptying(_) => "emptying",
            Self::Pool(_) => "pool",
            Self::CatchUp(_) => "catch-up",
            Self::Seat { .. } => "seat",
            Self::Server => "server",
        }
    }

    pub(crate) fn name(&self) -> Vec<u8> {
        match self {
            // No machine's name has a zero in it.
            Self::Source { client, source } => [client.as_bytes(), &[0], source].concat(),
            Self::Object(object) | Self::CopyOf(object) => object.0.to_vec(),
            Self::Volume(volser) | Self::Emptying(volser) => volser.as_str().as_bytes().to_vec(),
            Self::Pool(name) | Self::CatchUp(name) => name.as_bytes().to_vec(),
            Self::Seat { library, number } if library == MAIN_LIBRARY => number.to_be_bytes().to_vec(),
            Self::Seat { library, number } => [&number.to_be_bytes(), library.as_bytes()].concat(),
            Self::Server => Vec::new(),
        }
    }

    fn of(kind: &str, name: &[u8]) -> Option<Self> {
        let text = || std::str::from_utf8(name).ok();
        match kind {
            "source" => {
                let end = name.iter().position(|byte| *byte == 0)?;
                let client = String::from_utf8(name[..end].to_vec()).ok()?;
                Some(Self::Source { client, source: name[end + 1..].to_vec() })
            }
            "object" => name.try_into().ok().map(|id| Self::Object(ObjectId(id))),
            "copy of" => name.try_into().ok().map(|id| Self::CopyOf(ObjectId(id))),
            "volume" => text().and_then(|text| Volser::new(text).ok()).map(Self::Volume),
            "emptying" => text().and_then(|text| Volser::new(text).ok()).map(Self::Emptying),
            "pool" => text().map(|text| Self::Pool(text.to_owned())),
            "catch-up" => text().map(|text| Self::CatchUp(text.to_owned())),
            "server" => Some(Self::Server),
            "seat" => {
                let (number, library) = name.split_first_chunk()?;
                let library = if library.is_empty() { MAIN_LIBRARY } else { std::str::from_utf8(library).ok()? };
                Some(Self::Seat { library: library.to_owned(), number: u32::from_be_bytes(*number) })
            }
            _ => None,
        }
    }
}

const DELETE: &str = "DELETE FROM reservations WHERE generation = ?1";

impl Catalog {
    /// Reserves all that is wished for, or nothing. `is_over` says of a reservation whether its owner is gone: what
    /// such an owner had is free again.
    ///
    /// # Errors
    /// The database cannot be written. That somebody else has what is wished for is no error: see [`Grant`].
    pub fn reserve(
        &mut self,
        wish: &Wish,
        owner: &str,
        until_ns: i64,
        is_over: &dyn Fn(&Reservation) -> bool,
    ) -> Result<Grant, CatalogError> {
        self.repeatable(|catalog| catalog.reserve_once(wish, owner, until_ns, is_over))
    }

    fn reserve_once(
        &mut self,
        wish: &Wish,
        owner: &str,
        until_ns: i64,
        is_over: &dyn Fn(&Reservation) -> bool,
    ) -> Result<Grant, CatalogError> {
        let transaction = self.write_for_now()?;
        let mut held = rows(&transaction)?;
        for gone in held.extract_if(.., |held| is_over(held)) {
            transaction.execute(DELETE, params![number("a generation", gone.generation)?])?;
        }
        let alone = wish.alone.iter().map(|resource| (resource, true));
        let mut wanted: Vec<(Resource, bool)> = Vec::new();
        for (resource, is_alone) in alone.chain(wish.shared.iter().map(|resource| (resource, false))) {
            if let Some(other) = held.iter().find(|held| held.resource == *resource && (is_alone || held.is_alone)) {
                return Ok(Grant::Refused(other.clone()));
            }
            wanted.push((resource.clone(), is_alone));
        }
        for SeatsWanted { library, wanted: seats, of } in &wish.seats {
            let (mut seats, mut taken) = (*seats, None);
            for seat in (0..*of).map(|number| Resource::Seat { library: library.clone(), number }) {
                match held.iter().find(|held| held.resource == seat) {
                    Some(other) => taken = Some(other),
                    None if seats > 0 => {
                        seats -= 1;
                        wanted.push((seat, true));
                    }
                    None => {}
                }
            }
            if let (1.., Some(other)) = (seats, taken) {
                return Ok(Grant::Refused(other.clone()));
            }
        }
        let generation = next_generation(&transaction)?;
        for (resource, is_alone) in wanted {
            // Named twice it is reserved once.
            transaction.execute(
                "INSERT INTO reservations (kind, name, generation, alone, owner, until_ns)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (kind, name, generation) DO NOTHING",
                params![
                    resource.kind(),
                    resource.name(),
                    number("a generation", generation)?,
                    is_alone,
                    owner,
                    until_ns
                ],
            )?;
        }
        transaction.commit()?;
        Ok(Grant::Held(generation))
    }

    /// Makes reservations hold until a later time. Gives the generations of which nothing is left: somebody took what
    /// they had, as nobody had heard of their owner for too long.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn renew(&mut self, generations: &[u64], until_ns: i64) -> Result<Vec<u64>, CatalogError> {
        self.repeatable(|catalog| catalog.renew_once(generations, until_ns))
    }

    fn renew_once(&mut self, generations: &[u64], until_ns: i64) -> Result<Vec<u64>, CatalogError> {
        let transaction = self.write_for_now()?;
        let mut lost = Vec::new();
        for generation in generations {
            let renewed = transaction.execute(
                "UPDATE reservations SET until_ns = ?2 WHERE generation = ?1",
                params![number("a generation", *generation)?, until_ns],
            )?;
            if renewed == 0 {
                lost.push(*generation);
            }
        }
        transaction.commit()?;
        Ok(lost)
    }

    /// Lets go of all that was reserved under these generations.
    ///
    /// # Errors
    /// The database cannot be written; what was reserved then ends with its lease.
    pub fn release(&mut self, generations: &[u64]) -> Result<(), CatalogError> {
        self.repeatable(|catalog| {
            let transaction = catalog.write_for_now()?;
            for generation in generations {
                transaction.execute(DELETE, params![number("a generation", *generation)?])?;
            }
            transaction.commit()
        })
    }

    /// All reservations, the oldest first; among them those whose owners are gone.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn reservations(&self) -> Result<Vec<Reservation>, CatalogError> {
        rows(&self.db)
    }

    /// Goes on from another catalog's generations, which this one replaces: what was reserved there stays older than
    /// what is reserved here.
    ///
    /// # Errors
    /// The old catalog cannot be read, or this one cannot be written.
    pub fn take_over_generations(&mut self, old: &Self) -> Result<(), CatalogError> {
        let theirs = old.fact(GENERATION_FACT)?.and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        let ours = self.fact(GENERATION_FACT)?.and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        if theirs > ours { self.put_fact(GENERATION_FACT, &theirs.to_string()) } else { Ok(()) }
    }
}

/// Refuses what is recorded of a volume by somebody who had reserved it and has lost it since.
pub(crate) fn check_held(db: &Db, volser: &Volser, generation: u64) -> Result<(), CatalogError> {
    let volume = Resource::Volume(volser.clone());
    let held = db.exists(
        "SELECT 1 FROM reservations WHERE kind = ?1 AND name = ?2 AND generation = ?3",
        params![volume.kind(), volume.name(), number("a generation", generation)?],
    )?;
    if held { Ok(()) } else { Err(CatalogError::ReservationLost { volser: volser.clone() }) }
}

fn rows(db: &Db) -> Result<Vec<Reservation>, CatalogError> {
    let query =
        "SELECT kind, name, alone, owner, generation, until_ns FROM reservations ORDER BY generation, kind, name";
    let rows = db.query(query, &[], |row| {
        let (kind, name): (String, Vec<u8>) = (row.get(0)?, row.get(1)?);
        let generation = row.get(4)?;
        let (is_alone, owner, until_ns) = (row.get(2)?, row.get(3)?, row.get(5)?);
        let resource = Resource::of(&kind, &name);
        Ok(resource.map(|resource| Reservation { resource, is_alone, owner, generation, until_ns }))
    })?;
    Ok(rows.into_iter().flatten().collect())
}

fn next_generation(db: &Transaction<'_>) -> Result<u64, CatalogError> {
    let generation: Option<String> = db.query_first(
        "INSERT INTO facts (name, value) VALUES (?1, '1') ON CONFLICT (name)
         DO UPDATE SET value = CAST(CAST(facts.value AS BIGINT) + 1 AS TEXT) RETURNING value",
        params![GENERATION_FACT],
        |row| row.get(0),
    )?;
    let generation = generation.and_then(|generation| generation.parse().ok());
    generation.ok_or_else(|| CatalogError::corrupt("the catalog's database", "the generation is no number"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::place_in_tests::catalog_in;

    fn volume(name: &str) -> Resource {
        Resource::Volume(Volser::new(name).unwrap())
    }

    fn source(name: &str) -> Resource {
        Resource::Source { client: "tern".to_owned(), source: name.as_bytes().to_vec() }
    }

    fn held(grant: &Grant) -> u64 {
        let Grant::Held(generation) = grant else { panic!("{grant:?}") };
        *generation
    }

    fn refused(grant: &Grant) -> Reservation {
        let Grant::Refused(by) = grant else { panic!("{grant:?}") };
        by.clone()
    }

    fn alive(_: &Reservation) -> bool {
        false
    }

    #[test]
    fn all_of_it_or_none_is_reserved() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = catalog_in(dir.path());
        let one = Wish { alone: vec![volume("A00001"), source("/srv")], ..Wish::default() };
        let two = Wish { alone: vec![source("/home"), volume("A00001")], ..Wish::default() };
        let first = held(&catalog.reserve(&one, "one", 10, &alive).unwrap());
        let by = refused(&catalog.reserve(&two, "two", 10, &alive).unwrap());
        assert_eq!((by.resource, by.owner.as_str(), by.generation), (volume("A00001"), "one", first));
        let rows = catalog.reservations().unwrap();
        assert_eq!(rows.iter().map(|held| &held.resource).collect::<Vec<_>>(), [&source("/srv"), &volume("A00001")]);
        catalog.release(&[first]).unwrap();
        assert!(held(&catalog.reserve(&two, "two", 10, &alive).unwrap()) > first);
    }

    #[test]
    fn what_is_shared_is_shared_and_nobody_has_it_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = catalog_in(dir.path());
        let object = Resource::Object(ObjectId([7; 16]));
        let (shared, alone) = (Wish { shared: vec![object.clone()], ..Wish::default() }, Wish::alone(object.clone()));
        let one = held(&catalog.reserve(&shared, "one", 10, &alive).unwrap());
        let two = held(&catalog.reserve(&shared, "two", 10, &alive).unwrap());
        assert_eq!(refused(&catalog.reserve(&alone, "three", 10, &alive).unwrap()).owner, "one");
        catalog.release(&[one]).unwrap();
        assert_eq!(refused(&catalog.reserve(&alone, "three", 10, &alive).unwrap()).owner, "two");
        catalog.release(&[two]).unwrap();
        held(&catalog.reserve(&alone, "three", 10, &alive).unwrap());
        assert!(refused(&catalog.reserve(&shared, "one", 10, &alive).unwrap()).is_alone);
        // What a job that is gone had goes with the next reservation, whatever that is of.
        held(&catalog.reserve(&Wish::alone(volume("A00001")), "one", 10, &|held| held.owner == "three").unwrap());
        assert_eq!(catalog.reservations().unwrap().len(), 1);
    }

    #[test]
    fn there_are_as_many_seats_as_drives() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = catalog_in(dir.path());
        let at = |library: &str, wanted| Wish {
            seats: vec![SeatsWanted { library: library.to_owned(), wanted, of: 3 }],
            ..Wish::default()
        };
        let seats = |wanted| at(MAIN_LIBRARY, wanted);
        let two = held(&catalog.reserve(&seats(2), "one", 10, &alive).unwrap());
        let refusal = refused(&catalog.reserve(&seats(2), "two", 10, &alive).unwrap());
        assert!(matches!(refusal.resource, Resource::Seat { .. }) && refusal.owner == "one", "{refusal:?}");
        let one = held(&catalog.reserve(&seats(1), "three", 10, &alive).unwrap());
        refused(&catalog.reserve(&seats(1), "two", 10, &alive).unwrap());
        // Another library has drives of its own.
        let west = held(&catalog.reserve(&at("west", 3), "two", 10, &alive).unwrap());
        refused(&catalog.reserve(&at("west", 1), "four", 10, &alive).unwrap());
        catalog.release(&[two, west]).unwrap();
        held(&catalog.reserve(&seats(2), "two", 10, &alive).unwrap());
        catalog.release(&[one]).unwrap();
        assert_eq!(catalog.reservations().unwrap().len(), 2);
        // More than there are: there is nobody to wait for.
        let left = catalog.reservations().unwrap()[0].generation;
        catalog.release(&[left]).unwrap();
        let mut empty = catalog_in(&dir.path().join("empty"));
        held(&empty.reserve(&seats(4), "one", 10, &alive).unwrap());
    }

    #[test]
    fn what_an_owner_had_who_is_gone_is_free_and_he_is_known_by_his_generation() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = catalog_in(dir.path());
        let (wish, volser) = (Wish::alone(volume("A00001")), Volser::new("A00001").unwrap());
        let first = held(&catalog.reserve(&wish, "one", 10, &alive).unwrap());
        check_held(&catalog.db, &volser, first).unwrap();
        assert!(catalog.renew(&[first], 20).unwrap().is_empty());
        assert_eq!(catalog.reservations().unwrap()[0].until_ns, 20);
        let second = held(&catalog.reserve(&wish, "two", 30, &|held| held.owner == "one").unwrap());
        let lost = check_held(&catalog.db, &volser, first).unwrap_err();
        assert!(matches!(lost, CatalogError::ReservationLost { .. }), "{lost}");
        check_held(&catalog.db, &volser, second).unwrap();
        assert_eq!(catalog.renew(&[first, second], 40).unwrap(), [first]);
        // What was lost is not let go of twice: it is another's now.
        catalog.release(&[first]).unwrap();
        check_held(&catalog.db, &volser, second).unwrap();
    }

    #[test]
    fn a_catalog_made_anew_goes_on_counting() {
        let dir = tempfile::tempdir().unwrap();
        let mut old = catalog_in(&dir.path().join("old"));
        let mut anew = catalog_in(&dir.path().join("anew"));
        let wish = Wish::alone(volume("A00001"));
        for _ in 0..5 {
            old.reserve(&wish, "one", 10, &|_| true).unwrap();
        }
        anew.take_over_generations(&old).unwrap();
        assert_eq!(anew.reserve(&wish, "one", 10, &|_| true).unwrap(), Grant::Held(6));
    }
}
