//! Output files named on the command line; `-` is stdout.

use super::failure::Failure;
use super::terminal::print_result;
use super::wrap::Stream;
use remat::trace::WholeFile;
use serde::Serialize;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// JSON, an object a line.
pub fn json_lines(rows: &[impl Serialize]) -> Result<String, Failure> {
    let mut text = String::new();
    for row in rows {
        let object = serde_json::to_string(row);
        text += &object.map_err(|e| Failure::new(format!("no JSON form: {e}")))?;
        text.push('\n');
    }
    Ok(text)
}

/// A result that will be written in one piece.
pub enum Output {
    Stdout,
    File(WholeFile, PathBuf),
}

impl Output {
    /// Creates the file at once, so that a file that cannot be written is an error before the work, not after.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        if is_standard(path) {
            return Ok(Self::Stdout);
        }
        let file = WholeFile::create(path).map_err(|e| Failure::writing(path, e))?;
        Ok(Self::File(file, path.to_owned()))
    }

    /// Writes and finishes.
    pub fn deliver(self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Stdout => print_result(text),
            Self::File(mut file, path) => {
                let text = format!("{}\n", text.trim_end());
                let written = file.write_all(text.as_bytes()).and_then(|()| file.finish());
                written.map_err(|e| Failure::writing(&path, e))
            }
        }
    }
}

/// Whether this is `-`: stdout, or stdin of what is read.
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Where a plot goes: a file whose name may end in `.svg`, or stdout.
pub fn svg(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let name = match path.extension() {
        Some(end) if end.eq_ignore_ascii_case("gz") => path.with_extension(""),
        _ => path.clone(),
    };
    match name.extension() {
        Some(end) if !end.eq_ignore_ascii_case("svg") => Err(format!(
            "plots are written as SVG, which browsers show and inkscape or rsvg-convert make other \
             formats of; name it {}",
            name.with_extension("svg").display()
        )),
        _ => Ok(path),
    }
}

/// Characters in a line of a table: those of the terminal. Where there is none the table does not depend on
/// one.
pub fn table_width(stream: Stream) -> usize {
    const STANDARD: usize = 80;
    stream.width().unwrap_or(STANDARD)
}

/// Fails if two outputs are the same file, or an output is also an input.
pub fn check_distinct(
    outputs: &[(&str, &Option<PathBuf>)],
    inputs: &[PathBuf],
) -> Result<(), Failure> {
    let mut seen: Vec<(&str, PathBuf)> = Vec::new();
    for (option, path) in outputs.iter().filter_map(|(o, path)| Some((o, path.as_ref()?))) {
        let place = place(path);
        if let Some((other, _)) = seen.iter().find(|(_, known)| *known == place) {
            return Err(Failure::usage(match is_standard(path) {
                true => format!("{other} and {option} both go to stdout; name a file for one"),
                false => format!("{other} and {option} name the same file; give each its own"),
            }));
        }
        if !is_standard(path) && inputs.iter().any(|input| self::place(input) == place) {
            return Err(Failure::usage(format!(
                "{option} would overwrite {}, which is an input; give another file",
                path.display()
            )));
        }
        seen.push((option, place));
    }
    Ok(())
}

/// The same for all names of a file, whether it exists or not.
fn place(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize();
        match (folder, path.file_name()) {
            (Ok(folder), Some(name)) => folder.join(name),
            _ => path.to_owned(),
        }
    })
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
                said.contains("SVG") && said.ends_with(&format!("name it {instead}")),
                "{said}"
            );
        }
    }
}
