#pragma once
#include <cstdint>

// C = alpha op(A) op(B) + beta C, of matrices by columns: element (i, j) of A is a[i + j * lda].
struct Gemm {
  int64_t m, n, k;
  float alpha, beta;
  const float* a;
  int64_t lda;
  bool a_transposed;
  const float* b;
  int64_t ldb;
  bool b_transposed;
  float* c;
  int64_t ldc;
  bool tf32 = false;     // the inputs' mantissas are cut to 10 bits, as tensor cores do
  int64_t first_term = 0;  // where each sum over k begins; it goes round
};

// With beta 0, C is not read; with alpha 0, A and B are not.
void gemm(const Gemm&);

float to_tf32(float);
