//! Spans: one for each command, with one inside for each regeneration.

use crate::alone;
use crate::common::toy::{Bytes, Watch, mix, runtime};
use std::cell::RefCell;
use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Subscriber that keeps ended spans and events, each with the spans around it: `get > regenerate >
/// did evict`.
#[derive(Debug, Default)]
struct Kept {
    next: AtomicU64,
    /// Text of each span, by number.
    spans: Mutex<Vec<String>>,
    lines: Arc<Mutex<Vec<String>>>,
}

thread_local! {
    /// Numbers of the spans that this thread is in.
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "wanted" | "runs" | "kind" | "op" => write!(self.0, " {}={value:?}", field.name()),
            _ => Ok(()),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl Kept {
    fn keep(&self, text: &str) {
        let spans = self.spans.lock().unwrap();
        let name = |at: &u64| spans[*at as usize].split(' ').next().unwrap_or_default().to_owned();
        let mut line: Vec<String> = INSIDE.with_borrow(|inside| inside.iter().map(name).collect());
        line.push(text.to_owned());
        self.lines.lock().unwrap().push(line.join(" > "));
    }
}

impl Subscriber for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "remat"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = span.metadata().name().to_owned();
        let level = if text == "command" { Level::TRACE } else { Level::DEBUG };
        assert_eq!(*span.metadata().level(), level);
        span.record(&mut Fields(&mut text));
        self.spans.lock().unwrap().push(text);
        Id::from_u64(self.next.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut self.spans.lock().unwrap()[span.into_u64() as usize - 1]));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            if field.name() == "message" {
                let _ = write!(text, "{value:?}");
            }
        });
        self.keep(&text);
    }

    fn enter(&self, span: &Id) {
        INSIDE.with_borrow_mut(|inside| inside.push(span.into_u64() - 1));
    }

    fn exit(&self, span: &Id) {
        let left = INSIDE.with_borrow_mut(Vec::pop);
        assert_eq!(left, Some(span.into_u64() - 1), "spans nest");
    }

    fn try_close(&self, span: Id) -> bool {
        let text = self.spans.lock().unwrap()[span.into_u64() as usize - 1].clone();
        self.keep(&text);
        true
    }
}

/// The test runs alone, because a subscriber for all threads also receives the lines of other
/// runtimes' workers.
#[test]
fn commands_and_regenerations_are_spans() {
    alone("spans::commands_and_regenerations_are_spans", || {
        let kept = Kept::default();
        let lines = Arc::clone(&kept.lines);
        tracing::subscriber::set_global_default(kept).unwrap();
        let take = || std::mem::take(&mut *lines.lock().unwrap());

        let watch = Arc::new(Watch::default());
        let runtime = runtime(512, &watch);
        let x = runtime.put(Bytes::of(256, 1)).unwrap();
        let y = runtime.apply(mix(256, 2), &[&x]).unwrap().into_iter().next().unwrap();
        let z = runtime.apply(mix(256, 3), &[&y]).unwrap().into_iter().next().unwrap();
        runtime.label(&y, "y").unwrap();
        runtime.drop_now(&y).unwrap();
        runtime.sync().unwrap();
        let expected = [
            "command kind=put",
            "command kind=apply op=mix",
            "command > will evict",
            "command > did evict",
            "command kind=apply op=mix",
            "command kind=label",
            "command > did evict",
            "command kind=drop",
        ];
        // The span of the command that answered the caller may not have ended yet.
        let told = take();
        assert_eq!(told[..expected.len()], expected, "{told:#?}");
        runtime.sync().unwrap();
        take();

        runtime.get(&y).unwrap();
        drop(z);
        runtime.sync().unwrap();
        let told = take();
        let from = told.iter().position(|line| line.contains("regenerate")).unwrap();
        let expected = [
            "command > regenerate > will regenerate",
            "command > regenerate > will regenerate",
            "command > regenerate > did regenerate",
            "command > regenerate > will evict",
            "command > regenerate > did evict",
            "command > regenerate > did regenerate",
            "command > regenerate wanted=y runs=2",
            "command kind=get",
        ];
        assert_eq!(told[from..from + expected.len()], expected, "{told:#?}");
        assert!(told[from..].iter().any(|line| line == "command kind=del"), "{told:#?}");
    });
}
