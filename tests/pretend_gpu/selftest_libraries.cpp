#include "selftest.h"
#include <cmath>
#include <cstring>

namespace {

void* blas;

std::vector<float> naive(int ta, int tb, int m, int n, int k, float alpha, const std::vector<float>& a, int lda,
                         const std::vector<float>& b, int ldb, float beta, std::vector<float> c, int ldc) {
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < m; ++i) {
      double sum = 0;
      for (int p = 0; p < k; ++p) sum += double(a[ta ? p + i * lda : i + p * lda]) * b[tb ? j + p * ldb : p + j * ldb];
      float& to = c[i + j * ldc];
      to = alpha * sum + (beta == 0 ? 0 : beta * to);
    }
  }
  return c;
}

void test_products() {
  struct {
    int m, n, k;
  } sizes[] = {{1, 1, 1}, {5, 7, 3}, {16, 4, 8}, {33, 65, 129}, {200, 150, 600}, {130, 1100, 20}, {3, 3, 0}};
  for (auto [m, n, k] : sizes) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      int ta = transposes % 2, tb = transposes / 2;
      int lda = (ta ? k : m) + 2, ldb = (tb ? n : k) + 1, ldc = m + 3;
      auto a = random_floats(lda * (ta ? m : k) + 1), b = random_floats(ldb * (tb ? k : n) + 1), c = random_floats(ldc * n);
      for (float beta : {0.0f, 0.5f}) {
        if (beta == 0) c[0] = NAN;
        Buffer da(a), db(b), dc(c);
        float alpha = 1.5f;
        OK(cublasSgemm_v2(blas, ta, tb, m, n, k, &alpha, da.p, lda, db.p, ldb, &beta, dc.p, ldc));
        CHECK(largest_difference(dc.read(), naive(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)) < 1e-4f);
        c[0] = 0;
      }
    }
  }
}

void test_batches() {
  int m = 20, n = 30, k = 10, count = 3;
  auto a = random_floats(m * k), b = random_floats(k * n * count);
  Buffer da(a), db(b), dc(m * n * count);
  float one = 1, zero = 0;
  auto run = [&](int compute) {
    OK(cublasGemmStridedBatchedEx(blas, 0, 0, m, n, k, &one, da.p, 0, m, 0, db.p, 0, k, k * n, &zero, dc.p, 0, m, m * n,
                                  count, compute, -1));
    return dc.read();
  };
  std::vector<float> expected;
  for (int i = 0; i < count; ++i) {
    std::vector<float> part(b.begin() + i * k * n, b.begin() + (i + 1) * k * n);
    auto c = naive(0, 0, m, n, k, 1, a, m, part, k, 0, std::vector<float>(m * n), m);
    expected.insert(expected.end(), c.begin(), c.end());
  }
  CHECK(largest_difference(run(68), expected) < 1e-5f);
  float tf32 = largest_difference(run(77), expected);
  CHECK(tf32 > 1e-5f && tf32 < 1e-2f);
  EXPECT(15, cublasGemmStridedBatchedEx(blas, 0, 0, m, n, k, &one, da.p, 2, m, 0, db.p, 2, k, k * n, &zero, dc.p, 2, m,
                                        m * n, count, 68, -1));
}

void test_refusals() {
  Buffer a(std::vector<float>(100, 1)), b(std::vector<float>(100, 1)), c(100);
  float one = 1, zero = 0;
  auto product = [&](Ptr to, int m, int k, int lda, int ldc) {
    return cublasSgemm_v2(blas, 0, 0, m, 10, k, &one, a.p, lda, b.p, 10, &zero, to, ldc);
  };
  OK(product(c.p, 10, 10, 10, 10));
  EXPECT(7, product(c.p, 10, 10, 9, 10));
  EXPECT(7, product(c.p, 10, 10, 10, 9));
  EXPECT(7, product(c.p, -1, 10, 10, 10));
  EXPECT(13, product(c.p, 10, 10, 10, 11));
  EXPECT(13, product(a.p, 10, 10, 10, 10));
  EXPECT(7, cublasSetWorkspace_v2(blas, (void*)(a.p + 4), 100));
  EXPECT(7, cublasSetWorkspace_v2(blas, (void*)a.p, 500));
  OK(cublasSetWorkspace_v2(blas, (void*)a.p, 400));
  EXPECT(13, product(c.p, 10, 10, 10, 10));
  {
    Buffer workspace(1000);
    OK(cublasSetWorkspace_v2(blas, (void*)workspace.p, 4000));
    OK(product(c.p, 10, 10, 10, 10));
    CHECK(std::isnan(workspace.read()[0]) && !std::isnan(c.read()[0]));
  }
  EXPECT(13, product(c.p, 10, 10, 10, 10));
  OK(cublasSetWorkspace_v2(blas, nullptr, 0));
  OK(product(c.p, 10, 10, 10, 10));
  EXPECT(1, cublasSgemm_v2(&one, 0, 0, 1, 1, 1, &one, a.p, 1, b.p, 1, &zero, c.p, 1));
}

