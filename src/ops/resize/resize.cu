// Resampling along the middle dimension of `[outer, n, inner]`. Each thread computes one element of
// the result.

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

// Range of entries from which an entry of the result is computed. Also the weight of the first
// entry, and the weight of each other entry.
struct Tap {
    u64 start, end;
    float first, other;
};

// Resampling of `n` entries to `size` entries.
struct Taps {
    u64 n, size, inner;
    u64 sampling;  // 0: nearest, 1: linear, 2: linear with corners aligned, 3: means of areas.

    // Tap that interpolates linearly at the position `top / bottom`.
    __device__ Tap between(u64 top, u64 bottom) const
    {
        u64 first = top / bottom;
        double rest = (double)(top % bottom) / (double)bottom;
        bool two = rest > 0.0 && first + 1 < n;
        return Tap{first, first + (two ? 2 : 1), two ? (float)(1.0 - rest) : 1.0f, (float)rest};
    }
    __device__ Tap of(u64 j) const
    {
        if (sampling == 0) return between(j * n / size, 1);
        u64 twice = (2 * j + 1) * n;
        if (sampling == 1) return between(twice > size ? twice - size : 0, 2 * size);
        if (sampling == 2) return between(j * (n - 1), size > 1 ? size - 1 : 1);
        u64 start = j * n / size, end = ((j + 1) * n + size - 1) / size;
        float share = (float)(1.0 / (double)(end - start));
        return Tap{start, end, share, share};
    }
};

KERNEL resize(float *y, const float *x, u64 count, Taps taps)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    u64 along = i % taps.inner, j = i / taps.inner % taps.size, outer = i / taps.inner / taps.size;
    Tap tap = taps.of(j);
    const float *from = x + outer * taps.n * taps.inner + along;
    float sum = from[tap.start * taps.inner] * tap.first;
    for (u64 k = tap.start + 1; k < tap.end; ++k) sum += from[k * taps.inner] * tap.other;
    y[i] = sum;
}

KERNEL resize_transposed(float *y, const float *x, u64 count, Taps taps)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    u64 along = i % taps.inner, entry = i / taps.inner % taps.n, outer = i / taps.inner / taps.n;
    const float *from = x + outer * taps.size * taps.inner + along;
    // Find the first tap that ends behind this entry by binary search, because starts and ends of
    // taps never decrease.
    u64 j = 0, end = taps.size;
    while (j < end) {
        u64 middle = (j + end) / 2;
        if (taps.of(middle).end > entry) {
            end = middle;
        } else {
            j = middle + 1;
        }
    }
    // Add in double precision, because the sum may have many terms.
    double sum = 0.0;
    for (; j < taps.size; ++j) {
        Tap tap = taps.of(j);
        if (tap.start > entry) break;
        sum += from[j * taps.inner] * (tap.start == entry ? tap.first : tap.other);
    }
    y[i] = (float)sum;
}
