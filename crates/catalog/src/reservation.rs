//! Reservations: what jobs have for themselves, while others run beside them.
//!
//! A job reserves what it must have alone (a source, objects, volumes) in one short transaction: all of it or none. The
//! row says who has it, until when it is believed without another word (the lease), and a generation, which no other
//! reservation ever has. Whoever lost a reservation is known by an older generation, and can record nothing under it.
//!
//! Whether an owner is gone is for the caller to judge: it sees processes, the catalog does not.

use capstan_format::{ObjectId, Volser};
use rusqlite::{Connection, OptionalExtension, params};

use crate::CatalogError;
use crate::catalog::{Catalog, number};

/// The name of the fact that counts generations.
const GENERATION_FACT: &str = "reservation generation";

/// What one job at a time can have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// The right to make the next object of a source.
    Source {
        /// The machine that it is of.
        client: String,
        /// Its name there.
        source: Vec<u8>,
    },
    /// An object: that it is written, gone on with or stood on.
    Object(ObjectId),
    /// A volume: its place in a drive, and what becomes of it.
    Volume(Volser),
}

/// A resource that a job has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// What is reserved.
    pub resource: Resource,
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
    /// Nothing is: somebody has this.
    Refused(Reservation),
}

impl Resource {
    fn kind(&self) -> &'static str {
        match self {
            Self::Source { .. } => "source",
            Self::Object(_) => "object",
            Self::Volume(_) => "volume",
        }
    }

    fn name(&self) -> Vec<u8> {
        match self {
            // No machine's name has a zero in it.
            Self::Source { client, source } => [client.as_bytes(), &[0], source].concat(),
            Self::Object(object) => object.0.to_vec(),
            Self::Volume(volser) => volser.as_str().as_bytes().to_vec(),
        }
    }

    fn of(kind: &str, name: &[u8]) -> Option<Self> {
        match kind {
            "source" => {
                let end = name.iter().position(|byte| *byte == 0)?;
                let client = String::from_utf8(name[..end].to_vec()).ok()?;
                Some(Self::Source { client, source: name[end + 1..].to_vec() })
            }
            "object" => name.try_into().ok().map(|id| Self::Object(ObjectId(id))),
            "volume" => std::str::from_utf8(name).ok().and_then(|text| Volser::new(text).ok()).map(Self::Volume),
            _ => None,
        }
    }
}

impl Catalog {
    /// Reserves all of these or none. `is_over` says of a reservation that is in the way whether its owner is gone:
    /// what such an owner had is free again.
    pub fn reserve(
        &mut self,
        wanted: &[Resource],
        owner: &str,
        until_ns: i64,
        is_over: &dyn Fn(&Reservation) -> bool,
    ) -> Result<Grant, CatalogError> {
        let transaction = self.write()?;
        for resource in wanted {
            if let Some(held) = holder(&transaction, resource)? {
                if !is_over(&held) {
                    return Ok(Grant::Refused(held));
                }
                transaction
                    .prepare_cached("DELETE FROM reservations WHERE kind = ?1 AND name = ?2")?
                    .execute(params![resource.kind(), resource.name()])?;
            }
        }
        let generation = next_generation(&transaction)?;
        for resource in wanted {
            // Named twice it is reserved once.
            transaction
                .prepare_cached(
                    "INSERT INTO reservations (kind, name, owner, generation, until_ns) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (kind, name) DO NOTHING",
                )?
                .execute(params![
                    resource.kind(),
                    resource.name(),
                    owner,
                    number("a generation", generation)?,
                    until_ns
                ])?;
        }
        transaction.commit()?;
        Ok(Grant::Held(generation))
    }

    /// Makes reservations hold until a later time. Gives the generations of which nothing is left: somebody took what
    /// they had, as nobody had heard of their owner for too long.
    pub fn renew(&mut self, generations: &[u64], until_ns: i64) -> Result<Vec<u64>, CatalogError> {
        let transaction = self.write()?;
        let mut lost = Vec::new();
        for generation in generations {
            let renewed = transaction
                .prepare_cached("UPDATE reservations SET until_ns = ?2 WHERE generation = ?1")?
                .execute(params![number("a generation", *generation)?, until_ns])?;
            if renewed == 0 {
                lost.push(*generation);
            }
        }
        transaction.commit()?;
        Ok(lost)
    }

