//! Choice of cuDNN's algorithm for a shape. The choice never depends on measured times: times vary
//! from run to run, so the algorithm and the bits would vary, too.

use crate::device::conv_shape::Kind;
use std::ffi::c_int;

/// Largest number of workspace bytes of an algorithm, for a convolution whose three tensors have
/// `tensors` bytes together.
///
/// The cap is twice `tensors`, and at most 256 MiB. Algorithms on tensor cores need a copy of all
/// three tensors in another layout, and as many bytes again. The cap excludes algorithms that
/// enlarge the tensors, such as FFTs: the workspace of these algorithms would determine the peak of
/// a step, and therefore the smallest possible budget. The cap was not tuned on a GPU.
pub(super) fn workspace_cap(tensors: usize) -> usize {
    tensors.saturating_mul(2).min(256 << 20)
}

/// Math mode of an algorithm. The discriminants are cuDNN's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Math {
    /// f32, or TF32 if the device has it.
    Default = 0,
    /// TF32 for f32 data.
    TensorOp = 1,
    /// f32 only.
    Fma = 3,
}

impl Math {
    /// Math mode to request from cuDNN.
    pub(super) const fn wanted(tf32: bool) -> Self {
        if tf32 { Self::Default } else { Self::Fma }
    }

    /// Math mode in which to run an algorithm that cuDNN offered with the math mode `number`.
    /// Returns `None` if the algorithm must not be used.
    const fn allowed(number: u32, tf32: bool) -> Option<Self> {
        match (number, tf32) {
            (0, true) => Some(Self::Default),
            (1, true) => Some(Self::TensorOp),
            // The options exclude TF32. On devices without TF32, cuDNN offers the default mode,
            // which means f32 there. The caller then queries the algorithm's workspace for f32
            // only, and uses the algorithm only if the query succeeds.
            (0, false) | (3, _) => Some(Self::Fma),
            // Mode 2 rounds to f16.
            _ => None,
        }
    }
}

/// cuDNN's description of an algorithm: `cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t`. The
/// three types differ only in the enum of `algorithm`. The fields are plain numbers instead of
/// enums, because a newer cuDNN may return numbers that the enums lack.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Offer {
    algorithm: u32,
    /// 0 if the algorithm works.
    status: u32,
    seconds: f32,
    bytes: usize,
    /// 1 if the algorithm gives the same bits in every run.
    determinism: u32,
    math: u32,
    reserved: [c_int; 3],
}

/// An algorithm that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// cuDNN's number of the algorithm.
    pub algorithm: u32,
    /// Math mode in which to run the algorithm.
    pub math: Math,
    /// Bytes of workspace.
    pub bytes: usize,
}

/// Whether a status of cuDNN 9 means that the request is invalid or not supported, so that cuDNN
/// would return the status for every repetition of the request. Other statuses may come from too
/// little memory, or from another temporary state.
pub(super) const fn is_lasting(status: u32) -> bool {
    matches!(status, 2000..=3999)
}

/// Whether the status of an offered algorithm means that the algorithm may work later: cuDNN is not
/// ready, or has too little memory. cuDNN may return any other status for an algorithm that does
/// not suit the task.
const fn is_temporary(status: u32) -> bool {
    // The numbers 4003 and 4004 are failed allocations on the host and on the device.
    matches!(status, 1000..=1999 | 4003 | 4004)
}

/// Whether an algorithm adds in an order that may vary from run to run, according to cuDNN's
/// documentation. cuDNN may nevertheless offer the algorithm as deterministic.
const fn adds_in_any_order(kind: Kind, algorithm: u32) -> bool {
    matches!((kind, algorithm), (Kind::GradInput, 0) | (Kind::GradWeight, 0 | 3))
}

/// Returns the offered algorithms that work, are deterministic, and have the wanted precision, in
/// cuDNN's order.
///
/// # Errors
/// The status of an offer that fails now but may work later. If the function ignored the offer now,
/// a later run could use the offer, and give other bits.
pub(super) fn candidates(kind: Kind, offers: &[Offer], tf32: bool) -> Result<Vec<Candidate>, u32> {
    let mut found = Vec::new();
    for &Offer { algorithm, status, bytes, determinism, math, .. } in offers {
        if adds_in_any_order(kind, algorithm) {
            continue;
        }
        if is_temporary(status) {
            return Err(status);
        }
        if let (0, 1, Some(math)) = (status, determinism, Math::allowed(math, tf32)) {
            found.push(Candidate { algorithm, math, bytes });
        }
    }
    Ok(found)
}

