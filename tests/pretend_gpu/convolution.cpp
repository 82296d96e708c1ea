// Convolutions as matrix products, one group of one image at a time.

#include "convolution.h"
#include "gemm.h"
#include <algorithm>
#include <vector>

namespace {

// Calls f(place, pixel) for each place of the output where this tap of the filter meets a pixel.
template <class F> void meet(const Convolution& c, int64_t tap_row, int64_t tap_column, F f) {
  for (int64_t i = 0; i < c.out_height; ++i) {
    int64_t row = i * c.step_height - c.pad_height + tap_row * c.spread_height;
    if (row < 0 || row >= c.height) continue;
    for (int64_t j = 0; j < c.out_width; ++j) {
      int64_t column = j * c.step_width - c.pad_width + tap_column * c.spread_width;
      if (column >= 0 && column < c.width) f(i * c.out_width + j, row * c.width + column);
    }
  }
}

// Unfolds a group of an image to [patch][places].
void spread(const Convolution& c, const float* x, float* to) {
  std::fill_n(to, c.patch() * c.places(), 0.0f);
  for (int64_t plane = 0; plane < c.depth; ++plane, x += c.height * c.width) {
    for (int64_t row = 0; row < c.filter_height; ++row) {
      for (int64_t column = 0; column < c.filter_width; ++column, to += c.places()) {
        meet(c, row, column, [&](int64_t place, int64_t pixel) { to[place] = x[pixel]; });
      }
    }
  }
}

// Folds [patch][places] back to a group of an image. The order of each sum begins with term `turn`.
void gather(const Convolution& c, const float* from, float* x, int64_t turn) {
  std::fill_n(x, c.depth * c.height * c.width, 0.0f);
  for (int64_t i = 0; i < c.patch(); ++i) {
    int64_t row = (i + turn) % c.patch();
    int64_t tap = row % (c.filter_height * c.filter_width);
    const float* values = from + row * c.places();
    float* plane = x + row / (c.filter_height * c.filter_width) * c.height * c.width;
    meet(c, tap / c.filter_width, tap % c.filter_width, [&](int64_t place, int64_t pixel) { plane[pixel] += values[place]; });
  }
}

void write(const std::vector<float>& result, float* to, Scale s) {
  for (size_t i = 0; i < result.size(); ++i) to[i] = s.beta == 0 ? s.alpha * result[i] : s.alpha * result[i] + s.beta * to[i];
}

}  // namespace

void convolve(const Convolution& c, const float* x, const float* w, float* y, Scale s) {
  int64_t group = c.depth * c.height * c.width, filters = c.filters / c.groups;
  std::vector<float> patches(c.patch() * c.places());
  for (int64_t i = 0; i < c.images * c.groups; ++i) {
    spread(c, x + i * group, patches.data());
    gemm({c.places(), filters, c.patch(), s.alpha, s.beta, patches.data(), c.places(), false,
          w + i % c.groups * filters * c.patch(), c.patch(), false, y + i * filters * c.places(), c.places(), c.tf32,
          s.turn % c.patch()});
  }
}

void convolve_backward_data(const Convolution& c, const float* w, const float* dy, float* dx, Scale s) {
  int64_t group = c.depth * c.height * c.width, filters = c.filters / c.groups;
  std::vector<float> patches(c.patch() * c.places()), result(group);
  for (int64_t i = 0; i < c.images * c.groups; ++i) {
    gemm({c.places(), c.patch(), filters, 1, 0, dy + i * filters * c.places(), c.places(), false,
          w + i % c.groups * filters * c.patch(), c.patch(), true, patches.data(), c.places(), c.tf32, s.turn % filters});
    gather(c, patches.data(), result.data(), s.turn);
    write(result, dx + i * group, s);
  }
}

void convolve_backward_filter(const Convolution& c, const float* x, const float* dy, float* dw, Scale s) {
  int64_t group = c.depth * c.height * c.width, filters = c.filters / c.groups;
  std::vector<float> patches(c.patch() * c.places()), result(c.w_count());
  for (int64_t image = 0; image < c.images; ++image) {
    for (int64_t g = 0; g < c.groups; ++g) {
      int64_t i = (image + s.turn) % c.images * c.groups + g;
      spread(c, x + i * group, patches.data());
      gemm({c.patch(), filters, c.places(), 1, image ? 1.0f : 0.0f, patches.data(), c.places(), true,
            dy + i * filters * c.places(), c.places(), false, result.data() + g * filters * c.patch(), c.patch(), c.tf32,
            s.turn % c.places()});
    }
  }
  write(result, dw, s);
}
