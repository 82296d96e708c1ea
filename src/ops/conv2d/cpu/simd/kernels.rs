//! The inner loops, written once and compiled for each instruction set.

/// Defines `gather_product`, `gather_dots` and `multiply`. The module that calls the macro must
/// have a vector type `V` of `LANES` floats, and the tile sizes `TILE_VECTORS`, `DOT_ROWS` and
/// `DOT_TAPS`. The module must also have the functions `splat`, `load`, `load_first`, `store`,
/// `store_first`, `fma` and `sums`.
///
/// Loops over the vectors of a tile use indices, so that the compiler unrolls the loops and keeps
/// the sums in registers.
macro_rules! kernels {
    ($(#[$feature:meta])*) => {
        /// See [`Level::gather_product`](super::Level::gather_product).
        $(#[$feature])*
        pub fn gather_product(m: &super::Product<'_>, y: &mut [f32]) {
            match m.tile_rows {
                1 => product::<1>(m, y),
                4 => product::<4>(m, y),
                8 if TILE_VECTORS[1] > 0 => product::<8>(m, y),
                other => unreachable!("no tile has {other} rows"),
            }
        }

        $(#[$feature])*
        fn product<const ROWS: usize>(m: &super::Product<'_>, y: &mut [f32]) {
            let most = TILE_VECTORS[ROWS / 8];
            let vectors = m.positions.div_ceil(LANES);
            let tiles = vectors.div_ceil(most);
            let a_tiles = m.a.chunks_exact(m.offsets.len() * ROWS);
            for (a, y) in a_tiles.zip(y.chunks_mut(ROWS * m.y_stride)) {
                let (a, _) = a.as_chunks::<ROWS>();
                let mut from = 0;
                for i in 0..tiles {
                    // Cut the vectors into tiles of about equal width. For example, if a tile may
                    // have 3 vectors, cut 4 vectors into 2 and 2, not 3 and 1.
                    let to = vectors * (i + 1) / tiles;
                    let p = from * LANES..(to * LANES).min(m.positions);
                    match to - from {
                        1 => product_tile::<ROWS, 1>(a, m, p, y),
                        2 => product_tile::<ROWS, 2>(a, m, p, y),
                        3 if most >= 3 => product_tile::<ROWS, 3>(a, m, p, y),
                        4 if most >= 4 => product_tile::<ROWS, 4>(a, m, p, y),
                        5 if most >= 5 => product_tile::<ROWS, 5>(a, m, p, y),
                        6 if most >= 6 => product_tile::<ROWS, 6>(a, m, p, y),
                        other => unreachable!("no tile is {other} vectors wide"),
                    }
                    from = to;
                }
            }
        }

        /// Computes `ROWS` output rows of `WIDTH` vectors at the positions `p`; all sums stay in
        /// registers.
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
        pub fn gather_dots(m: &super::Dots<'_>, tile: &mut [f32], out: &mut [f32]) {
            let (tile, _) = tile.as_chunks_mut::<LANES>();
            let (tile, _) = tile.as_chunks_mut::<DOT_ROWS>();
            let tile = &mut tile[..m.images * m.positions.div_ceil(LANES)];
            for row in (0..m.rows).step_by(DOT_ROWS) {
                pack_dots_tile(m, row, tile);
                for tap in (0..m.offsets.len()).step_by(DOT_TAPS) {
                    dots_tile(m, tile, row, tap, out);
                }
            }
        }

        /// Copies `DOT_ROWS` rows from `row` on, in whole vectors. Sets missing rows and the unused
        /// ends of vectors to zero.
        #[inline]
        $(#[$feature])*
        fn pack_dots_tile(m: &super::Dots<'_>, row: usize, tile: &mut [[[f32; LANES]; DOT_ROWS]]) {
            for (image, tile) in tile.chunks_exact_mut(m.positions.div_ceil(LANES)).enumerate() {
                for i in 0..DOT_ROWS {
                    if row + i >= m.rows {
                        tile.iter_mut().for_each(|vectors| vectors[i] = [0.0; LANES]);
                        continue;
                    }
                    let dy = &m.dy[image * m.dy_image + (row + i) * m.dy_stride..][..m.positions];
                    let (full, rest) = dy.as_chunks::<LANES>();
                    for (to, from) in tile.iter_mut().zip(full) {
                        to[i] = *from;
                    }
                    if !rest.is_empty() {
                        store(&mut tile[full.len()][i], load_first(rest));
                    }
                }
            }
        }

        /// Multiplies `DOT_ROWS` packed rows with `DOT_TAPS` windows; all sums stay in registers.
        #[inline]
        $(#[$feature])*
        fn dots_tile(
            m: &super::Dots<'_>,
            tile: &[[[f32; LANES]; DOT_ROWS]],
            row: usize,
            tap: usize,
            out: &mut [f32],
        ) {
            let taps = m.offsets.len();
            // Take slices of equal length, so that one bounds check covers the loads at one index
            // from all slices. A tile at the edge repeats its last window.
            let x_len = (m.images - 1) * m.x_image + m.positions;
            let mut xs = [&m.x[..0]; DOT_TAPS];
            for (j, xs) in xs.iter_mut().enumerate() {
                *xs = &m.x[m.offsets[(tap + j).min(taps - 1)] as usize..][..x_len];
            }
            let mut acc = [[splat(0.0); DOT_ROWS]; DOT_TAPS];
            let (full, rest) = (m.positions / LANES, m.positions % LANES);
            for (image, tile) in tile.chunks_exact(m.positions.div_ceil(LANES)).enumerate() {
                let x_at = image * m.x_image;
                for (v, dy) in tile[..full].iter().enumerate() {
                    let mut d = [splat(0.0); DOT_ROWS];
                    for i in 0..DOT_ROWS {
                        d[i] = load(&dy[i]);
                    }
                    for j in 0..DOT_TAPS {
                        let x = load(&xs[j][x_at + v * LANES..][..LANES].as_chunks().0[0]);
                        for i in 0..DOT_ROWS {
                            acc[j][i] = fma(d[i], x, acc[j][i]);
                        }
                    }
                }
                if rest > 0 {
                    for j in 0..DOT_TAPS {
                        let x = load_first(&xs[j][x_at + full * LANES..][..rest]);
                        for i in 0..DOT_ROWS {
                            acc[j][i] = fma(load(&tile[full][i]), x, acc[j][i]);
                        }
                    }
                }
            }
            let mut values = [[0.0; DOT_ROWS]; DOT_TAPS];
            for j in 0..DOT_TAPS {
                values[j] = sums(acc[j]);
            }
            for (j, values) in values.iter().enumerate().take(taps - tap) {
                for (i, value) in values.iter().enumerate().take(m.rows - row) {
                    out[(row + i) * taps + tap + j] += value;
                }
            }
        }

        /// See [`Level::multiply`](super::Level::multiply).
        $(#[$feature])*
        pub fn multiply(m: &super::Matrices<'_>, c: &mut [f32]) {
            let [rows, ..] = m.sizes;
            let mut row = 0;
            if TILE_VECTORS[1] > 0 {
                while row + 8 <= rows {
                    multiply_rows::<8>(m, row, c);
                    row += 8;
                }
            }
            while row + 4 <= rows {
                multiply_rows::<4>(m, row, c);
                row += 4;
            }
            while row < rows {
                multiply_rows::<1>(m, row, c);
                row += 1;
            }
        }

        /// Multiplies `ROWS` rows from `row` on.
        #[inline]
        $(#[$feature])*
        fn multiply_rows<const ROWS: usize>(m: &super::Matrices<'_>, row: usize, c: &mut [f32]) {
            let [_, depth, columns] = m.sizes;
            let most = if ROWS == 8 { TILE_VECTORS[1] } else { TILE_VECTORS[0] };
            let vectors = columns.div_ceil(LANES);
            let tiles = vectors.div_ceil(most);
            let c = &mut c[row * m.c_stride..];
            let mut from = 0;
            for i in 0..tiles {
                let to = vectors * (i + 1) / tiles;
                let p = from * LANES..(to * LANES).min(columns);
                macro_rules! tile {
                    ($width:literal) => {
                        match m.a_strides {
                            [step, 1] => {
                                let mut a = [&m.a[..0]; ROWS];
                                for (i, a) in a.iter_mut().enumerate() {
                                    *a = &m.a[(row + i) * step..][..depth];
                                }
                                multiply_tile::<ROWS, $width>(|l, i| a[i][l], m, p, c)
                            }
                            [1, step] => {
                                let a = &m.a[row..];
                                let at = |l: usize, i: usize| a[l * step..][..ROWS][i];
                                multiply_tile::<ROWS, $width>(at, m, p, c)
                            }
                            [rows, step] => {
                                let a = &m.a[row * rows..];
                                let at = |l: usize, i: usize| a[l * step + i * rows];
                                multiply_tile::<ROWS, $width>(at, m, p, c)
                            }
                        }
                    };
                }
                match to - from {
                    1 => tile!(1),
                    2 => tile!(2),
                    3 if most >= 3 => tile!(3),
                    4 if most >= 4 => tile!(4),
                    5 if most >= 5 => tile!(5),
                    6 if most >= 6 => tile!(6),
                    other => unreachable!("no tile is {other} vectors wide"),
                }
                from = to;
            }
        }

        /// Computes `ROWS` rows of `WIDTH` vectors at the columns `p`; all sums stay in registers.
        #[inline]
        $(#[$feature])*
        fn multiply_tile<const ROWS: usize, const WIDTH: usize>(
            a: impl Fn(usize, usize) -> f32,
            m: &super::Matrices<'_>,
            p: std::ops::Range<usize>,
            c: &mut [f32],
        ) {
            let mut sums = [[splat(0.0); WIDTH]; ROWS];
            let b = &m.b[p.start..];
            for l in 0..m.sizes[1] {
                let (x, _) = b[l * m.b_stride..][..WIDTH * LANES].as_chunks::<LANES>();
                let mut xs = [splat(0.0); WIDTH];
                for j in 0..WIDTH {
                    xs[j] = load(&x[j]);
                }
                for i in 0..ROWS {
                    let a = splat(a(l, i));
                    for j in 0..WIDTH {
                        sums[i][j] = fma(a, xs[j], sums[i][j]);
                    }
                }
            }
            for i in 0..ROWS {
                let row = &mut c[i * m.c_stride..][p.clone()];
                for j in 0..WIDTH {
                    let factor = splat(m.factor);
                    match row[j * LANES..].first_chunk_mut::<LANES>() {
                        Some(full) if m.add => {
                            let sum = fma(factor, sums[i][j], load(full));
                            store(full, sum);
                        }
                        Some(full) => store(full, fma(factor, sums[i][j], splat(0.0))),
                        None if m.add => {
                            let rest = &mut row[j * LANES..];
                            let sum = fma(factor, sums[i][j], load_first(rest));
                            store_first(rest, sum);
                        }
                        None => {
                            store_first(&mut row[j * LANES..], fma(factor, sums[i][j], splat(0.0)));
                        }
                    }
                }
            }
        }
    };
}
