// Conversions between f32 and bf16, and copies of pieces into tensors. A bf16 is the upper half of
// an f32.

typedef unsigned short u16;

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

__device__ inline u32 widened(u16 half) { return (u32)half << 16; }

// Rounds to the nearest bf16; on a tie, to the bf16 whose last bit is 0. NaN stays NaN.
__device__ inline u16 rounded(u32 word)
{
    if ((word & 0x7fffffffu) > 0x7f800000u) return (u16)((word >> 16) | 0x40u);
    return (u16)((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

// Reads the elements of `x` in the order of a walk, and writes them packed: `y[i] = x[..]`.
KERNEL widen(u32 *y, const u16 *x, u64 count, Walk<1> walk)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    u64 at[1];
    locate(walk, (Index)i, at);
    y[i] = widened(x[at[0]]);
}

KERNEL narrow(u16 *y, const u32 *x, u64 count, Walk<1> walk)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    u64 at[1];
    locate(walk, (Index)i, at);
    y[i] = rounded(x[at[0]]);
}

// Reads packed elements of `x`, and writes them to `y` in the order of a walk: `y[..] = x[i]`.
KERNEL put_rounded(u16 *y, const u32 *x, u64 count, Walk<1> walk)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    u64 at[1];
    locate(walk, (Index)i, at);
    y[at[0]] = rounded(x[i]);
}

KERNEL put_words(u32 *y, const u32 *x, u64 count, Walk<1> walk)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    u64 at[1];
    locate(walk, (Index)i, at);
    y[at[0]] = x[i];
}

// `y += x`
KERNEL add_piece(float *y, const float *x, u64 count)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) y[i] += x[i];
}
