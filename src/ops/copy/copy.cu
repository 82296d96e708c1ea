// Copies of elements. Elements are copied as unsigned integers of the same size, so that no bit
// changes. Most elements are 4-byte words.

typedef unsigned char u8;
typedef unsigned short u16;

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

struct Same {
    __device__ u32 operator()(const u32 (&v)[1]) const { return v[0]; }
};

// Copies packed elements.
KERNEL copy_packed(u32 *y, const u32 *x, u64 count) { map_packed(y, Inputs<1, u32>{{x}}, count, Same()); }

KERNEL copy_strided(u32 *y, const u32 *x, u64 units, Walk<1> walk)
{
    map_strided(y, Inputs<1, u32>{{x}}, walk, units, Same());
}

// Copies elements of `size` bytes (1, 2 or 8) of any strides.
KERNEL copy_each(void *y, const void *x, u64 count, Walk<1> walk, u32 size)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    u64 at[1];
    locate(walk, (Index)i, at);
    if (size == 1) {
        ((u8 *)y)[i] = ((const u8 *)x)[at[0]];
    } else if (size == 2) {
        ((u16 *)y)[i] = ((const u16 *)x)[at[0]];
    } else {
        ((u64 *)y)[i] = ((const u64 *)x)[at[0]];
    }
}

// Rows and columns of a tile of a transposition.
#define SIDE 32

struct Turn {
    Divider tiles[2];  // Tiles along the columns and the rows of the result.
    u64 rows;          // Rows of the result, which are contiguous in `x`.
    u64 columns;       // Columns of the result, which are contiguous in the result.
    u64 pitch;         // Distance between columns in `x`.
    u64 row;           // Distance between rows in the result.
    Walk<2> outer;     // Walk over the matrices, in `x` and in the result.
};

// Copies matrices that are transposed in `x`. Tiles are copied through shared memory, so that
// neighbouring threads both read and write neighbouring elements.
KERNEL copy_turned(u32 *y, const u32 *x, Turn of)
{
    __shared__ u32 tile[SIDE][SIDE + 1];
    u64 which = blockIdx.x;
    u64 columns = which % of.tiles[0].divisor * SIDE;
    which /= of.tiles[0].divisor;
    u64 rows = which % of.tiles[1].divisor * SIDE;
    which /= of.tiles[1].divisor;
    u64 at[2];
    locate(of.outer, (Index)which, at);
    u32 lane = threadIdx.x % SIDE;
    for (u32 i = threadIdx.x / SIDE; i < SIDE; i += THREADS / SIDE)
        if (columns + i < of.columns && rows + lane < of.rows)
            tile[i][lane] = x[at[0] + (columns + i) * of.pitch + rows + lane];
    __syncthreads();
    for (u32 i = threadIdx.x / SIDE; i < SIDE; i += THREADS / SIDE)
        if (rows + i < of.rows && columns + lane < of.columns)
            y[at[1] + (rows + i) * of.row + columns + lane] = tile[lane][i];
}

// Copies one unit of `width` bytes: 16, 4 or 1.
__device__ inline void copy_unit(u8 *y, const u8 *x, u32 width)
{
    if (width == 16) {
        store_four((u32 *)y, load_four((const u32 *)x));
    } else if (width == 4) {
        *(u32 *)y = *(const u32 *)x;
    } else {
        *y = *x;
    }
}

__device__ inline void zero_unit(u8 *y, u32 width)
{
    if (width == 16) {
        store_four((u32 *)y, Four<u32>{{0, 0, 0, 0}});
    } else if (width == 4) {
        *(u32 *)y = 0;
    } else {
        *y = 0;
    }
}

// Copies rows of `x` to rows of `y` that are `pitch` apart. `length` and `pitch` are in units of
// `width` bytes.
KERNEL copy_rows(u8 *y, const u8 *x, u64 units, Divider length, u64 pitch, u32 width)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= units) return;
    Index row = (Index)i;
    u64 along = take_remainder(row, length);
    copy_unit(y + (row * pitch + along) * width, x + i * width, width);
}

// Pads every `length` units of `x` with zeros to `whole` units: `before` units of zeros in front,
// and the remaining zeros behind.
KERNEL pad(u8 *y, const u8 *x, u64 units, Divider whole, u64 before, u64 length, u32 width)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= units) return;
    Index row = (Index)i;
    // For a unit in front of the row, the subtraction wraps around, and `along` is above `length`.
    u64 along = take_remainder(row, whole) - before;
    if (along < length) {
        copy_unit(y + i * width, x + (row * length + along) * width, width);
    } else {
        zero_unit(y + i * width, width);
    }
}

// Sets `count` words to one value.
KERNEL fill(u32 *y, u32 value, u64 count)
{
    u64 i = ((u64)blockIdx.x * THREADS + threadIdx.x) * 4;
    if (i + 4 <= count && aligned(y)) {
        store_four(y + i, Four<u32>{{value, value, value, value}});
    } else {
        for (u64 end = i + 4 < count ? i + 4 : count; i < end; ++i) y[i] = value;
    }
}

// Reverses the order of each run of `entries` entries of `length` units.
KERNEL flip(u8 *y, const u8 *x, u64 units, Divider length, Divider entries, u32 width)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= units) return;
    Index row = (Index)i;
    u64 along = take_remainder(row, length);
    u64 entry = take_remainder(row, entries);
    u64 from = (row * entries.divisor + (entries.divisor - 1 - entry)) * length.divisor + along;
    copy_unit(y + i * width, x + from * width, width);
}
