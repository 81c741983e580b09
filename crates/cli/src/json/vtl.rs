//! What `vtl` prints of its own. What happens in a library while it is served, and what there is in it, has its types
//! in `capstan_vtl`.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// What `vtl` did, one object a line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) enum VtlEvent<'a> {
    /// `vtl init` has made the folder of a library.
    VtlMade {
        /// The file that says what the library has: edit it before it is served.
        layout: String,
    },
    /// `vtl serve` serves a library. What happens from then on are the lines of the next chapter.
    Serving {
        /// The name of the target.
        target: &'a str,
        /// Where it listens: an address and a port.
        address: String,
    },
    /// `vtl create`, `export`, `import`, `inject` or `forgive` was done.
    VtlDone {
        /// What was done, for people.
        done: &'a str,
    },
}
