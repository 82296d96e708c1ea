//! Selection of the inner loops for the processor.

#[macro_use]
mod kernels;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

/// Largest number of rows in a tile. The number of rows of packed weights is padded to a multiple
/// of `MAX_TILE_ROWS`, so that the size of packed weights does not depend on the instruction set.
pub(super) const MAX_TILE_ROWS: usize = 8;

/// A product `y[i][p] = sum over taps t of a[i][t] * x[offsets[t] + p]`. The rows of the right-hand
/// side are windows of one buffer, which may overlap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product<'a> {
    /// Left-hand side, stored in tiles of `tile_rows` rows. Within a tile, the elements of each tap
    /// (column) are contiguous. The last tile is padded with zeros.
    pub a: &'a [f32],
    /// Number of rows of a tile, as returned by [`Level::tile_rows`].
    pub tile_rows: usize,
    /// Start of each window in `x`; not empty.
    pub offsets: &'a [u32],
    /// Buffer of the windows, with at least [`SLACK`](super::windows::SLACK) floats after the last
    /// window.
    pub x: &'a [f32],
    /// Length of each window.
    pub positions: usize,
    /// Distance between output rows. The last row needs only `positions` elements.
    pub y_stride: usize,
}

/// Dot products `sums[i][t] += sum over images and p of dy[i][p] * x[offsets[t] + p]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dots<'a> {
    /// Rows of the left-hand side. Rows are `dy_stride` floats apart, and images are `dy_image`
    /// floats apart.
    pub dy: &'a [f32],
    pub rows: usize,
    pub dy_stride: usize,
    pub dy_image: usize,
    /// Buffer of the windows. Images are `x_image` floats apart.
    pub x: &'a [f32],
    pub x_image: usize,
    /// Start of each window in `x`; at least one window.
    pub offsets: &'a [u32],
    pub images: usize,
    /// Length of rows and windows.
    pub positions: usize,
}

impl Dots<'_> {
    /// Number of scratch floats for a packed tile of rows of `dy`. The number is large enough for
    /// every instruction set.
    pub const fn tile_len(images: usize, positions: usize) -> usize {
        const MAX_LANES: usize = 16;
        const MAX_ROWS: usize = 4;
        images * positions.next_multiple_of(MAX_LANES) * MAX_ROWS
    }
}

/// A product `c[i][j] = factor * (sum over l of a[i][l] * b[l][j])`. The product overwrites `c`, or
/// is added to `c`. The method is meant for small matrices that fit in the cache.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Matrices<'a> {
    /// Three sizes: the number of rows of `a` and `c`; the number of columns of `a`, which is the
    /// number of rows of `b` and at least 1; and the number of columns of `b` and `c`.
    pub sizes: [usize; 3],
    pub a: &'a [f32],
    /// Distance between rows of `a`, and distance between columns of `a`. Products are fastest if
    /// one of the two distances is 1.
    pub a_strides: [usize; 2],
    /// Right-hand side, whose rows have [`padded`] columns.
    pub b: &'a [f32],
    /// Distance between rows of `b`.
    pub b_stride: usize,
    /// Distance between rows of `c`.
    pub c_stride: usize,
    pub factor: f32,
    /// Whether the product is added to `c`.
    pub add: bool,
}

/// Padded number of columns of [`Matrices::b`]. The padded number does not depend on the
/// instruction set. The contents of the padding do not affect results.
pub(in crate::ops) const fn padded(columns: usize) -> usize {
    const MAX_LANES: usize = 16;
    columns.next_multiple_of(MAX_LANES)
}

/// An instruction set that this processor has.
///
/// Results computed with two levels may differ in their last bits. On one machine,
/// [`Level::detect`] always returns the same level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Level(Isa);

/// Instruction set of a level. The type is private, so that only [`Level::available`] makes a
/// [`Level`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isa {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "aarch64")]
    Neon,
    Portable,
}

impl Level {
    /// All levels that this processor supports, best first.
    pub fn available() -> impl Iterator<Item = Self> {
        [
            #[cfg(target_arch = "x86_64")]
            (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl"))
                .then_some(Isa::Avx512),
            #[cfg(target_arch = "x86_64")]
            (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"))
                .then_some(Isa::Avx2),
            #[cfg(target_arch = "aarch64")]
            std::arch::is_aarch64_feature_detected!("neon").then_some(Isa::Neon),
            Some(Isa::Portable),
        ]
        .into_iter()
        .flatten()
        .map(Self)
    }

    /// The best level that this processor supports.
    pub fn detect() -> Self {
        Self::available().next().unwrap_or(Self(Isa::Portable))
    }

    /// Number of rows of a tile of packed weights, for a product with `rows` rows. The number
    /// divides [`MAX_TILE_ROWS`].
    pub fn tile_rows(self, rows: usize) -> usize {
        match self.0 {
            // A depthwise convolution has one row.
            _ if rows == 1 => 1,
            // If at least half of the last tile of 8 rows would be padding, tiles of 4 rows are at
            // least as fast as tiles of 8 rows.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 if !(1..=4).contains(&(rows % MAX_TILE_ROWS)) => 8,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon if !(1..=4).contains(&(rows % MAX_TILE_ROWS)) => 8,
            _ => 4,
        }
    }

    /// Computes a [`Product`], and overwrites the positions of `y`.
    pub(super) fn gather_product(self, m: &Product<'_>, y: &mut [f32]) {
        match self.0 {
            // SAFETY: only `available` makes a `Level`, and `available` found avx512f and avx512vl
            // on this processor.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { avx512::gather_product(m, y) },
            // SAFETY: only `available` makes a `Level`, and `available` found avx2 and fma on this
            // processor.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { avx2::gather_product(m, y) },
            // SAFETY: only `available` makes a `Level`, and `available` found neon on this
            // processor.
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => unsafe { neon::gather_product(m, y) },
            Isa::Portable => portable::gather_product(m, y),
        }
    }

    /// Adds [`Dots`] to `sums`, whose rows have one sum for each window. `tile` is scratch memory
    /// of [`Dots::tile_len`] floats.
    pub(super) fn gather_dots(self, m: &Dots<'_>, tile: &mut [f32], sums: &mut [f32]) {
        match self.0 {
            // SAFETY: only `available` makes a `Level`, and `available` found avx512f and avx512vl
            // on this processor.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { avx512::gather_dots(m, tile, sums) },
            // SAFETY: only `available` makes a `Level`, and `available` found avx2 and fma on this
            // processor.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { avx2::gather_dots(m, tile, sums) },
            // SAFETY: only `available` makes a `Level`, and `available` found neon on this
            // processor.
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => unsafe { neon::gather_dots(m, tile, sums) },
            Isa::Portable => portable::gather_dots(m, tile, sums),
        }
    }

    /// Computes [`Matrices`].
    pub fn multiply(self, m: &Matrices<'_>, c: &mut [f32]) {
        match self.0 {
            // SAFETY: only `available` makes a `Level`, and `available` found avx512f and avx512vl
            // on this processor.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { avx512::multiply(m, c) },
            // SAFETY: only `available` makes a `Level`, and `available` found avx2 and fma on this
            // processor.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { avx2::multiply(m, c) },
            // SAFETY: only `available` makes a `Level`, and `available` found neon on this
            // processor.
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => unsafe { neon::multiply(m, c) },
            Isa::Portable => portable::multiply(m, c),
        }
    }
}
