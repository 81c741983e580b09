//! Man pages: one of the program, and one of each command with all its options.

use std::io::{self, Write, stdout};
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args;
use crate::command_line::Cli;
use crate::failure::Failure;

/// All commands, each with the options that every command takes.
fn commands() -> Command {
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    all
}

pub(crate) fn man(args: &args::Man) -> Result<ExitCode, Failure> {
    let all = commands();
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir).map_err(|error| not_made(dir, &error))?;
        write_all(&all, dir)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut command = &all;
    for word in &args.command {
        let found = command.get_subcommands().find(|command| command.get_name() == word);
        command = found.ok_or_else(|| {
            Failure::Usage(format!("there is no command {:?}: `capstan --help` lists them", args.command.join(" ")))
        })?;
    }
    let page = page(command).map_err(Failure::output)?;
    stdout().write_all(&page).map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

fn not_made(path: &Path, error: &io::Error) -> Failure {
    Failure::Other(format!("{} cannot be made: {error}", path.display()))
}

/// `capstan.1`, `capstan-keys.1`, `capstan-keys-policies.1` ...
fn write_all(command: &Command, dir: &Path) -> Result<(), Failure> {
    for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_all(below, dir)?;
    }
    let path = dir.join(format!("{}.1", name(command)));
    let page = page(command).map_err(Failure::output)?;
    std::fs::write(&path, page).map_err(|error| not_made(&path, &error))
}

fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let source = concat!("capstan ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(name(command)).source(source).manual("Capstan");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(text) = command.get_after_help() {
        page.extend(sections(&text.to_string()).into_bytes());
    }
    match name(command) {
        "capstan" => man.render_version_section(&mut page)?,
        _ => page.extend(b".SH \"SEE ALSO\"\ncapstan(1)\n"),
    }
    Ok(page)
}

/// What stands behind the options in `--help`: paragraphs, of which one that begins with a line such as `Examples:` is
/// a section of its own, line by line.
fn sections(text: &str) -> String {
    let section = |paragraph: &str| match paragraph.split_once(":\n") {
        Some((head, lines)) if !head.contains('\n') => {
            let lines: String = lines.lines().map(|line| escaped(line.trim_start()) + "\n").collect();
            format!(".SH \"{}\"\n.nf\n{lines}.fi\n", escaped(&head.to_uppercase()))
        }
        _ => format!(".PP\n{}\n", escaped(paragraph)),
    };
    text.split("\n\n").map(section).collect()
}

/// Text as roff takes it: no backslash, no hyphen that is a minus, no line that begins with a control character.
fn escaped(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each(command: &Command, check: &mut dyn FnMut(&Command)) {
        check(command);
        command.get_subcommands().filter(|command| !command.is_hide_set()).for_each(|below| each(below, check));
    }

    /// There was one page, with no option of any command, and it referred to pages that did not exist.
    #[test]
    fn each_command_has_a_page_with_each_of_its_options() {
        let dir = tempfile::tempdir().expect("a directory");
        let all = commands();
        write_all(&all, dir.path()).expect("pages");
        let mut pages = 0;
        each(&all, &mut |command| {
            pages += 1;
            let file = dir.path().join(format!("{}.1", name(command)));
            let page = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                if let Some(long) = argument.get_long() {
                    assert!(page.contains(&escaped(&format!("--{long}"))), "{} lacks --{long}", file.display());
                }
            }
            for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
                let below = format!("{}(1)", escaped(name(below)));
                assert!(page.contains(&below), "{} does not refer to {below}", file.display());
            }
            let odd = page.lines().find(|line| line.starts_with('.') && !is_known(line));
            assert_eq!(odd, None, "{} has a line that roff takes for a request", file.display());
        });
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), pages);
        assert!(pages > 60, "{pages}");
    }

    fn is_known(line: &str) -> bool {
        ["TH", "SH", "TP", "PP", "RS", "RE", "IP", "br", "nf", "fi", "ie", "el"]
            .iter()
            .any(|request| line[1..].split([' ', '\n']).next() == Some(request))
    }

    #[test]
    fn what_follows_the_options_keeps_its_lines() {
        let text = sections("Examples:\n  capstan ls -R\n  capstan cat a\\b\n\nThe last one.\n.Or not");
        let expected =
            ".SH \"EXAMPLES\"\n.nf\ncapstan ls \\-R\ncapstan cat a\\eb\n.fi\n.PP\nThe last one.\n\\&.Or not\n";
        assert_eq!(text, expected);
    }
}
