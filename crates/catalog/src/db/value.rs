//! Values as they go into statements and come out of rows, the same for both databases.

use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, ValueRef};

use crate::CatalogError;

/// What a place of a statement takes. A null is of a kind, too: a server that is asked to prepare a statement wants to
/// know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Text,
    Bytes,
}

/// A value for a place of a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Null(Kind),
    Integer(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl Value<'_> {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Null(kind) => *kind,
            Self::Integer(_) => Kind::Integer,
            Self::Text(_) => Kind::Text,
            Self::Bytes(_) => Kind::Bytes,
        }
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null(_) => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// What can stand in a place of a statement.
pub(crate) trait Bind {
    /// The kind that a null of it has.
    const KIND: Kind;

    fn bind(&self) -> Value<'_>;
}

macro_rules! bind_integers {
    ($($number:ty),*) => {$(
        impl Bind for $number {
            const KIND: Kind = Kind::Integer;

            fn bind(&self) -> Value<'_> {
                Value::Integer(i64::from(*self))
            }
        }
    )*};
}
bind_integers!(i64, u32, u16, u8, bool);

macro_rules! bind_bytes {
    ($($bytes:ty: $kind:ident),*) => {$(
        impl Bind for $bytes {
            const KIND: Kind = Kind::$kind;

            fn bind(&self) -> Value<'_> {
                Value::$kind(self)
            }
        }
    )*};
}
bind_bytes!(str: Text, String: Text, [u8]: Bytes, Vec<u8>: Bytes);

impl<const LEN: usize> Bind for [u8; LEN] {
    const KIND: Kind = Kind::Bytes;

    fn bind(&self) -> Value<'_> {
        Value::Bytes(self)
    }
}

impl<T: Bind + ?Sized> Bind for &T {
    const KIND: Kind = T::KIND;

    fn bind(&self) -> Value<'_> {
        T::bind(self)
    }
}

impl<T: Bind> Bind for Option<T> {
    const KIND: Kind = T::KIND;

    fn bind(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null(T::KIND), T::bind)
    }
}

/// A value that a row holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cell<'a> {
    Null,
    Integer(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// A row that a query gives.
pub(crate) enum Row<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    Postgres(&'a postgres::Row),
}

impl Row<'_> {
    /// The value of a column, counted from 0.
    pub(crate) fn get<T: Column>(&self, at: usize) -> Result<T, CatalogError> {
        T::of(self.cell(at)?).ok_or_else(|| strange(at))
    }

    /// The bytes of a column, where they stand.
    pub(crate) fn bytes(&self, at: usize) -> Result<&[u8], CatalogError> {
        match self.cell(at)? {
            Cell::Bytes(bytes) => Ok(bytes),
            _ => Err(strange(at)),
        }
    }

    /// The value of a column, whatever it is.
    pub(crate) fn cell(&self, at: usize) -> Result<Cell<'_>, CatalogError> {
        match self {
            Self::Sqlite(row) => match row.get_ref(at).map_err(|_| strange(at))? {
                ValueRef::Null => Ok(Cell::Null),
                ValueRef::Integer(number) => Ok(Cell::Integer(number)),
                ValueRef::Text(text) => std::str::from_utf8(text).map(Cell::Text).map_err(|_| strange(at)),
                ValueRef::Blob(bytes) => Ok(Cell::Bytes(bytes)),
                ValueRef::Real(_) => Err(strange(at)),
            },
            Self::Postgres(row) => row.try_get(at).map_err(|_| strange(at)),
        }
    }
}

fn strange(at: usize) -> CatalogError {
    CatalogError::corrupt("the catalog's database", format!("column {at} of a row is none that this program writes"))
}

/// What a column can hold.
pub(crate) trait Column: Sized {
    /// `None` for a value that is no such thing.
    fn of(cell: Cell<'_>) -> Option<Self>;
}

macro_rules! integer_columns {
    ($($number:ty),*) => {$(
        impl Column for $number {
            fn of(cell: Cell<'_>) -> Option<Self> {
                match cell {
                    Cell::Integer(number) => <$number>::try_from(number).ok(),
                    _ => None,
                }
            }
        }
    )*};
}
integer_columns!(i64, u64, u32, u16, u8);

impl Column for bool {
    fn of(cell: Cell<'_>) -> Option<Self> {
        i64::of(cell).map(|number| number != 0)
    }
}

impl Column for String {
    fn of(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Text(text) => Some(text.to_owned()),
            _ => None,
        }
    }
}

impl Column for Vec<u8> {
    fn of(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Bytes(bytes) => Some(bytes.to_vec()),
            _ => None,
        }
    }
}

impl<const LEN: usize> Column for [u8; LEN] {
    fn of(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Bytes(bytes) => bytes.try_into().ok(),
            _ => None,
        }
    }
}

impl<T: Column> Column for Option<T> {
    fn of(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Null => Some(None),
            cell => T::of(cell).map(Some),
        }
    }
}
