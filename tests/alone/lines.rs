//! The engine logs its actions by `tracing`, in lines of the target `remat`. A line names a tensor
//! by its label, or else by its number.

use crate::alone;
use crate::common::log::Log;
use crate::common::toy::{Broken, Bytes, Toy, engine, mix};

/// People read these lines, and scripts search them. The test runs alone, because if another thread
/// logged a kind of line first, without a subscriber, `tracing` would omit this kind of line here.
#[test]
fn events_are_told_as_readable_lines() {
    alone("lines::events_are_told_as_readable_lines", || {
        let log = Log::default();
        log.during(|| {
            let mut engine = engine(64);
            let x = engine.put(Bytes::of(32, 1));
            let y = engine.apply(mix(32, 2), &[x]).unwrap()[0];
            let _z = engine.apply(mix(32, 3), &[y]).unwrap();
            assert_eq!(
                log.take(),
                [
                    "will evict op=put tensor=1v1 bytes=32 score=..",
                    "did evict op=put tensor=1v1 bytes=32"
                ]
            );
            engine.label(y, "y").unwrap();
            assert!(engine.drop_now(y).unwrap());
            engine.get(y).unwrap();
            engine.step();
            assert_eq!(
                log.take(),
                [
                    "did evict op=mix tensor=y bytes=32",
                    "will regenerate op=mix tensor=y bytes=32 depth=1",
                    "will regenerate op=put tensor=1v1 bytes=32 depth=2",
                    "did regenerate op=put tensor=1v1 bytes=32 cost=..",
                    "will evict op=mix tensor=3v1 bytes=32 score=..",
                    "did evict op=mix tensor=3v1 bytes=32",
                    "did regenerate op=mix tensor=y bytes=32 cost=..",
                    "step step=1 used=64",
                ]
            );
        });
        log.during(|| {
            let mut engine = engine(64);
            let keys = [1, 2, 3, 4].map(|seed| engine.put(Bytes::of(16, seed)));
            engine.del(keys[0]);
            engine.del(keys[2]);
            engine.apply(mix(32, 2), &[]).unwrap();
            assert_eq!(log.take(), ["did compact wanted=32 moves=1 moved=16"]);
            engine.commit(keys[1]).unwrap();
            assert!(!engine.drop_now(keys[1]).unwrap());
            let line = "drop_now() did not evict this tensor: a leaf cannot be recomputed \
                        tensor=put bytes=16";
            assert_eq!(log.take(), [line]);
            let op = Toy::Break { bytes: vec![1], salt: 1, run: 1, how: Broken::Fails };
            engine.apply(op, &[]).unwrap_err();
            let line = "op failed error=break failed on the device: broken on purpose";
            assert_eq!(log.take().last().unwrap(), line);
            engine.apply(mix(128, 9), &[]).unwrap_err();
            let lines = log.take();
            let line = lines.iter().find(|line| line.starts_with("out of memory"));
            let line = line.expect("it does not fit");
            assert!(line.contains("wanted=128") && line.contains("map="), "{line}");
        });
    });
}
