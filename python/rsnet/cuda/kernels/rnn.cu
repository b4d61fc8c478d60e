// Recurrent layers: what is done at one time after the product of the states, forward and backward.
//
// A row of gates belongs to a sequence and holds `hid` elements for each gate; a step has `batch`
// rows. Sequence `b` has ended at times from `lengths[b]` on, if there are lengths: its states stay
// as they are, its outputs and the gradients of its gates are 0.

#include "dense.cu"
#include "random.cu"
#include "reduce.cuh"

enum { RELU, TANH, LSTM, GRU };

__device__ inline float tanh_of(float x) { return tanhf(x); }
__device__ inline double tanh_of(double x) { return tanh(x); }
template <class C> __device__ inline C sigmoid_of(C x) { return (C)1 / ((C)1 + exp_of(-x)); }

__device__ inline int gates_of(int cell) { return cell == LSTM ? 4 : cell == GRU ? 3 : 1; }

// Numbers of any dtype as lengths: 0 float, 1 double, 2 half, 3 u8, 4 int, 5 i8, 6 Index, 7 bool.
__global__ void sequence_lengths(Index n, const u8 *from, int dtype, Index *to) {
  for (Index i = first(); i < n; i += step()) {
    double x = dtype == 0   ? (double)((const float *)from)[i]
               : dtype == 1 ? ((const double *)from)[i]
               : dtype == 2 ? (double)(float)((const half *)from)[i]
               : dtype == 3 ? (double)from[i]
               : dtype == 4 ? (double)((const int *)from)[i]
               : dtype == 5 ? (double)((const i8 *)from)[i]
               : dtype == 6 ? (double)((const Index *)from)[i]
                            : (double)(from[i] != 0);
    to[i] = x > 0 ? whole_of(x) : 0;
  }
}

// `row` comes with the part of the input and leaves activated; `rec` is the part of the states.
// Hidden values go to `h`, and to columns of `out` unless they are projected first. `inner` keeps
// the part of the states of GRU's third gate.
template <class T>
__global__ void rnn_step(Index batch, Index hid, int cell, T *gates, const T *rec, const T *bias,
                         const T *rec_bias, const T *old_h, T *h, const T *old_c, T *new_c,
                         T *inner, T *out, Index out_width, int projected, const Index *lengths,
                         Index time, int clips, double low, double high) {
  typedef Compute<T> C;
  Index width = gates_of(cell) * hid;
  for (Index i = first(); i < batch * hid; i += step()) {
    Index b = i / hid, j = i - b * hid;
    if (lengths && time >= lengths[b]) {
      h[i] = projected ? convert<T>((C)0) : old_h[i];
      if (cell == LSTM) new_c[i] = old_c[i];
      if (!projected) out[b * out_width + j] = convert<T>((C)0);
      continue;
    }
    T *row = gates + b * width + j;
    const T *own = rec + b * width + j;
    C value;
    if (cell == LSTM) {
      C g[4];
      for (int k = 0; k < 4; k++) {
        C bias_of = (C)bias[k * hid + j] + (C)rec_bias[k * hid + j];
        C sum = (C)row[k * hid] + (C)own[k * hid] + bias_of;
        g[k] = k == 2 ? tanh_of(sum) : sigmoid_of(sum);
        row[k * hid] = convert<T>(g[k]);
      }
      C c = g[1] * (C)old_c[i] + g[0] * g[2];
      if (clips) {
        c = c > (C)low ? c : (C)low;
        c = c < (C)high ? c : (C)high;
      }
      new_c[i] = convert<T>(c);
      value = g[3] * tanh_of(c);
    } else if (cell == GRU) {
      C g[2];
      for (int k = 0; k < 2; k++) {
        C bias_of = (C)bias[k * hid + j] + (C)rec_bias[k * hid + j];
        g[k] = sigmoid_of((C)row[k * hid] + (C)own[k * hid] + bias_of);
        row[k * hid] = convert<T>(g[k]);
      }
      C recurrent = (C)own[2 * hid] + (C)rec_bias[2 * hid + j];
      C fresh = tanh_of((C)row[2 * hid] + (C)bias[2 * hid + j] + g[0] * recurrent);
      row[2 * hid] = convert<T>(fresh);
      inner[i] = convert<T>(recurrent);
      value = ((C)1 - g[1]) * fresh + g[1] * (C)old_h[i];
    } else {
      C sum = (C)row[0] + (C)own[0] + (C)bias[j] + (C)rec_bias[j];
      value = cell == TANH ? tanh_of(sum) : sum > 0 ? sum : (C)0;
      row[0] = convert<T>(value);
    }
    h[i] = convert<T>(value);
    if (!projected) out[b * out_width + j] = convert<T>(value);
  }
}

