//! Output files named on the command line; `-` is stdout.

use super::failure::Failure;
use super::terminal::print_result;
use super::wrap::Stream;
use remat::unstable::files::WholeFile;
use serde::Serialize;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// JSON text with one object on each line.
pub fn json_lines(rows: &[impl Serialize]) -> Result<String, Failure> {
    let mut text = String::new();
    for row in rows {
        let object = serde_json::to_string(row);
        text +=
            &object.map_err(|e| Failure::new(format!("a row cannot be written as JSON: {e}")))?;
        text.push('\n');
    }
    Ok(text)
}

/// JSON text of one object, over several lines.
pub fn json(report: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(report);
    text.map_err(|e| Failure::new(format!("the result cannot be written as JSON: {e}")))
}

/// Destination of a result. A result is written at the end, as a whole.
pub enum Output {
    Stdout,
    File(WholeFile, PathBuf),
}

impl Output {
    /// Opens the destination. Callers open the destination before the work, so that a file that
    /// cannot be written fails early.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        if is_stdout(path) {
            return Ok(Self::Stdout);
        }
        let file = WholeFile::create(path).map_err(|e| unwritten(path, e))?;
        Ok(Self::File(file, path.to_owned()))
    }

    /// Writes the text to the destination, if `Some`, as [`Output::deliver`] does.
    pub fn deliver_to(
        output: Option<Self>,
        text: impl FnOnce() -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        output.map_or(Ok(()), |output| output.deliver(&text()?))
    }

    /// Writes the text. A file gets its final name only in this call, when it is complete.
    pub fn deliver(self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Stdout => print_result(text),
            Self::File(mut file, path) => {
                let text = format!("{}\n", text.trim_end());
                let written = file.write_all(text.as_bytes()).and_then(|()| file.finish());
                written.map_err(|e| unwritten(&path, e))
            }
        }
    }
}

/// Fails if a file at this path cannot be written. An existing file is not changed.
pub fn can_be_written(path: &Path) -> Result<(), Failure> {
    WholeFile::create(path).map(drop).map_err(|error| unwritten(path, error))
}

/// Error of writing a file.
pub fn unwritten(path: &Path, error: impl std::fmt::Display) -> Failure {
    match is_stdout(path) {
        true => Failure::new(format!("stdout: {error}")),
        false => Failure::new(format!("{}: {error}", path.display())),
    }
}

/// Combines the results of several outputs: all failures become one, with all messages. Each output
/// was attempted, whether or not another output failed.
pub fn all<const N: usize>(delivered: [Result<(), Failure>; N]) -> Result<(), Failure> {
    delivered.into_iter().filter_map(Result::err).reduce(Failure::and).map_or(Ok(()), Err)
}

/// Whether a path is `-`, which means stdout for an output and stdin for an input.
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Error of making a drawing.
pub fn no_drawing(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("--plot: {error}"))
}

/// Whether the path means stdout: `-`, or a name of the system for stdout.
pub fn is_stdout(path: &Path) -> bool {
    is_standard(path)
        || ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].map(Path::new).contains(&path)
}

/// Parses the destination of a plot: stdout, or a file whose name may end in `.svg`.
pub fn svg(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("name a file".to_owned());
    }
    let path = PathBuf::from(text);
    let name = match path.extension() {
        Some(end) if end.eq_ignore_ascii_case("gz") => path.with_extension(""),
        _ => path.clone(),
    };
    match name.extension() {
        Some(end) if !end.eq_ignore_ascii_case("svg") => Err(format!(
            "plots are SVG files; name the file {}, and convert it with inkscape or rsvg-convert",
            name.with_extension("svg").display()
        )),
        _ => Ok(path),
    }
}

/// Width of a table in characters: the width of the terminal, or a fixed width without a terminal.
pub fn table_width(stream: Stream) -> usize {
    const STANDARD: usize = 80;
    stream.width().unwrap_or(STANDARD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_is_svg_or_refused_by_its_name() {
        for name in
            ["a.svg", "a.SVG", "a", "-", "dir.d/a", "a.svg.gz", "a.gz", "/dev/stdout", ".svg"]
        {
            assert_eq!(svg(name), Ok(name.into()), "{name}");
        }
        assert!(svg("").is_err());
        for (name, instead) in [
            ("x.png", "x.svg"),
            ("dir/x.pdf", "dir/x.svg"),
            ("x.PNG", "x.svg"),
            ("x.svgz", "x.svg"),
            ("x.png.gz", "x.svg"),
            ("x.svg.png", "x.svg.svg"),
        ] {
            let said = svg(name).unwrap_err();
            assert!(
                said.contains("SVG")
                    && said.ends_with(&format!(
                        "name the file {instead}, and convert it with \
                    inkscape or rsvg-convert"
                    )),
                "{said}"
            );
        }
    }
}