void test_sums() {
  int m = 7, n = 5;
  auto a = random_floats(m * n), b = random_floats(m * n);
  Buffer da(a), db(b), dc(m * n);
  float alpha = 2, beta = 3;
  OK(cublasSgeam(blas, 1, 0, m, n, &alpha, da.p, n, &beta, db.p, m, dc.p, m));
  auto c = dc.read();
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < m; ++i) CHECK(c[i + j * m] == alpha * a[j + i * n] + beta * b[i + j * m]);
  }
}

struct Performance {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
};

// A convolution's sizes, and naive loops over them.
struct Shape {
  int n, groups, c, h, w, k, r, s, pad, step, spread;
  int oh() const { return (h + 2 * pad - ((r - 1) * spread + 1)) / step + 1; }
  int ow() const { return (w + 2 * pad - ((s - 1) * spread + 1)) / step + 1; }
  size_t x_count() const { return n * groups * c * h * w; }
  size_t w_count() const { return k * c * r * s; }
  size_t y_count() const { return n * k * oh() * ow(); }
  // Calls f with the places in x, w and y of each product.
  template <class F> void each(F f) const {
    for (int in = 0; in < n; ++in)
      for (int ik = 0; ik < k; ++ik)
        for (int i = 0; i < oh(); ++i)
          for (int j = 0; j < ow(); ++j)
            for (int ic = 0; ic < c; ++ic)
              for (int ir = 0; ir < r; ++ir)
                for (int is = 0; is < s; ++is) {
                  int row = i * step - pad + ir * spread, column = j * step - pad + is * spread;
                  if (row < 0 || row >= h || column < 0 || column >= w) continue;
                  int plane = ik / (k / groups) * c + ic;
                  f(((in * groups * c + plane) * h + row) * w + column, ((ik * c + ic) * r + ir) * s + is,
                    ((in * k + ik) * oh() + i) * ow() + j);
                }
  }
};

