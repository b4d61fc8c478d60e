// Products of matrices, where no library of the device makes them: a tile of 64 by 64 results a
// block, 4 by 4 a thread, in steps of 16 of the inner extent.

#include "reduce.cuh"

enum { TILE = 64, DEPTH = 16, SIDE = 4 };

// How an operand of a product lies in memory: the steps of its rows and columns, of the matrices
// in a stack, and of its inner axis, which may be cut into runs: element `k` lies at
// `k / run * far + k % run * near`.
struct Layout {
  Index row, near, far, stack;
};

// C = alpha A B (+ bias) for a stack of matrices; rows of `c` are `c_row` apart. The bias has an
// element for each column, or for each row.
template <class T>
__global__ void matmul(Index m, Index n, Index depth, Index run, Index stacks, const T *a, Layout la,
                       const T *b, Layout lb, T *c, Index c_row, Index c_stack, double alpha,
                       const T *bias, int bias_of_rows, int add) {
  typedef Compute<T> C;
  __shared__ C as[DEPTH][TILE];
  __shared__ C bs[DEPTH][TILE];
  int t = threadIdx.x, tx = t % 16, ty = t / 16;
  for (Index s = blockIdx.z; s < stacks; s += gridDim.z) {
    for (Index top = blockIdx.y * (Index)TILE; top < m; top += gridDim.y * (Index)TILE) {
      Index left = blockIdx.x * (Index)TILE;
      C sum[SIDE][SIDE] = {};
      for (Index k0 = 0; k0 < depth; k0 += DEPTH) {
        __syncthreads();  // the last tiles have been read
        for (int i = t; i < TILE * DEPTH; i += 256) {
          // Neighbouring threads read along the axis whose elements lie side by side.
          int ka = la.near == 1 ? i % DEPTH : i / TILE, ra = la.near == 1 ? i / DEPTH : i % TILE;
          int kb = lb.near == 1 ? i % DEPTH : i / TILE, rb = lb.near == 1 ? i / DEPTH : i % TILE;
          Index k = k0 + ka, row = top + ra;
          as[ka][ra] = k < depth && row < m
              ? (C)a[s * la.stack + row * la.row + k / run * la.far + k % run * la.near] : (C)0;
          k = k0 + kb;
          Index column = left + rb;
          bs[kb][rb] = k < depth && column < n
              ? (C)b[s * lb.stack + column * lb.row + k / run * lb.far + k % run * lb.near] : (C)0;
        }
        __syncthreads();
        for (int k = 0; k < DEPTH; k++) {
          C x[SIDE], y[SIDE];
          for (int i = 0; i < SIDE; i++) x[i] = as[k][ty * SIDE + i];
          for (int j = 0; j < SIDE; j++) y[j] = bs[k][tx * SIDE + j];
          for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) sum[i][j] += x[i] * y[j];
        }
      }
      for (int i = 0; i < SIDE; i++) {
        for (int j = 0; j < SIDE; j++) {
          Index row = top + ty * SIDE + i, column = left + tx * SIDE + j;
          if (row >= m || column >= n) continue;
          C shift = bias ? (C)bias[bias_of_rows ? row : column] : (C)0;
          store(c + s * c_stack + row * c_row + column, (C)alpha * sum[i][j] + shift, add);
        }
      }
    }
  }
}

// Adds the bias of `matmul` to a stack of products that a library made.
template <class T>
__global__ void add_bias(Index count, Index m, Index n, T *c, Index c_row, Index c_stack,
                         const T *bias, int bias_of_rows) {
  for (Index i = first(); i < count; i += step()) {
    Index row = i / n % m, column = i % n;
    store(c + i / n / m * c_stack + row * c_row + column, bias[bias_of_rows ? row : column], 1);
  }
}

template <class T> __global__ void times(Index n, const T *x, T *y, double factor, int add) {
  for (Index i = first(); i < n; i += step()) store(y + i, (Compute<T>)factor * (Compute<T>)x[i], add);
}
