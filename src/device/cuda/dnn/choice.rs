//! Choice of cuDNN's algorithm for a shape. The choice never depends on measured times: times vary
//! from run to run, so the algorithm and the bits would vary too.

use crate::device::conv_shape::Kind;
use std::ffi::c_int;

/// Most bytes of workspace of an algorithm for a convolution whose three tensors have `tensors`
/// bytes together.
///
/// The cap is twice `tensors`, and at most 256 MiB. Algorithms on tensor cores need a copy of all
/// three tensors in another layout, and as many bytes besides. Algorithms that enlarge the tensors,
/// such as FFTs, are excluded: their workspace would set the peak of a step, and so the smallest
/// possible budget. Not yet tuned on a GPU.
pub(super) fn workspace_cap(tensors: usize) -> usize {
    tensors.saturating_mul(2).min(256 << 20)
}

/// Math mode of an algorithm, with cuDNN's numbers.
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
    /// Math mode to ask cuDNN for.
    pub(super) const fn wanted(tf32: bool) -> Self {
        if tf32 { Self::Default } else { Self::Fma }
    }

    /// Math mode in which to run an algorithm that cuDNN offered with math mode `number`. `None` if
    /// the algorithm may not be used.
    const fn allowed(number: u32, tf32: bool) -> Option<Self> {
        match (number, tf32) {
            (0, true) => Some(Self::Default),
            (1, true) => Some(Self::TensorOp),
            // Without TF32 in the options: devices that lack TF32 offer the default mode, which is
            // f32 there. cuDNN is asked about the algorithm again, with f32 only. The algorithm is
            // chosen only if cuDNN accepts that.
            (0, false) | (3, _) => Some(Self::Fma),
            // Mode 2 rounds to f16.
            _ => None,
        }
    }
}

/// cuDNN's description of an algorithm: `cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t`. The
/// three types differ only in the enum of `algorithm`. Fields are plain numbers, as a newer cuDNN
/// may return some that the enums lack.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Offer {
    algorithm: u32,
    /// 0 if the algorithm works.
    status: u32,
    seconds: f32,
    bytes: usize,
    /// 1 if every run gives the same bits.
    determinism: u32,
    math: u32,
    reserved: [c_int; 3],
}

/// An algorithm that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// cuDNN's number of the algorithm.
    pub algorithm: u32,
    /// Math mode to run with.
    pub math: Math,
    /// Bytes of workspace.
    pub bytes: usize,
}

/// Whether a status of cuDNN 9 is about the request and therefore always the same: wrong, or not
/// supported. Other statuses may be about memory or another temporary state.
pub(super) const fn is_lasting(status: u32) -> bool {
    matches!(status, 2000..=3999)
}

/// Whether cuDNN's documentation says that an algorithm adds in any order. An offer of this
/// algorithm may say that every run gives the same bits.
const fn adds_in_any_order(kind: Kind, algorithm: u32) -> bool {
    matches!((kind, algorithm), (Kind::GradInput, 0) | (Kind::GradWeight, 0 | 3))
}

/// Offers that work, are deterministic and as exact as wanted, in cuDNN's order.
///
/// # Errors
/// The status of an offer that may work at another time. If this offer were ignored now, a later
/// run could use it and give other bits.
pub(super) fn candidates(kind: Kind, offers: &[Offer], tf32: bool) -> Result<Vec<Candidate>, u32> {
    let mut found = Vec::new();
    for &Offer { algorithm, status, bytes, determinism, math, .. } in offers {
        if adds_in_any_order(kind, algorithm) || is_lasting(status) {
            continue;
        }
        if status != 0 {
            return Err(status);
        }
        if let (1, Some(math)) = (determinism, Math::allowed(math, tf32)) {
            found.push(Candidate { algorithm, math, bytes });
        }
    }
    Ok(found)
}

/// The first candidate whose workspace is within the cap. cuDNN lists the candidates with the
/// fastest first. If all workspaces exceed the cap, the candidate with the smallest workspace,
/// provided that it needs fewer bytes than `otherwise`. `otherwise` is the workspace of the
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
        for (status, lasting) in [
            (1001, false),
            (1999, false),
            (2000, true),
            (2003, true),
            (3000, true),
            (3999, true),
            (4000, false),
            (4003, false),
            (5000, false),
        ] {
            assert_eq!(is_lasting(status), lasting, "{status}");
            let found = candidates(Kind::Forward, &offers(status), false);
            let found = found.map(|found| found.iter().map(|found| found.algorithm).collect());
            assert_eq!(found, if lasting { Ok(vec![1]) } else { Err(status) });
        }
        // An offer that would not be used may fail with any status.
        assert_eq!(
            candidates(Kind::GradInput, &offers(4000), false).map(|found| found.len()),
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