void test_convolution(void* dnn, const Shape& shape, bool fma) {
  void *x, *w, *y, *convolution;
  OK(cudnnCreateTensorDescriptor(&x));
  OK(cudnnCreateTensorDescriptor(&y));
  OK(cudnnCreateFilterDescriptor(&w));
  OK(cudnnCreateConvolutionDescriptor(&convolution));
  OK(cudnnSetTensor4dDescriptor(x, 0, 0, shape.n, shape.groups * shape.c, shape.h, shape.w));
  OK(cudnnSetFilter4dDescriptor(w, 0, 0, shape.k, shape.c, shape.r, shape.s));
  OK(cudnnSetConvolution2dDescriptor(convolution, shape.pad, shape.pad, shape.step, shape.step, shape.spread, shape.spread, 1, 0));
  OK(cudnnSetConvolutionGroupCount(convolution, shape.groups));
  if (fma) OK(cudnnSetConvolutionMathType(convolution, 3));
  Performance offered[8];
  int count;
  OK(cudnnSetTensor4dDescriptor(y, 0, 0, shape.n, shape.k, shape.oh() + 1, shape.ow()));
  EXPECT(2000, cudnnGetConvolutionForwardAlgorithm_v7(dnn, x, w, convolution, y, 8, &count, offered));
  OK(cudnnSetTensor4dDescriptor(y, 0, 0, shape.n, shape.k, shape.oh(), shape.ow()));

  auto vx = random_floats(shape.x_count()), vw = random_floats(shape.w_count()), vy = random_floats(shape.y_count());
  auto ex = vx, ew = vw, ey = vy;
  float alpha = 2, beta = 0.5;
  for (auto v : {&ex, &ew, &ey}) for (float& value : *v) value *= beta;
  shape.each([&](int px, int pw, int py) {
    ex[px] += alpha * vw[pw] * vy[py];
    ew[pw] += alpha * vx[px] * vy[py];
    ey[py] += alpha * vx[px] * vw[pw];
  });
  Buffer bx(vx), bw(vw), by(vy), workspace(1 << 21);
  for (int way = 0; way < 3; ++way) {
    auto get = way == 0 ? cudnnGetConvolutionForwardAlgorithm_v7 : way == 1 ? cudnnGetConvolutionBackwardDataAlgorithm_v7 : cudnnGetConvolutionBackwardFilterAlgorithm_v7;
    void *first = way == 1 ? w : x, *second = way == 0 ? w : y, *result = way == 0 ? y : way == 1 ? x : w;
    OK(get(dnn, first, second, convolution, result, 8, &count, offered));
    CHECK(count == 4 && offered[3].status == 3000);
    CHECK(offered[0].determinism == 0 || offered[0].memory > size_t{1} << 40);
    for (int i = 0; i < 4; ++i) {
      auto& o = offered[i];
      auto& start = way == 0 ? vy : way == 1 ? vx : vw;
      auto run = [&](std::vector<float>* values) {
        Buffer to(start);
        int status;
        if (way == 0) status = cudnnConvolutionForward(dnn, &alpha, x, bx.p, w, bw.p, convolution, o.algorithm, workspace.p, workspace.count * 4, &beta, y, to.p);
        else if (way == 1) status = cudnnConvolutionBackwardData(dnn, &alpha, w, bw.p, y, by.p, convolution, o.algorithm, workspace.p, workspace.count * 4, &beta, x, to.p);
        else status = cudnnConvolutionBackwardFilter(dnn, &alpha, x, bx.p, y, by.p, convolution, o.algorithm, workspace.p, workspace.count * 4, &beta, w, to.p);
        *values = to.read();
        return status;
      };
      std::vector<float> once, again;
      if (o.status || o.memory > workspace.count * 4) {
        EXPECT(o.status ? 3000 : 2000, run(&once));
        continue;
      }
      OK(run(&once));
      OK(run(&again));
      float difference = largest_difference(once, way == 0 ? ey : way == 1 ? ex : ew);
      CHECK(fma ? difference < 1e-3f : difference > 1e-6f && difference < 0.2f);
      CHECK((once == again) == (o.determinism == 1));
    }
  }
  size_t bytes = 0;
  OK(cudnnGetConvolutionForwardWorkspaceSize(dnn, x, w, convolution, y, 1, &bytes));
  CHECK(bytes > 0);
  EXPECT(2000, cudnnConvolutionForward(dnn, &alpha, x, bx.p, w, bw.p, convolution, 1, workspace.p, bytes - 1, &beta, y, by.p));
  EXPECT(5000, cudnnConvolutionForward(dnn, &alpha, x, bx.p, w, bw.p, convolution, 1, workspace.p + workspace.count * 4 - 4, bytes, &beta, y, by.p));
  EXPECT(5000, cudnnConvolutionForward(dnn, &alpha, x, bx.p, w, bw.p, convolution, 0, 0, 0, &beta, y, bx.p));
  OK(cudnnDestroyTensorDescriptor(x));
  OK(cudnnDestroyTensorDescriptor(y));
  OK(cudnnDestroyFilterDescriptor(w));
  OK(cudnnDestroyConvolutionDescriptor(convolution));
  EXPECT(2000, cudnnDestroyConvolutionDescriptor(convolution));
}

void test_convolutions(void* stream) {
  void* dnn;
  OK(cudnnCreate(&dnn));
  OK(cudnnSetStream(dnn, stream));
  test_convolution(dnn, {3, 1, 5, 9, 11, 7, 3, 2, 1, 1, 1}, true);
  test_convolution(dnn, {2, 2, 3, 12, 10, 8, 3, 3, 2, 2, 2}, true);
  test_convolution(dnn, {2, 1, 4, 8, 8, 6, 1, 1, 0, 1, 1}, false);
  OK(cudnnDestroy(dnn));
}

}  // namespace

void test_libraries(void* stream) {
  OK(cublasCreate_v2(&blas));
  OK(cublasSetStream_v2(blas, stream));
  test_products();
  test_batches();
  test_sums();
  test_refusals();
  OK(cublasDestroy_v2(blas));
  test_convolutions(stream);
}
