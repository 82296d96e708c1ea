//! Listeners receive events before and after each eviction and regeneration.

use crate::common::heard::{Heard, storage};
use crate::common::toy::{Broken, Bytes, Toy, engine, mix};
use remat::unstable::event::{Cause, Event};

#[test]
fn evicting_and_regenerating_is_told_step_by_step() {
    let mut engine = engine(64);
    let heard = Heard::of(&mut engine);
    let x = engine.put(Bytes::of(32, 1));
    let y = engine.apply(mix(32, 2), &[x]).unwrap()[0];
    assert_eq!(heard.take_story(), [], "nothing happens while there is room");

    let z = engine.apply(mix(32, 3), &[y]).unwrap()[0];
    let [x, z, of_y] = [x, z, y].map(|key| storage(&engine, key));
    let told = heard.take_story();
    let [Event::WillEvict { storage, score: Some(score) }, gone] = told[..] else {
        panic!("{told:?}")
    };
    assert!(storage == x && score > 0.0, "{told:?}");
    assert_eq!(gone, Event::DidEvict { storage: x, bytes: 32, cause: Cause::Room });

    assert!(engine.drop_now(y).unwrap());
    let wished = Event::DidEvict { storage: of_y, bytes: 32, cause: Cause::Wish };
    assert_eq!(heard.take_story(), [wished]);

    engine.get(y).unwrap();
    let told = heard.take_story();
    let [first, second, x_is_back, Event::WillEvict { storage: goes, .. }, gone, y_is_back] =
        told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!(first, Event::WillRegenerate { storage: of_y, depth: 1 });
    assert_eq!(second, Event::WillRegenerate { storage: x, depth: 2 });
    let is_back = |event, wanted| matches!(event, Event::DidRegenerate { storage, bytes: 32, .. } if storage == wanted);
    assert!(is_back(x_is_back, x) && is_back(y_is_back, of_y), "{told:?}");
    assert_eq!(goes, z);
    assert_eq!(gone, Event::DidEvict { storage: z, bytes: 32, cause: Cause::Room });

    engine.step();
    assert_eq!(heard.take_story(), [Event::DidStep { step: 1, used: 64 }]);
}

#[test]
fn moving_blocks_is_told() {
    let mut engine = engine(64);
    let keys = [1, 2, 3, 4].map(|seed| engine.put(Bytes::of(16, seed)));
    engine.del(keys[0]);
    engine.del(keys[2]);
    let heard = Heard::of(&mut engine);
    engine.apply(mix(32, 2), &[]).unwrap();
    assert_eq!(heard.take_story(), [Event::DidMove { wanted: 32, moves: 1, bytes: 16 }]);
}

#[test]
fn a_failure_is_told_once() {
    let mut engine = engine(64);
    let heard = Heard::of(&mut engine);
    let op = Toy::Break { bytes: vec![1], salt: 1, run: 1, how: Broken::Fails };
    let error = engine.apply(op, &[]).unwrap_err();
    let told = heard.take();
    assert_eq!(told[0], Event::DidFail { failure: error.key() });
    assert!(told[1..].iter().all(|event| matches!(event, Event::DidDelete { .. })), "{told:?}");
}
