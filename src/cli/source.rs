use super::failure::Failure;
use super::model::Model;
use remat::data::{Dataset, Text};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Origin of the images, or of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Digits bundled with the crate.
    Digits,
    /// Random images: channels, height, width.
    Synthetic([usize; 3]),
    /// Files in MNIST's format.
    Idx(PathBuf),
    /// A folder with a subfolder of PNG and JPEG files for each class.
    Images(PathBuf),
    /// Random expressions, as trees.
    Trees,
    /// Random points of Gaussians on a ring.
    Ring,
    /// Novel bundled with the crate.
    MobyDick,
    /// A file in UTF-8.
    Text(PathBuf),
}

impl Source {
    /// Reads or makes the images. Images of a folder are resized to `size`.
    pub fn images(
        &self,
        model: Model,
        seed: u64,
        size: Option<[usize; 2]>,
    ) -> Result<Dataset, Failure> {
        match self {
            Self::Digits => Ok(Dataset::digits()),
            Self::Synthetic(shape) => Ok(Dataset::synthetic(*shape, seed)?),
            Self::Idx(folder) => Ok(Dataset::idx(folder)?),
            Self::Images(folder) => Ok(Dataset::folder(folder, size)?),
            Self::Trees | Self::Ring => Err(Failure::usage(format!(
                "{model} learns from images, but {self} has no images; choose --data digits, synthetic:CxHxW, \
                 idx:DIR or images:DIR"
            ))),
            Self::MobyDick | Self::Text(_) => Err(Failure::usage(format!(
                "{model} learns from images, but {self} is a text; choose --data digits, synthetic:CxHxW, idx:DIR or \
                 images:DIR, or a text model: gpt or gpt2"
            ))),
        }
    }

    /// Path of the file or folder to read, if any.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Idx(path) | Self::Images(path) | Self::Text(path) => Some(path),
            Self::Digits | Self::Synthetic(_) | Self::Trees | Self::Ring | Self::MobyDick => None,
        }
    }

    /// Reads the text.
    pub fn text(&self, model: Model) -> Result<Text, Failure> {
        match self {
            Self::MobyDick => Ok(Text::moby_dick()),
            Self::Text(path) => Ok(Text::file(path)?),
            Self::Digits | Self::Synthetic(_) | Self::Idx(_) | Self::Images(_) => {
                Err(Failure::usage(format!(
                    "{model} learns from a text, but {self} has images; choose --data moby-dick or text:FILE, or a \
                     model of images such as resnet20 or vit"
                )))
            }
            Self::Trees | Self::Ring => Err(Failure::usage(format!(
                "{model} learns from a text, but {self} has no text; choose --data moby-dick or text:FILE"
            ))),
        }
    }
}

impl FromStr for Source {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const SYNTHETIC: &str = "give channels, height and width, such as synthetic:3x32x32";
        match text.split_once(':') {
            None if text == "digits" => Ok(Self::Digits),
            None if text == "trees" => Ok(Self::Trees),
            None if text == "ring" => Ok(Self::Ring),
            None if text == "moby-dick" => Ok(Self::MobyDick),
            Some(("text", "")) => Err("give the file, as text:FILE"),
            Some(("text", file)) => Ok(Self::Text(file.into())),
            Some(("idx", "")) => Err("give the folder with the files, as idx:DIR"),
            Some(("idx", folder)) => Ok(Self::Idx(folder.into())),
            Some(("images", "")) => Err("give the folder of classes, as images:DIR"),
            Some(("images", folder)) => Ok(Self::Images(folder.into())),
            Some(("synthetic", shape)) => {
                let sizes: Result<Vec<usize>, _> = shape.split('x').map(str::parse).collect();
                let shape = sizes.ok().and_then(|sizes| sizes.try_into().ok());
                shape.map(Self::Synthetic).ok_or(SYNTHETIC)
            }
            _ => Err(
                "choose digits, synthetic:CxHxW (such as synthetic:3x32x32), idx:DIR, images:DIR, moby-dick, \
                 text:FILE, trees or ring",
            ),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digits => f.write_str("digits"),
            Self::Trees => f.write_str("trees"),
            Self::Ring => f.write_str("ring"),
            Self::Synthetic([c, h, w]) => write!(f, "synthetic:{c}x{h}x{w}"),
            Self::Idx(folder) => write!(f, "idx:{}", folder.display()),
            Self::Images(folder) => write!(f, "images:{}", folder.display()),
            Self::MobyDick => f.write_str("moby-dick"),
            Self::Text(file) => write!(f, "text:{}", file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_read_back() {
        for text in [
            "digits",
            "synthetic:3x32x32",
            "idx:/some/where",
            "images:pets",
            "moby-dick",
            "text:a b",
            "text:a/b.txt",
            "trees",
            "ring",
        ] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "digit",
            "idx",
            "idx:",
            "synthetic:3x32",
            "synthetic:3x32x-1",
            "mnist:x",
            "images",
            "images:",
            "text",
            "text:",
            "moby-dick:x",
        ] {
            assert!(text.parse::<Source>().is_err(), "{text}");
        }
    }
}
