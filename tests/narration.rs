//! The runtime says what it does, as `tracing` events of target `remat`: what it is about to evict or
//! regenerate, and what it did. A tensor goes by its label, or else by its number.

mod common;

use common::log::Log;
use common::toy::{Broken, Bytes, Toy, engine, mix};

#[test]
fn evicting_and_regenerating_is_told_step_by_step() {
    let log = Log::default();
    log.during(|| {
        let mut engine = engine(64);
        let x = engine.put(Bytes::of(32, 1));
        let y = engine.apply(mix(32, 2), &[x]).unwrap()[0];
        assert!(log.take().is_empty(), "nothing happens while there is room");

        let _z = engine.apply(mix(32, 3), &[y]).unwrap();
        assert_eq!(
            log.take(),
            ["will evict op=put tensor=1v1 bytes=32", "did evict op=put tensor=1v1 bytes=32"]
        );

        engine.label(y, "y").unwrap();
        assert!(engine.drop_now(y).unwrap());
        assert_eq!(log.take(), ["did evict op=mix tensor=y bytes=32"]);

        engine.get(y).unwrap();
        assert_eq!(
            log.take(),
            [
                "will regenerate op=mix tensor=y bytes=32 depth=1",
                "will regenerate op=put tensor=1v1 bytes=32 depth=2",
                "did regenerate op=put tensor=1v1 bytes=32",
                "will evict op=mix tensor=3v1 bytes=32",
                "did evict op=mix tensor=3v1 bytes=32",
                "did regenerate op=mix tensor=y bytes=32",
            ]
        );

        engine.step();
        assert_eq!(log.take(), ["step step=1 used=64"]);
    });
}

#[test]
fn moving_blocks_is_told() {
    let log = Log::default();
    log.during(|| {
        let mut engine = engine(64);
        let keys = [1, 2, 3, 4].map(|seed| engine.put(Bytes::of(16, seed)));
        engine.del(keys[0]);
        engine.del(keys[2]);
        engine.apply(mix(32, 2), &[]).unwrap();
        assert_eq!(log.take(), ["did compact wanted=32 moves=1 moved=16"]);
    });
}

#[test]
fn a_failure_is_told_once() {
    let log = Log::default();
    log.during(|| {
        let mut engine = engine(64);
        let op = Toy::Break { bytes: vec![1], salt: 1, run: 1, how: Broken::Fails };
        engine.apply(op, &[]).unwrap_err();
        let told = log.take();
        assert_eq!(told, ["op failed error=break failed on the device: broken on purpose"]);
    });
}
