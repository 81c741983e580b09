//! Looking after volumes: what is read back, and what is moved off.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Scrub {
    /// Only these volumes [default: all in the libraries]
    #[arg(value_name = "VOLUME")]
    pub(crate) volumes: Vec<String>,
    /// Only volumes of this pool; also several times
    #[arg(long = "pool", value_name = "POOL")]
    pub(crate) pools: Vec<String>,
    /// Read as many places as it takes to say that fewer than one in N is bad, if none is found
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) one_in: u64,
    /// Read this share of all places instead, such as 2.5%
    #[arg(long, value_name = "PERCENT", conflicts_with_all = ["one_in", "places"], value_parser = percent)]
    pub(crate) share: Option<f64>,
    /// Read so many places instead
    #[arg(long, value_name = "COUNT", conflicts_with = "one_in", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) places: Option<u64>,
    /// Blocks of a place, which stand behind one another: on tape, a place costs a locate, and its blocks little more
    #[arg(long, value_name = "BLOCKS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) place: u32,
    /// How sure the statement is to be
    #[arg(long, value_name = "PERCENT", default_value = "99%", value_parser = certainty)]
    pub(crate) certainty: f64,
    /// Draw the same places as the run that told this number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Only say what would be read
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Reclaim {
    /// These volumes [default: full ones of which less than 30% is needed]
    #[arg(value_name = "VOLUME", conflicts_with_all = ["pools", "below", "generations", "suspect"])]
    pub(crate) volumes: Vec<String>,
    /// Only volumes of this pool; also several times
    #[arg(long = "pool", value_name = "POOL")]
    pub(crate) pools: Vec<String>,
    /// Full volumes of which less than this share is needed, such as 30%
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with_all = ["generations", "retire"])]
    pub(crate) below: Option<f64>,
    /// Volumes of this generation, such as LTO-6, which is to go; also several times. All of them are retired at once,
    /// and what was written is read back
    #[arg(long = "generation", value_name = "GENERATION", conflicts_with = "suspect")]
    pub(crate) generations: Vec<String>,
    /// Volumes that were set aside, as something was found wrong with them
    #[arg(long)]
    pub(crate) suspect: bool,
    /// Never write volumes again that are empty then
    #[arg(long)]
    pub(crate) retire: bool,
    /// Read back what was written before a volume is left
    #[arg(long)]
    pub(crate) verify: bool,
    /// Empty no more than so many volumes, those with most faults or least on them
    #[arg(long, value_name = "COUNT", value_parser = positive)]
    pub(crate) volumes_max: Option<usize>,
    /// Storage unit, or library, to write to [default: the library that has volumes of the pool]
    #[arg(long)]
    pub(crate) unit: Option<String>,
    /// Wait for a volume if a pool has none, instead of failing
    #[arg(long)]
    pub(crate) wait: bool,
    /// Only say which volumes would be reclaimed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask before volumes are retired
    #[arg(long)]
    pub(crate) yes: bool,
}

fn positive(text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("{text:?} is not a number above 0"))
}

/// `30%` or `30`, as a share.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    let share = number.ok().filter(|number| *number > 0.0 && *number <= 100.0).map(|number| number / 100.0);
    share.ok_or_else(|| format!("{text:?} is not a share above 0 and up to 100: write 30%"))
}

/// The same, of which something has to be left.
fn certainty(text: &str) -> Result<f64, String> {
    let share = percent(text)?;
    if share < 1.0 { Ok(share) } else { Err("no sample says anything for certain: write 99%".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percents() {
        assert_eq!(percent("2.5%"), Ok(0.025));
        assert_eq!(percent("100"), Ok(1.0));
        for wrong in ["0", "-1", "101%", "a half", "%", "NaN", ""] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
        assert_eq!(certainty("99%"), Ok(0.99));
        assert!(certainty("100%").is_err());
    }
}
