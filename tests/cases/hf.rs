//! Checkpoints as the transformers library and torchvision write them. They are loaded whole and
//! give the outputs of those libraries. A file that does not fit is refused, with all the
//! differences listed.

mod files;
mod library;
mod limits;
mod program;
