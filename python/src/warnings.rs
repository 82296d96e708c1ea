//! Warnings of remat as warnings of `PyTorch`, which become Python's warnings once the current call
//! of an operator or of `backward` ends.

use crate::ffi::rm_warn;
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Passes on warnings. Errors are left out, because each one is raised as an exception.
struct Warnings;

/// Sends remat's warnings to Python from now on.
pub(crate) fn install() {
    // The error means that another library in this process receives the warnings.
    let _ = tracing::subscriber::set_global_default(Warnings);
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.is_event()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let Text { message, fields } = text;
        let fields = if fields.is_empty() { fields } else { format!(" ({fields})") };
        let text = format!("remat: {message}{fields}");
        // SAFETY: the text lives until the call returns, and is passed with its length.
        unsafe { rm_warn(text.as_ptr().cast(), text.len()) };
    }

    // Spans are never enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Message of a warning, and its other fields: `op matmul, times 4.1`.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if field.name() == "message" {
            self.message = value.to_string();
        } else {
            let comma = if self.fields.is_empty() { "" } else { ", " };
            let _ = write!(self.fields, "{comma}{} {value}", field.name());
        }
    }
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format_args!("{value:?}"));
    }
}
