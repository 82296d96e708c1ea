// What the windows of images hold, as columns of a matrix, and sums of such columns back into images.
//
// An image has planes, one for each channel. A plane has kernel_h * kernel_w rows of columns, one for each
// element of the kernel; a row has windows_h * windows_w elements, one for each window. Planes of one image
// after the other follow each other, and so do their rows.
//
// Blocks along y share the planes (or rows), threads along x the pixels (or windows). Sizes fit an int; numbers
// of elements need not.

extern "C" __global__ void columns_of_images(
    float* columns, const float* images, unsigned long long planes, int height, int width, int kernel_h,
    int kernel_w, int stride_h, int stride_w, int padding_h, int padding_w, int windows_h, int windows_w) {
    const unsigned taps = (unsigned)kernel_h * (unsigned)kernel_w;
    const unsigned windows = (unsigned)windows_h * (unsigned)windows_w;
    for (unsigned long long row = blockIdx.y; row < planes * taps; row += gridDim.y) {
        const unsigned tap = (unsigned)(row % taps);
        const int down = (int)(tap / (unsigned)kernel_w) - padding_h;
        const int right = (int)(tap % (unsigned)kernel_w) - padding_w;
        const float* plane = images + row / taps * ((unsigned long long)height * width);
        float* out = columns + row * windows;
        for (unsigned window = blockIdx.x * blockDim.x + threadIdx.x; window < windows;
             window += gridDim.x * blockDim.x) {
            const int y = (int)(window / (unsigned)windows_w) * stride_h + down;
            const int x = (int)(window % (unsigned)windows_w) * stride_w + right;
            const bool inside = y >= 0 && y < height && x >= 0 && x < width;
            out[window] = inside ? plane[(unsigned long long)y * width + x] : 0.0f;
        }
    }
}

// Each pixel adds up the columns of all windows it is in, in the order of the kernel's elements.
extern "C" __global__ void images_of_columns(
    float* images, const float* columns, unsigned long long planes, int height, int width, int kernel_h,
    int kernel_w, int stride_h, int stride_w, int padding_h, int padding_w, int windows_h, int windows_w) {
    const unsigned long long windows = (unsigned long long)windows_h * windows_w;
    const unsigned pixels = (unsigned)height * (unsigned)width;
    for (unsigned long long plane = blockIdx.y; plane < planes; plane += gridDim.y) {
        const float* rows = columns + plane * ((unsigned long long)kernel_h * kernel_w * windows);
        float* out = images + plane * pixels;
        for (unsigned pixel = blockIdx.x * blockDim.x + threadIdx.x; pixel < pixels;
             pixel += gridDim.x * blockDim.x) {
            const int y = (int)(pixel / (unsigned)width) + padding_h;
            const int x = (int)(pixel % (unsigned)width) + padding_w;
            float sum = 0.0f;
            // The last windows that begin above and left of here, and where in them we are; then those before.
            const int last_down = y / stride_h, last_right = x / stride_w;
            int down = last_down;
            for (int i = y - down * stride_h; i < kernel_h && down >= 0; i += stride_h, --down) {
                if (down >= windows_h) continue;
                const unsigned long long first = (unsigned long long)down * windows_w;
                int right = last_right;
                for (int j = x - right * stride_w; j < kernel_w && right >= 0; j += stride_w, --right) {
                    if (right >= windows_w) continue;
                    const unsigned long long row = (unsigned long long)i * kernel_w + j;
                    sum += rows[row * windows + first + right];
                }
            }
            out[pixel] = sum;
        }
    }
}
