//! The two inner loops, written once and compiled for each instruction set.

/// Defines `gather_product` and `gather_dots` in a module that has a vector type `V`, `LANES`, `TILES` and the
/// functions `splat`, `load`, `load_first`, `store`, `store_first`, `fma` and `sum`.
macro_rules! kernels {
    ($(#[$feature:meta])*) => {
        /// See [`Level::gather_product`](super::Level::gather_product).
        $(#[$feature])*
        pub fn gather_product(m: &super::Product<'_>, y: &mut [f32]) {
            match m.tile_rows {
                4 => product::<4>(m, y),
                8 => product::<8>(m, y),
                other => unreachable!("no tile has {other} rows"),
            }
        }

        $(#[$feature])*
        fn product<const ROWS: usize>(m: &super::Product<'_>, y: &mut [f32]) {
            let most = TILE_VECTORS[ROWS / 4 - 1];
            let vectors = m.positions.div_ceil(LANES);
            let tiles = vectors.div_ceil(most);
            let a_tiles = m.a.chunks_exact(m.offsets.len() * ROWS);
            for (a, y) in a_tiles.zip(y.chunks_mut(ROWS * m.y_stride)) {
                let (a, _) = a.as_chunks::<ROWS>();
                let mut from = 0;
                for i in 0..tiles {
                    // Tiles of even width: 4 vectors in tiles of at most 3 are 2 and 2.
                    let to = vectors * (i + 1) / tiles;
                    let p = from * LANES..(to * LANES).min(m.positions);
                    match to - from {
                        1 => product_tile::<ROWS, 1>(a, m, p, y),
                        2 => product_tile::<ROWS, 2>(a, m, p, y),
                        3 => product_tile::<ROWS, 3>(a, m, p, y),
                        4 if ROWS == 4 => product_tile::<ROWS, 4>(a, m, p, y),
                        5 if ROWS == 4 => product_tile::<ROWS, 5>(a, m, p, y),
                        6 if ROWS == 4 => product_tile::<ROWS, 6>(a, m, p, y),
                        other => unreachable!("no tile is {other} vectors wide"),
                    }
                    from = to;
                }
            }
        }

        /// `ROWS` output rows, `WIDTH` vectors of positions `p`; all sums stay in registers.
        #[inline]
        $(#[$feature])*
        fn product_tile<const ROWS: usize, const WIDTH: usize>(
            a: &[[f32; ROWS]],
            m: &super::Product<'_>,
            p: std::ops::Range<usize>,
            y: &mut [f32],
        ) {
            let mut sums = [[splat(0.0); WIDTH]; ROWS];
            for (a, &offset) in a.iter().zip(m.offsets) {
                let (x, _) = m.x[offset as usize + p.start..][..WIDTH * LANES].as_chunks::<LANES>();
                let mut xs = [splat(0.0); WIDTH];
                for j in 0..WIDTH {
                    xs[j] = load(&x[j]);
                }
                for i in 0..ROWS {
                    let a = splat(a[i]);
                    for j in 0..WIDTH {
                        sums[i][j] = fma(a, xs[j], sums[i][j]);
                    }
                }
            }
            let mut rows = y.chunks_mut(m.y_stride);
            for i in 0..ROWS {
                let Some(row) = rows.next() else { return };
                let row = &mut row[p.clone()];
                for j in 0..WIDTH {
                    match row[j * LANES..].first_chunk_mut::<LANES>() {
                        Some(full) => store(full, sums[i][j]),
                        None => store_first(&mut row[j * LANES..], sums[i][j]),
                    }
                }
            }
        }

        /// See [`Level::gather_dots`](super::Level::gather_dots).
        $(#[$feature])*
        pub fn gather_dots(m: &super::Dots<'_>, sums: &mut [f32]) {
            let taps = m.offsets.len();
            for tap in (0..taps).step_by(DOT_TAPS) {
                for row in (0..m.rows).step_by(DOT_ROWS) {
                    dots_tile(m, row, tap, sums);
                }
            }
        }

        #[inline]
        $(#[$feature])*
        fn dots_tile(m: &super::Dots<'_>, row: usize, tap: usize, sums: &mut [f32]) {
            let taps = m.offsets.len();
            // Tiles at the edge repeat their last row and tap.
            let mut starts = [0; DOT_TAPS];
            for (j, start) in starts.iter_mut().enumerate() {
                *start = m.offsets[(tap + j).min(taps - 1)] as usize;
            }
            let mut acc = [[splat(0.0); DOT_TAPS]; DOT_ROWS];
            for image in 0..m.images {
                let dy = &m.dy[image * m.dy_image..];
                let x = &m.x[image * m.x_image..];
                let mut dys = [&dy[..0]; DOT_ROWS];
                for (i, dys) in dys.iter_mut().enumerate() {
                    *dys = &dy[(row + i).min(m.rows - 1) * m.dy_stride..][..m.positions];
                }
                let mut xs = [&x[..0]; DOT_TAPS];
                for (xs, start) in xs.iter_mut().zip(starts) {
                    *xs = &x[start..][..m.positions];
                }
                let full = m.positions / LANES;
                for v in 0..full {
                    let mut d = [splat(0.0); DOT_ROWS];
                    for i in 0..DOT_ROWS {
                        d[i] = load(&dys[i].as_chunks::<LANES>().0[v]);
                    }
                    for j in 0..DOT_TAPS {
                        let x = load(&xs[j].as_chunks::<LANES>().0[v]);
                        for i in 0..DOT_ROWS {
                            acc[i][j] = fma(d[i], x, acc[i][j]);
                        }
                    }
                }
                if m.positions % LANES != 0 {
                    let mut d = [splat(0.0); DOT_ROWS];
                    for i in 0..DOT_ROWS {
                        d[i] = load_first(dys[i].as_chunks::<LANES>().1);
                    }
                    for j in 0..DOT_TAPS {
                        let x = load_first(xs[j].as_chunks::<LANES>().1);
                        for i in 0..DOT_ROWS {
                            acc[i][j] = fma(d[i], x, acc[i][j]);
                        }
                    }
                }
            }
            let mut values = [[0.0; DOT_TAPS]; DOT_ROWS];
            for i in 0..DOT_ROWS {
                for j in 0..DOT_TAPS {
                    values[i][j] = sum(acc[i][j]);
                }
            }
            let (height, width) = (DOT_ROWS.min(m.rows - row), DOT_TAPS.min(taps - tap));
            for (values, sums) in values[..height].iter().zip(sums[row * taps..].chunks_mut(taps)) {
                for (value, sum) in values[..width].iter().zip(&mut sums[tap..]) {
                    *sum += *value;
                }
            }
        }
    };
}
