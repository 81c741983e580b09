//! What a sample says of all: how many of a kind there are at most, and how sure that is.

/// How large a share of all is bad at most, with this certainty, where `bad` of `drawn` were found bad: the upper limit
/// of Clopper and Pearson (1934). Each of all was as likely to be drawn as every other one. Of `all`, those that were
/// not drawn are bad at worst.
pub fn bad_at_most(all: u64, drawn: u64, bad: u64, certainty: f64) -> f64 {
    if all == 0 {
        return 0.0;
    }
    let bad = bad.min(drawn);
    let at_worst = (all - drawn.min(all) + bad) as f64 / all as f64;
    if drawn == 0 || bad == drawn {
        return at_worst.min(1.0);
    }
    let doubt = 1.0 - certainty;
    // So few bad ones are met by chance as often as there is doubt: the more there are, the less often.
    let (mut low, mut high) = (bad as f64 / drawn as f64, 1.0);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if met_at_most(drawn, bad, middle) > doubt { low = middle } else { high = middle }
    }
    high.min(at_worst)
}

/// How many have to be drawn, and be good, before less than one in `one_in` is bad with this certainty.
pub fn to_be_drawn(one_in: u64, certainty: f64) -> u64 {
    let share = 1.0 / one_in.max(1) as f64;
    if share >= 1.0 {
        return 1;
    }
    // A rounding must not leave it at one more.
    ((1.0 - certainty).ln() / (-share).ln_1p()).ceil() as u64 + 1
}

/// How likely it is that at most `bad` of `drawn` are bad, if this share of all is.
fn met_at_most(drawn: u64, bad: u64, share: f64) -> f64 {
    if share >= 1.0 {
        return 0.0;
    }
    // Terms of the binomial distribution, each by the one before it; as logarithms, since the first may be tiny.
    let odds = share.ln() - (-share).ln_1p();
    let mut term = drawn as f64 * (-share).ln_1p();
    let mut sum = term.exp();
    for met in 0..bad {
        term += ((drawn - met) as f64).ln() - ((met + 1) as f64).ln() + odds;
        sum += term.exp();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limits of tables, and those that can be worked out by hand.
    #[test]
    fn limits_are_those_of_clopper_and_pearson() {
        const MANY: u64 = 1 << 50;
        let close = |found: f64, is: f64| assert!((found / is - 1.0).abs() < 1e-3, "{found} is not {is}");
        // None of n: 1 - doubt^(1/n).
        close(bad_at_most(MANY, 10, 0, 0.95), 1.0 - 0.05_f64.powf(0.1));
        close(bad_at_most(MANY, 4603, 0, 0.99), 0.001);
        close(bad_at_most(MANY, 4_605_168, 0, 0.99), 1e-6);
        // One sided limits of 97.5 %: the upper ones of two sided 95 %.
        close(bad_at_most(MANY, 10, 1, 0.975), 0.4450);
        close(bad_at_most(MANY, 20, 3, 0.975), 0.3789);
        close(bad_at_most(MANY, 100, 10, 0.975), 0.1762);
        // All of them were bad.
        assert!(bad_at_most(MANY, 3, 3, 0.99) >= 1.0);
        assert!(bad_at_most(MANY, 0, 0, 0.99) >= 1.0);
    }

    #[test]
    fn what_was_drawn_is_known_for_sure() {
        assert!(bad_at_most(1000, 1000, 0, 0.99) == 0.0);
        assert!(bad_at_most(1000, 1000, 7, 0.99) == 0.007);
        assert!(bad_at_most(1000, 999, 0, 0.99) == 0.001);
        assert!(bad_at_most(0, 0, 0, 0.99) == 0.0);
        assert!(bad_at_most(10, 1, 1, 0.99) == 1.0);
    }

    #[test]
    fn as_many_are_drawn_as_the_claim_needs() {
        for one_in in [2, 3, 10, 1000, 77_777, 1_000_000] {
            for certainty in [0.9, 0.95, 0.99, 0.999] {
                let drawn = to_be_drawn(one_in, certainty);
                let limit = 1.0 / one_in as f64;
                assert!(bad_at_most(u64::MAX, drawn, 0, certainty) < limit, "{one_in} {certainty} {drawn}");
                let fewer = drawn.saturating_sub(3);
                assert!(bad_at_most(u64::MAX, fewer, 0, certainty) > limit, "{one_in} {certainty} {fewer}");
            }
        }
    }
}
