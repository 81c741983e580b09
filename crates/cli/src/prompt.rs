//! What a person types: barcodes, and yes.

use std::io::{IsTerminal, Write};

use capstan_format::Volser;

use crate::failure::Failure;

pub(crate) fn volser(text: &str) -> Result<Volser, Failure> {
    let wrong = |_| Failure::Usage(format!("{text:?} is not a barcode: use 1 to 8 of A-Z and 0-9"));
    Volser::new(text).map_err(wrong)
}

/// Asks before something is gone for good; `--yes` answers.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(format!("{question}\nThere is no terminal to ask at: use --yes to answer yes")));
    }
    eprint!("{question} Type yes to continue: ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(Failure::output)?;
    if answer.trim() == "yes" { Ok(()) } else { Err(Failure::Other("nothing was done".to_owned())) }
}
