// Maxima of rectangles of images, which are cut into bins.

// The elements of bin `i` of `bins` along an axis of a rectangle from `low` to `high`.
template <class C>
__device__ void bin(C low, C high, C scale, Index i, Index bins, Index extent, Index *from,
                    Index *to) {
  Index start = whole_of(round((double)(low * scale))), end = whole_of(round((double)(high * scale)));
  double length = (double)(end - start + 1 > 1 ? end - start + 1 : 1) / (double)bins;
  Index first = (Index)floor((double)i * length) + start;
  Index last = (Index)ceil((double)(i + 1) * length) + start;
  *from = first < 0 ? 0 : first > extent ? extent : first;
  *to = last < 0 ? 0 : last > extent ? extent : last;
}

struct Regions {
  Index images, channels, height, width, rows, columns;
};

// A rectangle is (image, x, y, x, y). One on an image that there is not stops the device.
template <class T>
__global__ void region_maxima(Index n, Regions r, const T *x, const T *regions, T *y,
                              Compute<T> *places, double scale, int write, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index b = i % r.columns, a = i / r.columns % r.rows, plane = i / r.columns / r.rows;
    const T *region = regions + plane / r.channels * 5;
    C image = (C)region[0];
    if (!(image > -1 && image < (C)r.images)) __trap();
    Index left, right, top, bottom, place = -1;
    bin((C)region[1], (C)region[3], (C)scale, b, r.columns, r.width, &left, &right);
    bin((C)region[2], (C)region[4], (C)scale, a, r.rows, r.height, &top, &bottom);
    const T *from = x + ((Index)image * r.channels + plane % r.channels) * r.height * r.width;
    C best = 0;
    for (Index h = top; h < bottom; h++)
      for (Index w = left; w < right; w++) {
        C value = (C)from[h * r.width + w];
        if (place >= 0 && !(value > best)) continue;
        best = value;
        place = h * r.width + w;
      }
    places[i] = (C)place;
    if (write) store(y + i, best, add);
  }
}

// Every element collects from the bins whose maximum it is, in their order.
template <class T>
__global__ void region_maxima_back(Index n, Index count, Regions r, const T *g, const T *regions,
                                   const Compute<T> *places, T *dx, double scale, int add) {
  typedef Compute<T> C;
  for (Index i = first(); i < n; i += step()) {
    Index plane = r.height * r.width, own = i % plane, h = own / r.width, w = own % r.width;
    Index channel = i / plane % r.channels, image = i / plane / r.channels;
    double sum = 0;
    for (Index k = 0; k < count; k++) {
      const T *region = regions + k * 5;
      if ((Index)(C)region[0] != image) continue;
      for (Index a = 0; a < r.rows; a++) {
        Index top, bottom;
        bin((C)region[2], (C)region[4], (C)scale, a, r.rows, r.height, &top, &bottom);
        if (h < top || h >= bottom) continue;
        for (Index b = 0; b < r.columns; b++) {
          Index at = ((k * r.channels + channel) * r.rows + a) * r.columns + b;
          if (places[at] == (C)own) sum += (double)(C)g[at];
        }
      }
    }
    store(dx + i, sum, add);
  }
}
