// Kernels and a gradient for operators of another library (callbacks.c): all but one throw.
#include <rsnet/plugin.h>

#include <stdexcept>

extern "C" const uint32_t rsnet_plugin_abi = RSNET_ABI;

static rsnet_status sevens(const rsnet_args* a) {
  for (int64_t i = 0; i < rsnet_size(&a->out[0]); ++i) {
    static_cast<float*>(rsnet_data(&a->out[0]))[i] = 7;
  }
  return RSNET_OK;
}
static rsnet_status throws_in_part(const rsnet_args* a) {
  auto part = [](void*, int64_t, int64_t) -> rsnet_status {
    throw std::runtime_error("thrown by a guest");
  };
  return a->host->parallel_for(a->ctx, rsnet_size(&a->out[0]), 8, part, nullptr);
}
static rsnet_status throws_making(const rsnet_host*, rsnet_ctx*, void*, void**) {
  throw std::runtime_error("thrown by a guest");
}
static rsnet_status throws(const rsnet_host*, rsnet_ctx*, void*) {
  throw std::runtime_error("thrown by a guest");
}

extern "C" rsnet_status rsnet_plugin_register(const rsnet_host* host, rsnet_registry* registry) {
  rsnet_kernel later = {}, part = {}, tmp = {};
  later.struct_size = part.struct_size = tmp.struct_size = sizeof later;
  later.op = "cb_later";
  part.op = "cb_part";
  tmp.op = "cb_tmp";
  later.compute = tmp.compute = sevens;
  part.compute = throws_in_part;
  tmp.tmp_bytes = throws_making;
  part.inplace = throws;
  for (const rsnet_kernel* kernel : {&later, &part, &tmp}) {
    if (host->register_kernel(registry, kernel)) return RSNET_INVALID;
  }
  rsnet_grad grad = {};
  grad.struct_size = sizeof grad;
  grad.op = "cb_rule";
  grad.rule = throws;
  return host->register_grad(registry, &grad);
}
