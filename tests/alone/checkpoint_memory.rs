//! Host memory that a checkpoint takes: one tensor at a time, however large the network is.

use crate::alone;
use crate::counting::peak_during;
use remat::checkpoint::{Checkpoint, Writer};
use remat::nn::{Mode, Module as _, mlp};
use remat::optim::Optimizer;
use remat::{Runtime, autograd::Tape};

#[test]
fn the_host_holds_one_tensor_of_many() {
    alone("checkpoint_memory::the_host_holds_one_tensor_of_many", || {
        let path = std::env::temp_dir().join(format!("remat-memory-{}", std::process::id()));
        let start = || Runtime::builder().budget("64MiB").threads(1).cpu().unwrap();
        let runtime = start();
        // 12 layers of 256 KiB, and their velocities.
        let mut network = mlp(&runtime, 256, &[256; 12], 4).unwrap();
        let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0);
        let tape = Tape::new(&runtime);
        tape.watch(&mut network);
        let x = runtime.ones(&[1, 256]).unwrap();
        let loss = network.forward(&x, Mode::Train).unwrap().sum().unwrap();
        sgd.minimize(tape, &loss, &mut network).unwrap();
        runtime.sync().unwrap();
        let (layer, all) = (256 << 10, 24 * (256 << 10));
        let (writing, written) =
            peak_during(|| Writer::of(&mut network).optimizer(&sgd).save(&runtime, &path));
        written.unwrap();
        assert!(path.metadata().unwrap().len() as usize > all);
        assert!((layer..3 * layer).contains(&writing), "{writing} bytes for tensors of {layer}");

        // After a value was read from the file and put on the device, no copy of the value stays
        // on the host.
        let checkpoint = Checkpoint::open(&path).unwrap();
        let again = start();
        let mut other = mlp(&again, 256, &[256; 12], 4).unwrap();
        checkpoint.load(&again, &mut other).unwrap();
        checkpoint.load_optimizer(&again, &mut other, &mut Optimizer::sgd(0.1, 0.9, 0.0)).unwrap();
        assert_eq!(again.stats().unwrap().host_bytes, 0, "copies stay on the host");
        std::fs::remove_file(path).unwrap();
    });
}
