// Random numbers: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011.
//
// Each thread computes a block of four numbers. The Philox counter of a block consists of the
// block's number and the tensor's number.

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

#define TAU 6.283185307f

struct Stream {
    u64 key;
    u64 counter;  // Number of the tensor.
};

__device__ inline void philox(const Stream &of, u64 block, u32 (&words)[4])
{
    u32 key[2] = {(u32)of.key, (u32)(of.key >> 32)};
    words[0] = (u32)block;
    words[1] = (u32)(block >> 32);
    words[2] = (u32)of.counter;
    words[3] = (u32)(of.counter >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u64 a = 0xD2511F53ull * words[0], b = 0xCD9E8D57ull * words[2];
        words[0] = (u32)(b >> 32) ^ words[1] ^ key[0];
        words[1] = (u32)b;
        words[2] = (u32)(a >> 32) ^ words[3] ^ key[1];
        words[3] = (u32)a;
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
}

// Uniform in `[0, 1)`, in steps of 2^-24.
__device__ inline float unit(u32 word) { return (word >> 8) * (1.0f / 16777216.0f); }

struct Uniform {
    // `below` is the largest result; rounding alone could give `high`.
    float low, range, below;
    __device__ void operator()(const u32 (&words)[4], float (&v)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            // Round the product and the sum separately, as on every device.
            float x = __fadd_rn(low, __fmul_rn(range, unit(words[i])));
            v[i] = x > below ? below : x;
        }
    }
};

struct Normal {
    float mean, std;
    __device__ void operator()(const u32 (&words)[4], float (&v)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            // `1 - unit(..)` is in (0, 1], so the logarithm is finite.
            float radius = sqrtf(-2.0f * logf(1.0f - unit(words[i])));
            float sin, cos;
            sincosf(TAU * unit(words[i + 1]), &sin, &cos);
            v[i] = mean + std * (radius * cos);
            v[i + 1] = mean + std * (radius * sin);
        }
    }
};

struct Bernoulli {
    float p;
    __device__ void operator()(const u32 (&words)[4], float (&v)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = unit(words[i]) < p ? 1.0f : 0.0f;
    }
};

template <class Draw> __device__ inline void draw_block(float *y, u64 count, const Stream &of, Draw draw)
{
    u64 block = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (block * 4 >= count) return;
    u32 words[4];
    float v[4];
    philox(of, block, words);
    draw(words, v);
    if (block * 4 + 4 <= count && aligned(y)) {
        store<4>(y + block * 4, v);
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (block * 4 + i < count) y[block * 4 + i] = v[i];
    }
}

KERNEL random_uniform(float *y, u64 count, Stream of, Uniform draw) { draw_block(y, count, of, draw); }
KERNEL random_normal(float *y, u64 count, Stream of, Normal draw) { draw_block(y, count, of, draw); }
KERNEL random_bernoulli(float *y, u64 count, Stream of, Bernoulli draw) { draw_block(y, count, of, draw); }