    /// Lets go of all that was reserved under these generations.
    pub fn release(&mut self, generations: &[u64]) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        for generation in generations {
            transaction
                .prepare_cached("DELETE FROM reservations WHERE generation = ?1")?
                .execute([number("a generation", *generation)?])?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// All reservations, the oldest first; among them those whose owners are gone.
    pub fn reservations(&self) -> Result<Vec<Reservation>, CatalogError> {
        let mut statement = self.db.prepare_cached(
            "SELECT kind, name, owner, generation, until_ns FROM reservations ORDER BY generation, kind, name",
        )?;
        let rows = statement.query_map([], |row| {
            let (kind, name): (String, Vec<u8>) = (row.get(0)?, row.get(1)?);
            let generation: i64 = row.get(3)?;
            let (owner, until_ns) = (row.get(2)?, row.get(4)?);
            let resource = Resource::of(&kind, &name);
            Ok(resource.map(|resource| Reservation {
                resource,
                owner,
                generation: generation.cast_unsigned(),
                until_ns,
            }))
        })?;
        rows.filter_map(Result::transpose).collect::<Result<_, _>>().map_err(CatalogError::from)
    }

    /// Goes on from another catalog's generations, which this one replaces: what was reserved there stays older than
    /// what is reserved here.
    pub fn take_over_generations(&mut self, old: &Self) -> Result<(), CatalogError> {
        let theirs = old.fact(GENERATION_FACT)?.and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        let ours = self.fact(GENERATION_FACT)?.and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        if theirs > ours { self.put_fact(GENERATION_FACT, &theirs.to_string()) } else { Ok(()) }
    }
}

/// Refuses what is recorded of a volume by somebody who had reserved it and has lost it since.
pub(crate) fn check_held(db: &Connection, volser: &Volser, generation: u64) -> Result<(), CatalogError> {
    let held = holder(db, &Resource::Volume(volser.clone()))?;
    match held {
        Some(held) if held.generation == generation => Ok(()),
        _ => Err(CatalogError::ReservationLost { volser: volser.clone() }),
    }
}

fn holder(db: &Connection, resource: &Resource) -> Result<Option<Reservation>, CatalogError> {
    let found = db
        .prepare_cached("SELECT owner, generation, until_ns FROM reservations WHERE kind = ?1 AND name = ?2")?
        .query_row(params![resource.kind(), resource.name()], |row| {
            let generation = row.get::<_, i64>(1)?.cast_unsigned();
            Ok(Reservation { resource: resource.clone(), owner: row.get(0)?, generation, until_ns: row.get(2)? })
        });
    Ok(found.optional()?)
}

fn next_generation(db: &Connection) -> Result<u64, CatalogError> {
    let generation: String = db
        .prepare_cached(
            "INSERT INTO facts (name, value) VALUES (?1, '1') ON CONFLICT (name)
             DO UPDATE SET value = CAST(CAST(facts.value AS BIGINT) + 1 AS TEXT) RETURNING value",
        )?
        .query_row([GENERATION_FACT], |row| row.get(0))?;
    generation.parse().map_err(|_| CatalogError::corrupt("the catalog's database", "the generation is no number"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn volume(name: &str) -> Resource {
        Resource::Volume(Volser::new(name).unwrap())
    }

    fn source(name: &str) -> Resource {
        Resource::Source { client: "tern".to_owned(), source: name.as_bytes().to_vec() }
    }

    #[test]
    fn all_of_it_or_none_is_reserved() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = Catalog::open(dir.path()).unwrap();
        let alive = |_: &Reservation| false;
        let (one, two) = ([volume("A00001"), source("/srv")], [source("/home"), volume("A00001")]);
        let Grant::Held(first) = catalog.reserve(&one, "one", 10, &alive).unwrap() else { panic!() };
        let Grant::Refused(refused) = catalog.reserve(&two, "two", 10, &alive).unwrap() else { panic!() };
        assert_eq!((refused.resource, refused.owner.as_str(), refused.generation), (volume("A00001"), "one", first));
        let held = catalog.reservations().unwrap();
        assert_eq!(held.iter().map(|held| &held.resource).collect::<Vec<_>>(), [&source("/srv"), &volume("A00001")]);
        catalog.release(&[first]).unwrap();
        assert!(matches!(catalog.reserve(&two, "two", 10, &alive).unwrap(), Grant::Held(second) if second > first));
    }

    #[test]
    fn what_an_owner_had_who_is_gone_is_free_and_he_is_known_by_his_generation() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = Catalog::open(dir.path()).unwrap();
        let (a, volser) = (volume("A00001"), Volser::new("A00001").unwrap());
        let is_one = |held: &Reservation| held.owner == "one";
        let Grant::Held(first) = catalog.reserve(std::slice::from_ref(&a), "one", 10, &|_| false).unwrap() else {
            panic!()
        };
        check_held(&catalog.db, &volser, first).unwrap();
        assert!(catalog.renew(&[first], 20).unwrap().is_empty());
        assert_eq!(catalog.reservations().unwrap()[0].until_ns, 20);
        let Grant::Held(second) = catalog.reserve(&[a], "two", 30, &is_one).unwrap() else { panic!() };
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
        let mut old = Catalog::open(&dir.path().join("old")).unwrap();
        let mut anew = Catalog::open(&dir.path().join("anew")).unwrap();
        for _ in 0..5 {
            old.reserve(&[volume("A00001")], "one", 10, &|_| true).unwrap();
        }
        anew.take_over_generations(&old).unwrap();
        assert_eq!(anew.reserve(&[volume("A00001")], "one", 10, &|_| true).unwrap(), Grant::Held(6));
    }
}
