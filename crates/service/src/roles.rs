//! The table of roles: a row for each act, a column for each role, and in each cell whether the role may, and how.
//!
//! ```text
//!              security-officer  operator
//!  add-node          q               -        q: asks for it, and a quorum approves
//!  list-nodes        x               x        x: does it at once, -: may not
//! ```
//! A program writes its table with [`crate::role_table`], as data in one place, and asks [`TableAct::permission`]. The
//! API's document is made from the same rows.

use std::fmt;
use std::marker::PhantomData;

use serde_json::{Map, Value};

/// A role of the table. The numbers are bits in records.
pub trait TableRole: Copy + Eq + 'static {
    /// All roles, in the order of the table's columns.
    const COLUMNS: &'static [Self];

    /// Its name, in commands and in JSON.
    fn name(self) -> &'static str;

    /// Its bit in a [`RoleSet`]; no two have the same.
    fn bit(self) -> u8;
}

/// A set of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleSet<R> {
    bits: u8,
    roles: PhantomData<R>,
}

impl<R> Default for RoleSet<R> {
    fn default() -> Self {
        Self { bits: 0, roles: PhantomData }
    }
}

impl<R: TableRole> RoleSet<R> {
    /// Whether a role is among them.
    pub fn contains(self, role: R) -> bool {
        self.bits & role.bit() != 0
    }

    /// The roles, in the order of the table's columns.
    pub fn iter(self) -> impl Iterator<Item = R> {
        R::COLUMNS.iter().copied().filter(move |&role| self.contains(role))
    }

    /// As a record has them.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// The set of a record; none if a bit is no role.
    pub fn from_bits(bits: u8) -> Option<Self> {
        let all = R::COLUMNS.iter().copied().collect::<Self>();
        (bits & !all.bits == 0).then_some(Self { bits, roles: PhantomData })
    }
}

impl<R: TableRole> FromIterator<R> for RoleSet<R> {
    fn from_iter<I: IntoIterator<Item = R>>(roles: I) -> Self {
        Self { bits: roles.into_iter().fold(0, |bits, role| bits | role.bit()), roles: PhantomData }
    }
}

impl<R: TableRole> fmt::Display for RoleSet<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(R::name).collect();
        f.write_str(if names.is_empty() { "no role" } else { "" })?;
        f.write_str(&names.join(", "))
    }
}

/// How somebody may do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActPermission {
    /// On their own word.
    AtOnce,
    /// Once a quorum has approved it.
    ByQuorum,
}

impl ActPermission {
    /// As the API's document has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AtOnce => "at-once",
            Self::ByQuorum => "by-quorum",
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub struct TableRow {
    /// The act's name.
    pub name: &'static str,
    /// What it is, as in "to add a node".
    pub words: &'static str,
    /// What each role may, in the order of the columns.
    pub cells: &'static [Option<ActPermission>],
}

/// An act of the table.
pub trait TableAct: Copy + 'static {
    /// The roles of the table.
    type Role: TableRole;

    /// Its row.
    fn row(self) -> &'static TableRow;

    /// Whether one role may, and how.
    fn cell(self, role: Self::Role) -> Option<ActPermission> {
        let column = Self::Role::COLUMNS.iter().position(|other| *other == role)?;
        self.row().cells.get(column).copied().flatten()
    }

    /// Who may ask for it.
    fn roles(self) -> RoleSet<Self::Role> {
        Self::Role::COLUMNS.iter().copied().filter(|role| self.cell(*role).is_some()).collect()
    }

    /// Whether somebody of these roles may, and how. A row should not have both kinds of yes; if it has, the careful
    /// kind counts.
    fn permission(self, roles: RoleSet<Self::Role>) -> Option<ActPermission> {
        let cells: Vec<_> = roles.iter().filter_map(|role| self.cell(role)).collect();
        let careful = cells.iter().find(|cell| **cell == ActPermission::ByQuorum);
        careful.or(cells.first()).copied()
    }

