// Matrices of linear algebra, of which there are many small ones: triangular systems, a thread for
// each column, and factors, a block for each matrix. All is calculated in `room`, in the type of
// calculations. What has no result, a matrix without a Cholesky factor or without an inverse, gets
// NaN.

// A triangular matrix of `n` rows and `m` right-hand sides, by steps between rows and columns.
struct Sides {
  Index n, m, row, column, to_row, to_column, lower;
};

template <class C> __device__ C not_a_number() { return (C)(0 * infinity_f()); }

// Solves A x = b in place of a column b, whose elements are `m` apart.
template <class T, class C>
__device__ void solve_column(const T *a, Index n, Index row, Index column, bool lower, C *b,
                             Index m) {
  for (Index s = 0; s < n; s++) {
    Index i = lower ? s : n - 1 - s, from = lower ? 0 : i + 1, to = lower ? i : n;
    C sum = 0;
    for (Index k = from; k < to; k++) sum += (C)a[i * row + k * column] * b[k * m];
    b[i * m] = (b[i * m] - sum) / (C)a[i * (row + column)];
  }
}

// `scale` times the solution or, if `multiplies`, the product of triangular matrices and columns.
template <class T>
__global__ void triangular(Index count, Sides s, const T *a, const T *b, Compute<T> *room, T *y,
                           double scale, int multiplies, int add) {
  typedef Compute<T> C;
  for (Index t = first(); t < count * s.m; t += step()) {
    Index matrix = t / s.m, j = t % s.m;
    const T *own = a + matrix * s.n * s.n;
    Index start = matrix * s.n * s.m + j * s.to_column;
    C *x = room + matrix * s.n * s.m + j;
    for (Index i = 0; i < s.n; i++) x[i * s.m] = (C)b[start + i * s.to_row] * (C)scale;
    if (multiplies) {
      for (Index e = 0; e < s.n; e++) {
        // Rows that later ones need are changed last.
        Index i = s.lower ? s.n - 1 - e : e;
        Index from = s.lower ? 0 : i, to = s.lower ? i + 1 : s.n;
        C sum = 0;
        for (Index k = from; k < to; k++) sum += (C)own[i * s.row + k * s.column] * x[k * s.m];
        x[i * s.m] = sum;
      }
    } else {
      solve_column(own, s.n, s.row, s.column, s.lower, x, s.m);
    }
    for (Index i = 0; i < s.n; i++) store(y + start + i * s.to_row, x[i * s.m], add);
  }
}

// The inverse of L L' from L, or of U' U from U; a thread for each column.
template <class T>
__global__ void inverse_of_factor(Index count, Index n, const T *a, Compute<T> *room, T *y,
                                  int lower, int add) {
  typedef Compute<T> C;
  for (Index t = first(); t < count * n; t += step()) {
    Index matrix = t / n, j = t % n, row = lower ? n : 1, column = lower ? 1 : n;
    const T *own = a + matrix * n * n;
    C *x = room + matrix * n * n + j;
    for (Index i = 0; i < n; i++) x[i * n] = i == j ? (C)1 : (C)0;
    solve_column(own, n, row, column, true, x, n);
    solve_column(own, n, column, row, false, x, n);
    for (Index i = 0; i < n; i++) store(y + matrix * n * n + i * n + j, x[i * n], add);
  }
}

// L of A = L L' from the lower triangle of A, or U of A = U' U from the upper one.
template <class T>
__global__ void cholesky(Index count, Index n, const T *a, Compute<T> *room, T *y, int lower,
                         int add) {
  typedef Compute<T> C;
  for (Index matrix = blockIdx.x; matrix < count; matrix += gridDim.x) {
    Index start = matrix * n * n;
    C *x = room + start;
    bool known = true;
    for (Index i = threadIdx.x; i < n * n; i += blockDim.x)
      x[i] = (C)a[start + (lower ? i : i % n * n + i / n)];
    for (Index k = 0; k < n && known; k++) {
      __syncthreads();
      C pivot = x[k * n + k];
      known = pivot > 0;
      __syncthreads();  // all have read the pivot
      C root = (C)sqrt((double)pivot);
      for (Index i = k + threadIdx.x; i < n; i += blockDim.x)
        x[i * n + k] = i == k ? root : x[i * n + k] / root;
      __syncthreads();
      Index rest = n - k - 1;
      for (Index e = threadIdx.x; e < rest * rest; e += blockDim.x) {
        Index i = k + 1 + e / rest, j = k + 1 + e % rest;
        if (j <= i) x[i * n + j] -= x[i * n + k] * x[j * n + k];
      }
    }
    __syncthreads();
    for (Index e = threadIdx.x; e < n * n; e += blockDim.x) {
      Index i = lower ? e / n : e % n, j = lower ? e % n : e / n;
      C value = j <= i ? x[i * n + j] : (C)0;
      store(y + start + e, known ? value : not_a_number<C>(), add);
    }
  }
}

