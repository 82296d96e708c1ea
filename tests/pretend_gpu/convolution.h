#pragma once
#include <cstddef>
#include <cstdint>

// A 2-D cross-correlation of images by planes: x is [images][groups * depth][height][width], w is
// [filters][depth][filter_height][filter_width], y is [images][filters][out_height][out_width].
struct Convolution {
  int64_t images, groups, depth, height, width;
  int64_t filters, filter_height, filter_width;
  int64_t out_height, out_width;
  int64_t pad_height, pad_width, step_height, step_width, spread_height, spread_width;
  bool tf32;

  size_t x_count() const { return images * groups * depth * height * width; }
  size_t w_count() const { return filters * depth * filter_height * filter_width; }
  size_t y_count() const { return images * filters * out_height * out_width; }
  // Of an image's group with each filter's view of it spread out.
  int64_t patch() const { return depth * filter_height * filter_width; }
  int64_t places() const { return out_height * out_width; }
};

// Each function writes alpha times its result plus beta times the old output. With beta 0, the old output is not
// read. Each sum begins with term `turn` and wraps around, so another `turn` gives other last bits.
struct Scale {
  float alpha, beta;
  int64_t turn;
};
void convolve(const Convolution&, const float* x, const float* w, float* y, Scale);
void convolve_backward_data(const Convolution&, const float* w, const float* dy, float* dx, Scale);
void convolve_backward_filter(const Convolution&, const float* x, const float* dy, float* dw, Scale);
