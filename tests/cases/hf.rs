//! Checkpoints as the transformers library and torchvision write them. All tensors of a checkpoint
//! are loaded, and the network gives the outputs of the library that wrote the checkpoint. A file
//! that does not fit is refused, with all the differences listed.

mod files;
mod library;
mod limits;
mod program;