/// Returns the first candidate whose workspace is within the cap. The candidates are in cuDNN's
/// order, fastest first. If all workspaces exceed the cap, returns the candidate with the smallest
/// workspace if this workspace is smaller than `otherwise`. `otherwise` is the workspace of the
/// convolution without cuDNN.
pub(super) fn choose(candidates: &[Candidate], cap: usize, otherwise: usize) -> Option<Candidate> {
    let within = candidates.iter().find(|candidate| candidate.bytes <= cap);
    let smallest = || {
        let smallest = candidates.iter().min_by_key(|candidate| candidate.bytes);
        smallest.filter(|smallest| smallest.bytes < otherwise)
    };
    within.or_else(smallest).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Offer = Offer {
        algorithm: 0,
        status: 0,
        seconds: -1.0,
        bytes: 0,
        determinism: 1,
        math: 3,
        reserved: [0; 3],
    };

    fn found(offers: &[Offer], tf32: bool) -> Vec<(u32, Math)> {
        let found = candidates(Kind::Forward, offers, tf32).unwrap();
        found.iter().map(|found| (found.algorithm, found.math)).collect()
    }

    #[test]
    fn only_what_works_the_same_each_time_is_a_candidate() {
        let offers = [
            Offer { algorithm: 1, status: 3000, ..GOOD },
            Offer { algorithm: 2, determinism: 0, ..GOOD },
            Offer { algorithm: 3, ..GOOD },
            Offer { algorithm: 4, determinism: 7, ..GOOD },
        ];
        assert_eq!(found(&offers, false), [(3, Math::Fma)]);
        assert_eq!(found(&offers[..2], false), []);
    }

    #[test]
    fn algorithms_that_add_in_any_order_are_no_candidates() {
        let offers = [0, 1, 2, 3, 4].map(|algorithm| Offer { algorithm, ..GOOD });
        for (kind, expected) in [
            (Kind::Forward, &[0, 1, 2, 3, 4][..]),
            (Kind::GradInput, &[1, 2, 3, 4]),
            (Kind::GradWeight, &[1, 2, 4]),
        ] {
            let found = candidates(kind, &offers, false).unwrap();
            let found: Vec<_> = found.iter().map(|found| found.algorithm).collect();
            assert_eq!(found, expected, "{kind:?}");
        }
    }

    #[test]
    fn a_passing_failure_is_an_error_and_a_lasting_one_is_skipped() {
        let offers =
            |status| [Offer { algorithm: 0, status, ..GOOD }, Offer { algorithm: 1, ..GOOD }];
        for (status, lasting, temporary) in [
            (1001, false, true),
            (1999, false, true),
            (2000, true, false),
            (2003, true, false),
            (3000, true, false),
            (3999, true, false),
            // A request that fails like this is not repeated without cuDNN, but an offer is refused.
            (4000, false, false),
            (4003, false, true),
            (4004, false, true),
            (4005, false, false),
            (5000, false, false),
            (u32::MAX, false, false),
        ] {
            assert_eq!(is_lasting(status), lasting, "{status}");
            let found = candidates(Kind::Forward, &offers(status), false);
            let found = found.map(|found| found.iter().map(|found| found.algorithm).collect());
            assert_eq!(found, if temporary { Err(status) } else { Ok(vec![1]) });
        }
        // The status of an offer that must not be used has no effect.
        assert_eq!(
            candidates(Kind::GradInput, &offers(4003), false).map(|found| found.len()),
            Ok(1)
        );
    }

    #[test]
    fn without_tf32_all_run_as_f32_alone() {
        let offers = [2, 1, 0, 3, 9].map(|math| Offer { algorithm: math, math, ..GOOD });
        assert_eq!(found(&offers, false), [(0, Math::Fma), (3, Math::Fma)]);
        assert_eq!(found(&offers, true), [(1, Math::TensorOp), (0, Math::Default), (3, Math::Fma)]);
    }

    #[test]
    fn the_first_within_the_cap_is_chosen_or_the_smallest() {
        let list = |sizes: &[usize]| {
            let numbered = (0..).zip(sizes);
            numbered
                .map(|(algorithm, &bytes)| Candidate { algorithm, math: Math::Fma, bytes })
                .collect::<Vec<_>>()
        };
        let chosen =
            |sizes: &[usize]| choose(&list(sizes), 100, 200).map(|chosen| chosen.algorithm);
        assert_eq!(chosen(&[]), None);
        assert_eq!(chosen(&[5, 0]), Some(0));
        assert_eq!(chosen(&[101, 100, 0]), Some(1));
        assert_eq!(chosen(&[103, 101, 102]), Some(1));
        assert_eq!(chosen(&[200, 201]), None);
    }

    #[test]
    fn workspaces_grow_with_the_tensors_to_some_size() {
        assert_eq!(
            [0, 1000, 128 << 20, usize::MAX].map(workspace_cap),
            [0, 2000, 256 << 20, 256 << 20]
        );
    }
}
