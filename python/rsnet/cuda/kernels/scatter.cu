// Slices that several numbers or coordinates name, added up: what names the same place is sorted
// side by side, so every sum has one order.

#include "indexing.cu"
#include "order.cu"

// Of an array whose first axes are counted by coordinates, negative ones from the end.
struct Coordinates {
  Index axes, columns;
  Index extent[8], steps[8];

  // The number of the slice in column `k`. A coordinate that is outside stops the device: the
  // result could not be told from a right one.
  template <class I> __device__ Index slice(const I *indices, Index k) const {
    Index place = 0;
    for (Index a = 0; a < axes; a++) {
      I index = indices[a * columns + k];
      Index at = is_float<I> ? whole_of((double)(Compute<I>)index) : (Index)(Compute<I>)index;
      if (at < -extent[a] || at >= extent[a]) __trap();
      place += (at < 0 ? at + extent[a] : at) * steps[a];
    }
    return place;
  }
};

// The places that numbers of slices name.
template <class I>
__global__ void places_by_number(Index n, Index extent, const I *indices, Index *places, int mode) {
  for (Index k = first(); k < n; k += step()) places[k] = position(indices[k], extent, mode);
}

template <class I>
__global__ void places_by_coordinates(Coordinates c, const I *indices, Index *places) {
  for (Index k = first(); k < c.columns; k += step()) places[k] = c.slice(indices, k);
}

template <class T, class I>
__global__ void gather(Index n, Index length, Coordinates c, const T *x, const I *indices, T *y,
                       int add) {
  for (Index i = first(); i < n; i += step()) {
    Index at = c.slice(indices, i / length) * length + i % length;
    store(y + i, (Compute<T>)x[at], add);
  }
}

// Adds slices to those at their places; `order` sorts the places. Data is (outer, taken, inner),
// the target (outer, extent, inner).
template <class T>
__global__ void add_slices(Index n, Index taken, Index extent, Index inner, const Index *places,
                           const Index *order, const T *g, T *x) {
  for (Index i = first(); i < n; i += step()) {
    Index p = i / inner % taken, outer = i / inner / taken, place = places[order[p]];
    if (p > 0 && places[order[p - 1]] == place) continue;
    Compute<T> sum = 0;
    for (Index q = p; q < taken && places[order[q]] == place; q++)
      sum += (Compute<T>)g[(outer * taken + order[q]) * inner + i % inner];
    store(x + (outer * extent + place) * inner + i % inner, sum, 1);
  }
}

// Puts slices at their places; of several for one place the last.
template <class T>
__global__ void put_slices(Index n, Index taken, Index inner, const Index *places,
                           const Index *order, const T *from, T *y, int add) {
  for (Index i = first(); i < n; i += step()) {
    Index p = i / inner, k = order[p];
    if (p + 1 < taken && places[order[p + 1]] == places[k]) continue;
    store(y + places[k] * inner + i % inner, (Compute<T>)from[k * inner + i % inner], add);
  }
}
