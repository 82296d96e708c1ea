// Matrix products in blocks that stay in the cache. The order of each sum depends on k alone, and
// products are not fused with sums, so the bits are the same on every processor.

#include "gemm.h"
#include <algorithm>
#include <cstring>
#include <vector>

namespace {

constexpr int64_t kRows = 16, kColumns = 4;               // of C in registers
constexpr int64_t kBlockRows = 128, kBlockDepth = 256, kBlockColumns = 1024;  // of what is packed

typedef float Vector __attribute__((vector_size(32)));

// A tile of C as a sum of `depth` products; a and b are packed.
__attribute__((target_clones("avx2", "default"))) void tile(int64_t depth, const float* a, const float* b, float* sums) {
  Vector s[kColumns][2] = {};
  for (int64_t p = 0; p < depth; ++p) {
    Vector low, high;
    memcpy(&low, a + p * kRows, sizeof low);
    memcpy(&high, a + p * kRows + 8, sizeof high);
    for (int j = 0; j < kColumns; ++j) {
      float factor = b[p * kColumns + j];
      s[j][0] += low * factor;
      s[j][1] += high * factor;
    }
  }
  memcpy(sums, s, sizeof s);
}

// Element (i, p) of op(A): the strides tell whether it is transposed.
struct View {
  const float* start;
  int64_t row, column;
};

// Packs rows [row, row + rows) and terms [first, first + depth) in panels of `width` rows, filled up with zeros.
void pack(const View& from, int64_t row, int64_t rows, int64_t first, int64_t depth, int64_t width, const Gemm& g, float* to) {
  std::vector<int64_t> terms(depth);
  for (int64_t p = 0; p < depth; ++p) {
    int64_t term = first + p + g.first_term;
    terms[p] = (term >= g.k ? term % g.k : term) * from.column;
  }
  for (int64_t panel = 0; panel < rows; panel += width, to += width * depth) {
    int64_t here = std::min(width, rows - panel);
    const float* start = from.start + (row + panel) * from.row;
    if (here < width) memset(to, 0, width * depth * sizeof(float));
    if (from.row == 1) {
      for (int64_t p = 0; p < depth; ++p) {
        for (int64_t i = 0; i < here; ++i) to[p * width + i] = start[terms[p] + i];
      }
    } else {
      for (int64_t i = 0; i < here; ++i) {
        for (int64_t p = 0; p < depth; ++p) to[p * width + i] = start[terms[p] + i * from.row];
      }
    }
    if (g.tf32) {
      for (int64_t i = 0; i < width * depth; ++i) to[i] = to_tf32(to[i]);
    }
  }
}

}  // namespace

float to_tf32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if ((bits & 0x7F800000) != 0x7F800000) bits = (bits + 0x1000) & ~0x1FFFu;
  memcpy(&x, &bits, 4);
  return x;
}

void gemm(const Gemm& g) {
  if (g.k == 0 || g.alpha == 0) {
    for (int64_t j = 0; j < g.n; ++j) {
      float* c = g.c + j * g.ldc;
      for (int64_t i = 0; i < g.m; ++i) c[i] = g.beta == 0 ? 0.0f : g.beta * c[i];
    }
    return;
  }
  View a = g.a_transposed ? View{g.a, g.lda, 1} : View{g.a, 1, g.lda};
  View b = g.b_transposed ? View{g.b, 1, g.ldb} : View{g.b, g.ldb, 1};
  std::vector<float> packed_a(kBlockRows * kBlockDepth), packed_b(kBlockColumns * kBlockDepth);
  float sums[kColumns][kRows];
  for (int64_t column = 0; column < g.n; column += kBlockColumns) {
    int64_t columns = std::min(kBlockColumns, g.n - column);
    for (int64_t first = 0; first < g.k; first += kBlockDepth) {
      int64_t depth = std::min(kBlockDepth, g.k - first);
      pack(b, column, columns, first, depth, kColumns, g, packed_b.data());
      for (int64_t row = 0; row < g.m; row += kBlockRows) {
        int64_t rows = std::min(kBlockRows, g.m - row);
        pack(a, row, rows, first, depth, kRows, g, packed_a.data());
        for (int64_t j = 0; j < columns; j += kColumns) {
          for (int64_t i = 0; i < rows; i += kRows) {
            tile(depth, packed_a.data() + i * depth, packed_b.data() + j * depth, sums[0]);
            int64_t height = std::min(kRows, rows - i), width = std::min(kColumns, columns - j);
            for (int64_t y = 0; y < width; ++y) {
              float* c = g.c + (column + j + y) * g.ldc + row + i;
              for (int64_t x = 0; x < height; ++x) {
                float sum = g.alpha * sums[y][x];
                // Only the first terms meet what was there before.
                if (first) c[x] += sum;
                else c[x] = g.beta == 0 ? sum : sum + g.beta * c[x];
              }
            }
          }
        }
      }
    }
  }
}
