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
  Buffer a(100), b(100), c(100);
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

}  // namespace

void test_libraries(void* stream) {
  OK(cublasCreate_v2(&blas));
  OK(cublasSetStream_v2(blas, stream));
  test_products();
  test_batches();
  test_sums();
  test_refusals();
  OK(cublasDestroy_v2(blas));
}