    /// The roles that may, in words.
    fn roles_in_words(self) -> String {
        let named = |role: Self::Role| match self.cell(role) {
            Some(ActPermission::ByQuorum) => format!("{} (waits for a quorum)", role.name()),
            _ => role.name().to_owned(),
        };
        self.roles().iter().map(named).collect::<Vec<_>>().join(", ")
    }

    /// The roles that may, and how, as the API's document has them.
    fn roles_in_json(self) -> Map<String, Value> {
        let cell = |role: Self::Role| Some((role.name().to_owned(), self.cell(role)?.name().into()));
        self.roles().iter().filter_map(cell).collect()
    }
}

/// Makes an enum of acts from a table. Each row has a number, which stands in records and is never used for another
/// act; the enum's name for it; its name in commands and logs; a cell for each role; and what it is, in words.
///
/// ```
/// # use capstan_service::roles::{ActPermission, TableAct, TableRole};
/// #[derive(Clone, Copy, PartialEq, Eq)]
/// enum Rank { Officer = 1, Operator = 2 }
///
/// impl TableRole for Rank {
///     const COLUMNS: &'static [Self] = &[Self::Officer, Self::Operator];
///     fn name(self) -> &'static str { "" }
///     fn bit(self) -> u8 { self as u8 }
/// }
///
/// capstan_service::role_table! {
///     /// What somebody can ask for.
///     enum Command of Rank {
///         1 AddNode   "add-node"   [q -] "add a node";
///         2 ListNodes "list-nodes" [x x] "list the nodes";
///     }
/// }
///
/// assert_eq!(Command::AddNode.cell(Rank::Officer), Some(ActPermission::ByQuorum));
/// assert_eq!(Command::AddNode.cell(Rank::Operator), None);
/// assert_eq!(Command::named("list-nodes"), Some(Command::ListNodes));
/// assert_eq!(Command::from_code(1).map(Command::words), Some("add a node"));
/// ```
#[macro_export]
macro_rules! role_table {
    (@cell -) => { None };
    (@cell x) => { Some($crate::roles::ActPermission::AtOnce) };
    (@cell q) => { Some($crate::roles::ActPermission::ByQuorum) };
    ($(#[$doc:meta])* $visibility:vis enum $Act:ident of $Role:ident {
        $($code:literal $act:ident $name:literal [$($cell:tt)*] $words:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility enum $Act {
            $(#[doc = concat!("To ", $words, ".")] $act = $code,)*
        }

        #[allow(dead_code, reason = "not every table is asked everything")]
        impl $Act {
            /// All acts, in the order of the table's rows.
            $visibility const ALL: &[Self] = &[$(Self::$act),*];

            /// Its name, in commands, in JSON and in the audit log.
            $visibility fn name(self) -> &'static str {
                $crate::roles::TableAct::row(self).name
            }

            /// What it is, as in "to add a node".
            $visibility fn words(self) -> &'static str {
                $crate::roles::TableAct::row(self).words
            }

            /// Who may ask for it.
            $visibility fn roles(self) -> $crate::roles::RoleSet<$Role> {
                $crate::roles::TableAct::roles(self)
            }

            /// The act of a name.
            $visibility fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|act| act.name() == name)
            }

            /// Its number in records.
            $visibility fn code(self) -> u16 {
                self as u16
            }

            /// The act of a number.
            $visibility fn from_code(code: u16) -> Option<Self> {
                Self::ALL.iter().copied().find(|act| act.code() == code)
            }
        }

        impl $crate::roles::TableAct for $Act {
            type Role = $Role;

            fn row(self) -> &'static $crate::roles::TableRow {
                const COLUMNS: usize = <$Role as $crate::roles::TableRole>::COLUMNS.len();
                match self {
                    $(Self::$act => {
                        const CELLS: [Option<$crate::roles::ActPermission>; COLUMNS] =
                            [$($crate::role_table!(@cell $cell)),*];
                        const { &$crate::roles::TableRow { name: $name, words: $words, cells: &CELLS } }
                    })*
                }
            }
        }

        impl ::std::fmt::Display for $Act {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
