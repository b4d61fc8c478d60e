// What a call asks rsnet for: temporary space and random numbers. See rsnet/mxnet.h.
#ifndef RSNET_MXNET_RESOURCE_HPP
#define RSNET_MXNET_RESOURCE_HPP

#include <rsnet/mxnet/base.hpp>

#include <condition_variable>
#include <mutex>

namespace mxnet {

struct ResourceRequest {
  enum Type { kRandom, kTempSpace, kParallelRandom };
  Type type = kTempSpace;
  ResourceRequest() = default;
  ResourceRequest(Type type) : type(type) {}  // NOLINT: as in MXNet
};

// Random numbers of a call: the next ones with every use.
template <typename xpu, typename DType = real_t>
class Random {
 public:
  Random(const rsnet_host* host, rsnet_ctx* ctx, uint64_t* used)
      : host_(host), ctx_(ctx), used_(used) {}
  // Evenly spread from low up to, but without, high.
  template <int dim>
  void SampleUniform(mshadow::Tensor<xpu, dim, DType>* out, double low = 0, double high = 1) {
    Uniform(out->dptr_, out->shape_.Size(), low, high);
  }
  template <int dim>
  void SampleGaussian(mshadow::Tensor<xpu, dim, DType>* out, double mean = 0, double sd = 1) {
    Gaussian(out->dptr_, out->shape_.Size(), mean, sd);
  }
  // The same in expressions.
  template <int dim>
  mshadow::expr::Values<DType> uniform(const mshadow::Shape<dim>& shape) {
    mshadow::expr::Values<DType> out{mshadow::expr::Extents(shape)};
    Uniform(out.values->data(), out.values->size(), 0, 1);
    return out;
  }
  template <int dim>
  mshadow::expr::Values<DType> gaussian(const mshadow::Shape<dim>& shape) {
    mshadow::expr::Values<DType> out{mshadow::expr::Extents(shape)};
    Gaussian(out.values->data(), out.values->size(), 0, 1);
    return out;
  }

 private:
  static double Unit(uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }
  void Uniform(DType* out, size_t n, double low, double high) {
    Fill(out, n, [=](uint64_t a, uint64_t) { return low + (high - low) * Unit(a); });
  }
  void Gaussian(DType* out, size_t n, double mean, double sd) {
    Fill(out, n, [=](uint64_t a, uint64_t b) {
      double r = std::sqrt(-2 * std::log(1 - Unit(a)));
      return mean + sd * r * std::cos(6.283185307179586 * Unit(b));
    });
  }
  template <typename F>
  void Fill(DType* out, size_t n, F value) {
    std::vector<uint64_t> words(2 * n);
    rsnet::check(host_->random(ctx_, *used_, 2 * n, words.data()));
    *used_ += 2 * n;
    for (size_t i = 0; i < n; ++i) {
      out[i] = static_cast<DType>(value(words[2 * i], words[2 * i + 1]));
    }
  }
  const rsnet_host* host_;
  rsnet_ctx* ctx_;
  uint64_t* used_;
};

// Bytes of a block; more than any machine has if an extent is negative or the product too large.
inline uint64_t BytesOf(const index_t* extents, int n, uint64_t bytes) {
  for (int i = 0; i < n; ++i) {
    bool fits = extents[i] >= 0 && !__builtin_mul_overflow(bytes, extents[i], &bytes);
    if (!fits) return UINT64_MAX;
  }
  return bytes;
}

struct Resource {
  Resource(ResourceRequest req, const rsnet_host* host, rsnet_ctx* ctx,
           std::shared_ptr<uint64_t> used)
      : req(req), host(host), ctx(ctx), used(std::move(used)) {}

  ResourceRequest req;
  const rsnet_host* host;
  rsnet_ctx* ctx;
  std::shared_ptr<uint64_t> used;  // random numbers of the call, by all of its resources

  template <typename xpu, int dim, typename DType>
  mshadow::Tensor<xpu, dim, DType> get_space_typed(mshadow::Shape<dim> shape,
                                                   mshadow::Stream<xpu>* = nullptr) const {
    void* memory = host->temp(ctx, BytesOf(shape.shape_, dim, sizeof(DType)));
    if (memory == nullptr) throw rsnet::Failure("", RSNET_INTERNAL);
    return {static_cast<DType*>(memory), shape};
  }
  template <typename xpu, int dim>
  mshadow::Tensor<xpu, dim, real_t> get_space(mshadow::Shape<dim> shape,
                                              mshadow::Stream<xpu>* = nullptr) const {
    return get_space_typed<xpu, dim, real_t>(shape);
  }
  template <typename xpu, typename DType>
  Random<xpu, DType>* get_random(mshadow::Stream<xpu>* = nullptr) const {
    auto random = std::make_shared<Random<xpu, DType>>(host, ctx, used.get());
    kept.push_back(random);
    return random.get();
  }

 private:
  // What get_random handed out.
  mutable std::vector<std::shared_ptr<void>> kept;
};

// What FResourceRequest, or ForwardResource and BackwardResource, ask for, in that order.
class Requested : public std::vector<Resource> {
 public:
  const Resource& operator[](size_t i) const {
    if (i < size()) return data()[i];
    throw rsnet::Failure("invalid resource " + std::to_string(i) + ": " + std::to_string(size()) +
                         " are requested");
  }
};

// What an operator with a state and ExecType kAsync calls when its work is done, on any thread: its
// call lasts until then. Of any other operator it has no effect.
class OnComplete {
 public:
  explicit OnComplete(bool is_async) : state_(is_async ? std::make_shared<State>() : nullptr) {}
  void operator()() const {
    if (state_ == nullptr) return;
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->is_done = true;
    state_->changed.notify_all();
  }
  void Wait() const {
    if (state_ == nullptr) return;
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->is_done; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;
  };
  std::shared_ptr<State> state_;
};

}  // namespace mxnet

namespace mshadow {
using mxnet::Random;
}  // namespace mshadow

#endif  // RSNET_MXNET_RESOURCE_HPP