// P A = L U in place, with partial pivoting; `order` becomes the rows in their new order. The sign
// of the permutation. A singular matrix has a pivot of 0.
template <class C> __device__ C decompose(Index n, C *a, Index *order) {
  C sign = 1;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) order[i] = i;
  for (Index k = 0; k < n; k++) {
    __syncthreads();
    C greatest = -1;
    Index at = n;
    for (Index i = k + threadIdx.x; i < n; i += blockDim.x) {
      C size = (C)fabs((double)a[i * n + k]);
      if (!(size > greatest)) continue;
      greatest = size;
      at = i;
    }
    C top = block_reduce(greatest, (C)-1, [](C x, C y) { return y > x ? y : x; });
    // The first of those that are equal; NaN is never the greatest.
    Index pivot = block_reduce(greatest == top && at < n ? at : n, n,
                               [](Index x, Index y) { return y < x ? y : x; });
    if (pivot == n) pivot = k;
    if (pivot != k) {
      for (Index j = threadIdx.x; j < n; j += blockDim.x) {
        C other = a[k * n + j];
        a[k * n + j] = a[pivot * n + j];
        a[pivot * n + j] = other;
      }
      if (threadIdx.x == 0) {
        Index other = order[k];
        order[k] = order[pivot];
        order[pivot] = other;
      }
      sign = -sign;
    }
    __syncthreads();
    C own = a[k * n + k];
    if (own == 0) continue;
    for (Index i = k + 1 + threadIdx.x; i < n; i += blockDim.x) a[i * n + k] /= own;
    __syncthreads();
    Index rest = n - k - 1;
    for (Index e = threadIdx.x; e < rest * rest; e += blockDim.x) {
      Index i = k + 1 + e / rest, j = k + 1 + e % rest;
      a[i * n + j] -= a[i * n + k] * a[k * n + j];
    }
  }
  __syncthreads();
  return sign;
}

template <class T>
__device__ void load_matrix(Index n, const T *a, Compute<T> *to) {
  __syncthreads();  // the last matrix has been read
  for (Index i = threadIdx.x; i < n * n; i += blockDim.x) to[i] = (Compute<T>)a[i];
}

// Inverses. With `slope`, the gradient of a determinant: the transpose, times the gradient of the
// determinant and, unless it is that of the logarithm, the determinant; 0 without an inverse.
// `room` has two matrices, and `order` a row, for each block.
template <class T>
__global__ void invert(Index count, Index n, const T *a, const T *slope, const T *determinant,
                       Compute<T> *room, Index *order, T *y, int add) {
  typedef Compute<T> C;
  C *x = room + blockIdx.x * 2 * n * n, *found = x + n * n;
  order += blockIdx.x * n;
  for (Index matrix = blockIdx.x; matrix < count; matrix += gridDim.x) {
    Index start = matrix * n * n;
    load_matrix(n, a + start, x);
    decompose(n, x, order);
    C factor = slope ? (C)slope[matrix] * (determinant ? (C)determinant[matrix] : (C)1) : (C)1;
    bool known = true;
    for (Index i = 0; i < n; i++)
      known = known && (x[i * n + i] > 0 || x[i * n + i] < 0);
    for (Index j = threadIdx.x; j < n; j += blockDim.x) {
      C *b = found + j;
      for (Index i = 0; i < n; i++) b[i * n] = order[i] == j ? (C)1 : (C)0;
      // L has ones on its diagonal, which is not stored.
      for (Index i = 0; known && i < n; i++) {
        C sum = 0;
        for (Index k = 0; k < i; k++) sum += x[i * n + k] * b[k * n];
        b[i * n] -= sum;
      }
      if (known) solve_column(x, n, n, 1, false, b, n);
      for (Index i = 0; i < n; i++) {
        C value = known ? b[i * n] * factor : slope ? (C)0 : not_a_number<C>();
        store(y + start + (slope ? j * n + i : i * n + j), value, add);
      }
    }
  }
}