// States of `width` elements after their projection: those of sequences that have ended stay.
template <class T>
__global__ void rnn_project(Index batch, Index width, const T *old_h, T *h, T *out,
                            Index out_width, const Index *lengths, Index time) {
  for (Index i = first(); i < batch * width; i += step()) {
    Index b = i / width;
    bool ended = lengths && time >= lengths[b];
    if (ended) h[i] = old_h[i];
    out[b * out_width + i - b * width] = ended ? convert<T>((Compute<T>)0) : h[i];
  }
}

// Before the gradient of a projection: the gradient of what was projected, from that of the states,
// which passes on where the sequence has ended.
template <class T>
__global__ void rnn_project_back(Index batch, Index width, const T *dout, Index out_width, T *dh,
                                 T *projected, const Index *lengths, Index time) {
  typedef Compute<T> C;
  for (Index i = first(); i < batch * width; i += step()) {
    Index b = i / width;
    bool ended = lengths && time >= lengths[b];
    C sum = (C)dh[i] + (C)dout[b * out_width + i - b * width];
    projected[i] = convert<T>(ended ? (C)0 : sum);
    if (!ended) dh[i] = convert<T>((C)0);
  }
}

// Gradients of the gates before their activation: `dg` for the part of the input, `drec` for that
// of the states (the same array unless the cell is GRU). The gradient of the hidden values is
// `from`, if they were projected, else that of the states and of the output; then `dh` keeps what
// passes to the states before without a product.
template <class T>
__global__ void rnn_step_back(Index batch, Index hid, int cell, const T *gates, const T *inner,
                              const T *old_h, const T *old_c, const T *new_c, const T *from,
                              const T *dout, Index out_width, T *dh, T *dc, T *dg, T *drec,
                              const Index *lengths, Index time, int clips, double low,
                              double high) {
  typedef Compute<T> C;
  Index width = gates_of(cell) * hid;
  for (Index i = first(); i < batch * hid; i += step()) {
    Index b = i / hid, j = i - b * hid, at = b * width + j;
    if (lengths && time >= lengths[b]) {
      for (Index k = 0; k < width; k += hid) dg[at + k] = drec[at + k] = convert<T>((C)0);
      continue;
    }
    C d = from ? (C)from[i] : (C)dh[i] + (C)dout[b * out_width + j], through = 0;
    if (cell == LSTM) {
      C in = (C)gates[at], keep = (C)gates[at + hid], fresh = (C)gates[at + 2 * hid];
      C open = (C)gates[at + 3 * hid], c = (C)new_c[i], squashed = tanh_of(c);
      C inside = (C)dc[i] + d * open * ((C)1 - squashed * squashed);
      if (clips && (c <= (C)low || c >= (C)high)) inside = 0;  // no gradient passes a limit
      dg[at] = convert<T>(inside * fresh * in * ((C)1 - in));
      dg[at + hid] = convert<T>(inside * (C)old_c[i] * keep * ((C)1 - keep));
      dg[at + 2 * hid] = convert<T>(inside * in * ((C)1 - fresh * fresh));
      dg[at + 3 * hid] = convert<T>(d * squashed * open * ((C)1 - open));
      dc[i] = convert<T>(inside * keep);
    } else if (cell == GRU) {
      C reset = (C)gates[at], update = (C)gates[at + hid], fresh = (C)gates[at + 2 * hid];
      C slope = d * ((C)1 - update) * ((C)1 - fresh * fresh);
      dg[at] = drec[at] = convert<T>(slope * (C)inner[i] * reset * ((C)1 - reset));
      dg[at + hid] = drec[at + hid] =
          convert<T>(d * ((C)old_h[i] - fresh) * update * ((C)1 - update));
      dg[at + 2 * hid] = convert<T>(slope);
      drec[at + 2 * hid] = convert<T>(slope * reset);
      through = d * update;
    } else {
      C y = (C)gates[at];
      dg[at] = convert<T>(cell == TANH ? d * ((C)1 - y * y) : y > 0 ? d : (C)0);
    }
    if (!from) dh[i] = convert<T>(through);
  }
}

// Dropout between layers, in place: numbers from `start` on, kept with probability `keep`.
template <class T>
__global__ void rnn_drop(Index n, T *x, Key key, Index start, float keep) {
  typedef Compute<T> C;
  for (Index block = first(); block * 4 < n; block += step()) {
    Words words = philox(key, start + block);
    for (int i = 0; i < 4 && block * 4 + i < n; i++) {
      C old = (C)x[block * 4 + i];
      x[block * 4 + i] = convert<T>(unit(words.w[i]) < keep ? old * ((C)1 / (C)keep) : (C)0);
    }
  }
}
