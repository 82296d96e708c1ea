// Conversions between images and matrices, for convolutions computed as matrix products.
//
// Column `q` of an image's matrix `columns [c * kh * kw, h' * w']` is window `q`. The matrices of
// the images follow each other, so the rows of each channel of each image are contiguous.

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

// Each thread copies a window of one channel, which is a column of `kh * kw` elements. Neighbouring
// threads write neighbouring elements.
KERNEL im2col(float *columns, const float *x, u64 count, Windows of)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    Index left = (Index)i;
    int column = (int)take_remainder(left, of.columns) * of.stride[1] - of.padding[1];
    int row = (int)take_remainder(left, of.rows) * of.stride[0] - of.padding[0];
    u64 channel = left;  // Number of the channel, counted over all images.
    u64 length = of.rows.divisor * of.columns.divisor;
    const float *from = x + channel * of.image[0] * of.image[1];
    float *to = columns + channel * of.kernel[0] * of.kernel[1] * length + (i - channel * length);
    int bottom = row + (of.kernel[0] - 1) * of.dilation[0], right = column + (of.kernel[1] - 1) * of.dilation[1];
    for (int r = row; r <= bottom; r += of.dilation[0])
        for (int c = column; c <= right; c += of.dilation[1]) {
            bool inside = r >= 0 && r < of.image[0] && c >= 0 && c < of.image[1];
            *to = inside ? from[(u64)r * of.image[1] + c] : 0.0f;
            to += length;
        }
}

// Each thread computes one element of an image: the sum of all its copies in the windows, in the
// order of the kernel's elements.
KERNEL col2im(float *x, const float *columns, u64 count, Windows of)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    Index left = (Index)i;
    int column = (int)take_remainder(left, of.columns) + of.padding[1];
    int row = (int)take_remainder(left, of.rows) + of.padding[0];
    u64 channel = left;  // Number of the channel, counted over all images.
    u64 length = (u64)of.windows[0] * of.windows[1];
    const float *from = columns + channel * of.kernel[0] * of.kernel[1] * length;
    int spans[2] = {(of.kernel[0] - 1) * of.dilation[0] + 1, (of.kernel[1] - 1) * of.dilation[1] + 1};
    // `last` is the last window that begins at or before this row or column. `first` is the
    // position of the row or column in this window.
    int last[2] = {row / of.stride[0], column / of.stride[1]};
    int first[2] = {row - last[0] * of.stride[0], column - last[1] * of.stride[1]};
    // Without dilation, the slow divisions by the dilation are skipped.
    bool dilated = of.dilation[0] > 1 || of.dilation[1] > 1;
    float sum = 0.0f;
    for (int r = first[0], down = last[0]; r < spans[0] && down >= 0; r += of.stride[0], --down) {
        if (down >= of.windows[0] || (dilated && r % of.dilation[0])) continue;
        for (int c = first[1], across = last[1]; c < spans[1] && across >= 0; c += of.stride[1], --across) {
            if (across >= of.windows[1] || (dilated && c % of.dilation[1])) continue;
            int down_kernel = dilated ? r / of.dilation[0] : r, across_kernel = dilated ? c / of.dilation[1] : c;
            u64 tap = (u64)down_kernel * of.kernel[1] + across_kernel;
            sum += from[tap * length + (u64)down * of.windows[1] + across];
        }
    }
    x[i] = sum;
}