// Determinants or, as a `pair`, their signs and the logarithms of their absolute values, of which
// either may be missing.
template <class T>
__global__ void determinants(Index count, Index n, const T *a, Compute<T> *room, Index *order,
                             T *y, T *logs, int pair, int add, int add_logs) {
  typedef Compute<T> C;
  C *x = room + blockIdx.x * n * n;
  order += blockIdx.x * n;
  for (Index matrix = blockIdx.x; matrix < count; matrix += gridDim.x) {
    load_matrix(n, a + matrix * n * n, x);
    C sign = decompose(n, x, order), logarithm = 0;
    if (threadIdx.x != 0) continue;
    for (Index k = 0; k < n; k++) {
      C pivot = x[k * n + k];
      sign *= pivot == 0 ? (C)0 : pivot < 0 ? (C)-1 : pivot > 0 ? (C)1 : pivot;
      logarithm += (C)log(fabs((double)pivot));
    }
    if (y) store(y + matrix, pair ? sign : sign * (C)exp((double)logarithm), add);
    if (logs) store(logs + matrix, logarithm, add_logs);
  }
}

template <class C> __device__ C warp_sum(C value) {
  for (int distance = 16; distance; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// x -= scale * v * (v . x), by a warp.
template <class C> __device__ void reflect(const C *v, C scale, C *x, Index n) {
  C dot = 0;
  int lane = threadIdx.x % 32;
  for (Index i = lane; i < n; i += 32) dot += v[i] * x[i];
  dot = warp_sum(dot) * scale;
  for (Index i = lane; i < n; i += 32) x[i] -= dot * v[i];
}

// A = L Q for m <= n, by Householder's reflections; `room` has a matrix (m, n) and m numbers for
// each block.
template <class T>
__global__ void lq(Index count, Index m, Index n, const T *a, Compute<T> *room, T *q, T *l,
                   int add_q, int add_l) {
  typedef Compute<T> C;
  C *x = room + blockIdx.x * (m * n + m), *scales = x + m * n;
  int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (Index matrix = blockIdx.x; matrix < count; matrix += gridDim.x) {
    __syncthreads();  // the last matrix has been read
    for (Index i = threadIdx.x; i < m * n; i += blockDim.x) x[i] = (C)a[matrix * m * n + i];
    for (Index k = 0; k < m; k++) {
      C *row = x + k * n + k, square = 0;
      Index length = n - k;
      __syncthreads();
      for (Index i = threadIdx.x; i < length; i += blockDim.x) square += row[i] * row[i];
      C norm = (C)sqrt((double)block_sum(square)), alpha = row[0];
      C beta = alpha > 0 ? -norm : norm;
      bool reflects = norm != 0 && length > 1;
      __syncthreads();  // all have read the row
      for (Index i = threadIdx.x; i < length; i += blockDim.x)
        row[i] = i == 0 ? (C)1 : reflects ? row[i] / (alpha - beta) : row[i];
      if (threadIdx.x == 0) scales[k] = reflects ? (beta - alpha) / beta : (C)0;
      __syncthreads();
      C scale = scales[k];
      for (Index i = k + 1 + warp; i < m; i += warps)
        if (reflects) reflect(row, scale, row + (i - k) * n, length);
      if (l && threadIdx.x == 0)
        store(l + (matrix * m + k) * m + k, reflects ? beta : alpha, add_l);
    }
    __syncthreads();
    for (Index e = threadIdx.x; l && e < m * m; e += blockDim.x) {
      // What remains left of the diagonal after the reflections is L.
      Index i = e / m, j = e % m;
      if (i != j) store(l + matrix * m * m + e, j < i ? x[i * n + j] : (C)0, add_l);
    }
    for (Index k = m - 1; k >= 0; k--) {
      C *row = x + k * n + k, scale = scales[k];
      Index length = n - k;
      __syncthreads();
      for (Index i = k + 1 + warp; i < m; i += warps) {
        C *other = row + (i - k) * n;
        if (threadIdx.x % 32 == 0) other[0] = 0;
        __syncwarp();
        reflect(row, scale, other, length);
      }
      __syncthreads();
      for (Index i = threadIdx.x; i < n; i += blockDim.x)
        x[k * n + i] = i < k ? (C)0 : i == k ? (C)1 - scale : -scale * x[k * n + i];
    }
    __syncthreads();
    for (Index i = threadIdx.x; q && i < m * n; i += blockDim.x)
      store(q + matrix * m * n + i, x[i], add_q);
  }
}

// Eigenvalues of symmetric matrices, rising, and eigenvectors as rows, each with a positive
// greatest element. Jacobi's method, whose rotations follow one another as on the host; `room` has
// two matrices and a row, and `order` a row, for each block.
template <class T>
__global__ void eigen(Index count, Index n, const T *a, Compute<T> *room, Index *order, T *vectors,
                      T *values, int add_vectors, int add_values) {
  typedef Compute<T> C;
  C *x = room + blockIdx.x * (2 * n * n + n), *u = x + n * n, *signs = u + n * n;
  const C tiny = sizeof(C) == 4 ? (C)1.1920928955078125e-7 : (C)2.220446049250313e-16;
  order += blockIdx.x * n;
  for (Index matrix = blockIdx.x; matrix < count; matrix += gridDim.x) {
    load_matrix(n, a + matrix * n * n, x);
    double least = 0, others = 0;  // what rounding may leave of 0; numbers that are not finite
    for (Index i = threadIdx.x; i < n * n; i += blockDim.x) {
      u[i] = i / n == i % n ? (C)1 : (C)0;
      // Only the lower triangle is read.
      if (i % n > i / n) x[i] = (C)a[matrix * n * n + i % n * n + i / n];
      least += (double)x[i] * (double)x[i];
      others += x[i] - x[i] == 0 ? 0 : 1;
    }
    // A matrix that is not finite has no eigenvalues: all numbers are NaN.
    bool finite = block_sum(others) == 0;
    for (Index i = threadIdx.x; i < n * n && !finite; i += blockDim.x) x[i] = u[i] = (C)0 / (C)0;
    least = (double)tiny * sqrt(block_sum(least)) / (double)n;
    if (!(least <= 1.7976931348623157e308)) least = 0;
    bool turned = finite;
    for (int sweep = 0; sweep < 60 && turned; sweep++) {
      turned = false;
      for (Index pair = 0; pair < n * n; pair++) {
        Index p = pair / n, q = pair % n;
        if (q <= p) continue;
        __syncthreads();
        C pp = x[p * n + p], qq = x[q * n + q], pq = x[p * n + q];
        C small = tiny * (C)0.25 * (C)(sqrt(fabs((double)pp)) * sqrt(fabs((double)qq)));
        if (!((C)fabs((double)pq) > small && fabs((double)pq) > least)) continue;
        turned = true;
        C theta = (qq - pp) / (pq + pq), size = (C)fabs((double)theta);
        C t = (theta < 0 ? (C)-1 : (C)1) / (size + (C)sqrt((double)(theta * theta + (C)1)));
        C c = (C)1 / (C)sqrt((double)(t * t + (C)1)), s = t * c;
        __syncthreads();  // all have read the three
        for (Index k = threadIdx.x; k < n; k += blockDim.x) {
          C left = x[k * n + p], right = x[k * n + q];
          x[k * n + p] = c * left - s * right;
          x[k * n + q] = s * left + c * right;
        }
        __syncthreads();
        for (Index k = threadIdx.x; k < 2 * n; k += blockDim.x) {
          C *of = k < n ? x : u;
          Index at = k % n;
          C upper = of[p * n + at], lower = of[q * n + at];
          of[p * n + at] = c * upper - s * lower;
          of[q * n + at] = s * upper + c * lower;
        }
      }
    }
    __syncthreads();
    for (Index i = threadIdx.x; i < n; i += blockDim.x) {
      // The place of an eigenvalue is the number of those that come before it; NaN comes last.
      C own = x[i * n + i], greatest = 0;
      Index place = 0;
      for (Index j = 0; j < n; j++) {
        C other = x[j * n + j];
        bool less = own != own ? other == other : other < own;
        bool greater = other != other ? own == own : own < other;
        place += less || (!greater && j < i);
        C value = u[i * n + j];
        if ((C)fabs((double)value) > (C)fabs((double)greatest)) greatest = value;
      }
      order[place] = i;
      signs[i] = greatest < 0 ? (C)-1 : (C)1;
    }
    __syncthreads();
    for (Index e = threadIdx.x; e < n * n; e += blockDim.x) {
      Index from = order[e / n];
      if (vectors) store(vectors + matrix * n * n + e, u[from * n + e % n] * signs[from], add_vectors);
      if (values && e % n == 0)
        store(values + matrix * n + e / n, x[from * n + from], add_values);
    }
  }
}

// U' (diag(dL) + sym(F * (U dU'))) U with F[i, j] = 1 / (l[j] - l[i]); `room` has two matrices for
// each block.
template <class T>
__global__ void eigen_back(Index count, Index n, const T *du, const T *dl, const T *u, const T *l,
                           Compute<T> *room, T *dx, int add) {
  typedef Compute<T> C;
  C *middle = room + blockIdx.x * 2 * n * n, *half_way = middle + n * n;
  for (Index matrix = blockIdx.x; matrix < count; matrix += gridDim.x) {
    const T *v = u + matrix * n * n, *dv = du + matrix * n * n, *value = l + matrix * n;
    __syncthreads();  // the last matrix has been read
    for (Index e = threadIdx.x; e < n * n; e += blockDim.x) {
      Index i = e / n, j = e % n;
      C gap = (C)value[j] - (C)value[i], sum = 0;
      for (Index k = 0; k < n; k++)
        sum += (C)v[i * n + k] * (C)dv[j * n + k] - (C)v[j * n + k] * (C)dv[i * n + k];
      middle[e] = i == j ? (C)dl[matrix * n + i] : gap == 0 ? (C)0 : sum / (gap + gap);
    }
    __syncthreads();
    for (Index e = threadIdx.x; e < n * n; e += blockDim.x) {
      C sum = 0;
      for (Index k = 0; k < n; k++) sum += middle[e / n * n + k] * (C)v[k * n + e % n];
      half_way[e] = sum;
    }
    __syncthreads();
    for (Index e = threadIdx.x; e < n * n; e += blockDim.x) {
      C sum = 0;
      for (Index k = 0; k < n; k++) sum += (C)v[k * n + e / n] * half_way[k * n + e % n];
      store(dx + matrix * n * n + e, sum, add);
    }
  }
}

// A part of matrices of `n` rows, of which a vector holds the elements: a diagonal, or a triangle
// that begins `down` rows and `right` columns from the corner, row by row or, of an upper one,
// column by column.
struct Part {
  Index n, down, right, length;
  int triangle, lower;

  // The place of element `i` of the vector.
  __device__ Index place(Index i) const {
    Index row = i, column = i;
    if (triangle) {
      row = (Index)((sqrt(8.0 * (double)i + 1.0) - 1.0) / 2.0);
      while (row * (row + 1) / 2 > i) row--;
      while ((row + 1) * (row + 2) / 2 <= i) row++;
      column = i - row * (row + 1) / 2;
      if (!lower) {
        Index other = row;
        row = column;
        column = other;
      }
    }
    return (row + down) * n + column + right;
  }
};

template <class T>
__global__ void part_of(Index count, Part p, const T *a, T *y, int add) {
  for (Index i = first(); i < count * p.length; i += step())
    store(y + i, (Compute<T>)a[i / p.length * p.n * p.n + p.place(i % p.length)], add);
}

// The other way, into zeros or what is to be added to.
template <class T> __global__ void whole_of_part(Index count, Part p, const T *v, T *y) {
  for (Index i = first(); i < count * p.length; i += step())
    store(y + i / p.length * p.n * p.n + p.place(i % p.length), (Compute<T>)v[i], 1);
}

// The sum of the logarithms of a diagonal, and its gradient, into zeros or what is to be added to.
template <class T>
__global__ void log_diagonal(Index count, Index n, const T *a, T *y, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < count; i += step()) {
    C sum = 0;
    for (Index k = 0; k < n; k++) sum += (C)log((double)(C)a[i * n * n + k * (n + 1)]);
    store(y + i, sum, add);
  }
}

template <class T>
__global__ void log_diagonal_back(Index count, Index n, const T *g, const T *a, T *dx) {
  typedef Compute<T> C;
  for (Index i = first(); i < count * n; i += step()) {
    Index at = i / n * n * n + i % n * (n + 1);
    store(dx + at, (C)g[i / n] / (C)a[at], 1);
  }
}
