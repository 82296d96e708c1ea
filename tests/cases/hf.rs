//! Checkpoints as the transformers library and torchvision write them: taken whole, with outputs that are theirs, and
//! refused with all that does not fit.

mod files;
mod library;
mod limits;
mod program;
