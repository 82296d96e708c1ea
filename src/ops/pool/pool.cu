// Max and average pooling, and their gradients. An image is one channel of one batch entry.
//
// Each thread of a gradient computes one pixel of `dx`. The thread adds up the values of the
// windows that cover the pixel, in the order of the windows. No two threads add to the same
// element.

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

// Range `from..to`.
struct Span {
    int from, to;
};

// Rows (side 0) or columns (side 1) of window `i` that are inside the image.
__device__ inline Span inside(const Windows &of, int side, int i)
{
    int from = i * of.stride[side] - of.padding[side];
    int to = from + of.kernel[side];
    return Span{from < 0 ? 0 : from, to > of.image[side] ? of.image[side] : to};
}

// The windows that cover row or column `i` of the image.
__device__ inline Span covering(const Windows &of, int side, int i)
{
    int beyond = i + of.padding[side] - of.kernel[side] + 1;
    int from = beyond <= 0 ? 0 : (beyond + of.stride[side] - 1) / of.stride[side];
    int to = (i + of.padding[side]) / of.stride[side] + 1;
    return Span{from, to > of.windows[side] ? of.windows[side] : to};
}

// Element that a thread computes: image, row and column.
struct Element {
    u64 i;
    u64 image;
    int row, column;
    bool there;
    __device__ Element(const Windows &of, u64 count, u32 lanes = 1)
    {
        i = ((u64)blockIdx.x * THREADS + threadIdx.x) / lanes;
        there = i < count;
        Index left = (Index)i;
        column = (int)take_remainder(left, of.columns);
        row = (int)take_remainder(left, of.rows);
        image = left;
    }
};

__device__ inline u64 area(const int (&sides)[2]) { return (u64)sides[0] * sides[1]; }

// Largest element of each window, and the index of this element in the image. Of equal elements,
// the first counts as the largest. NaN counts as larger than any number.
KERNEL max_pool(float *y, int *argmax, const float *x, u64 count, Windows of)
{
    Element at(of, count);
    if (!at.there) return;
    Span rows = inside(of, 0, at.row), columns = inside(of, 1, at.column);
    const float *image = x + at.image * area(of.image);
    int place = rows.from * of.image[1] + columns.from;
    float best = image[place];
    for (int row = rows.from; row < rows.to; ++row)
        for (int column = columns.from; column < columns.to; ++column) {
            float next = image[row * of.image[1] + column];
            if (next > best || (next != next && best == best)) {
                best = next;
                place = row * of.image[1] + column;
            }
        }
    y[at.i] = best;
    argmax[at.i] = place;
}

// Writes zeros to `dx`, and adds each element of `dy` at the pixel that `argmax` gives.
KERNEL max_pool_grad(float *dx, const int *argmax, const float *dy, u64 count, Windows of, Report report)
{
    Element at(of, count);
    if (!at.there) return;
    Span rows = covering(of, 0, at.row), columns = covering(of, 1, at.column);
    u64 image = at.image * area(of.windows);
    int place = at.row * of.image[1] + at.column;
    float sum = 0.0f;
    const u64 NONE = ~0ull;
    u64 wrong = NONE;
    for (int row = rows.from; row < rows.to; ++row)
        for (int column = columns.from; column < columns.to; ++column) {
            u64 window = image + (u64)row * of.windows[1] + column;
            int winner = argmax[window];
            if (winner == place) sum += dy[window];
            if (!report.is_inside(winner) && window < wrong) wrong = window;
        }
    if (wrong != NONE) {
        report.allows(argmax[wrong], wrong);
        sum = NOT_A_NUMBER;
    }
    dx[at.i] = sum;
}

// Copies the pixels of `x` that `argmax` gives.
KERNEL max_pool_pick(float *y, const int *argmax, const float *x, u64 count, Windows of, Report report)
{
    Element at(of, count);
    if (!at.there) return;
    int place = argmax[at.i];
    y[at.i] = report.allows(place, at.i) ? x[at.image * area(of.image) + place] : NOT_A_NUMBER;
}

// Computes the mean of those elements of each window that are inside the image. The lanes of a warp
// share a large window.
template <int Lanes> __device__ inline void means(float *y, const float *x, u64 count, const Windows &of)
{
    Element at(of, count, Lanes);
    // All threads of a warp return together.
    if (!at.there) return;
    Span rows = inside(of, 0, at.row), columns = inside(of, 1, at.column);
    const float *image = x + at.image * area(of.image);
    double sum = 0.0;
    u32 width = columns.to - columns.from;
    u64 elements = (u64)(rows.to - rows.from) * width;
    if (Lanes == 1) {
        for (int row = rows.from; row < rows.to; ++row)
            for (int column = columns.from; column < columns.to; ++column)
                sum += image[(u64)row * of.image[1] + column];
    } else {
        for (u64 i = threadIdx.x % Lanes; i < elements; i += Lanes) {
            u64 down = elements < 0x80000000u ? (u32)i / width : i / width;
            sum += image[(rows.from + down) * of.image[1] + columns.from + (i - down * width)];
        }
        sum = join_lanes(sum, Plus());
    }
    if (threadIdx.x % Lanes == 0) y[at.i] = (float)(sum / (double)elements);
}

KERNEL avg_pool(float *y, const float *x, u64 count, Windows of) { means<1>(y, x, count, of); }
KERNEL avg_pool_large(float *y, const float *x, u64 count, Windows of) { means<32>(y, x, count, of); }

// Writes zeros to `dx`. Divides each element of `dy` equally among the elements of its window, and
// adds the shares to `dx`.
KERNEL avg_pool_grad(float *dx, const float *dy, u64 count, Windows of)
{
    Element at(of, count);
    if (!at.there) return;
    Span rows = covering(of, 0, at.row), columns = covering(of, 1, at.column);
    const float *image = dy + at.image * area(of.windows);
    float sum = 0.0f;
    for (int row = rows.from; row < rows.to; ++row) {
        Span height = inside(of, 0, row);
        for (int column = columns.from; column < columns.to; ++column) {
            Span width = inside(of, 1, column);
            float elements = (float)(height.to - height.from) * (float)(width.to - width.from);
            sum += image[(u64)row * of.windows[1] + column] / elements;
        }
    }
    dx[at.i] = sum;
}
