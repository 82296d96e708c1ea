//! A fabric with the speed of a network.

use remat::unstable::collective::{Fabric, FabricError};
use remat::unstable::lab::Network;
use std::time::{Duration, Instant};

/// Fabric whose calls take as long as a network would take for their messages. A call sends a
/// message to each other rank.
#[derive(Debug)]
pub struct Slow<F> {
    pub fabric: F,
    pub network: Network,
}

impl<F: Fabric> Slow<F> {
    /// Waits as long as messages of `bytes` bytes to each other rank take.
    fn wait(&self, bytes: usize) {
        let Network { bytes_per_second, latency, .. } = self.network;
        let others = (self.fabric.size() - 1) as f64;
        let seconds = others * (latency + bytes as f64 / bytes_per_second);
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        // A sleeping thread wakes up late, so the sleep ends early and the thread spins for the
        // rest.
        let early = Duration::from_micros(200);
        std::thread::sleep(end.saturating_duration_since(Instant::now() + early));
        while Instant::now() < end {
            std::thread::yield_now();
        }
    }
}

impl<F: Fabric> Fabric for Slow<F> {
    fn rank(&self) -> usize {
        self.fabric.rank()
    }

    fn size(&self) -> usize {
        self.fabric.size()
    }

    fn local(&self) -> (usize, usize) {
        self.fabric.local()
    }

    fn all_to_all(&self, send: &[u8], receive: &mut [u8]) -> Result<(), FabricError> {
        self.fabric.all_to_all(send, receive)?;
        self.wait(send.len() / self.size());
        Ok(())
    }

    fn all_gather(&self, send: &[u8], receive: &mut [u8]) -> Result<(), FabricError> {
        self.fabric.all_gather(send, receive)?;
        self.wait(send.len());
        Ok(())
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), FabricError> {
        self.fabric.broadcast(root, bytes)?;
        self.wait(bytes.len());
        Ok(())
    }
}
