/* The interface between rsnet and libraries of compiled operators ("plug-ins").
 *
 * A library includes this header, links with nothing, and exports two symbols:
 *
 *     const uint32_t rsnet_plugin_abi = RSNET_ABI;
 *     rsnet_status rsnet_plugin_register(const rsnet_host *host, rsnet_registry *registry);
 *
 * and one in C++ a third, rsnet_plugin_guard, which this header defines.
 *
 * rsnet.load_library(path) opens it, compares the first with its own version, and calls the second
 * once, which registers operators, kernels and gradients: all of them, or none if it fails.
 *
 * C99 and C++11. Tensors have DLPack's layout. docs/plugins.md is the guide;
 * rsnet/oneflow.hpp and rsnet/mxnet.h offer OneFlow's and MXNet's C++ names over this header.
 *
 * Growth: the minor version grows when something is added, the major version when something
 * changes. Every struct that a library fills in begins with its size, fields are only appended, and
 * rsnet takes a field that is not there for 0. (rsnet_match has no size, and stays as it is: a new
 * kind of condition uses its fields.) The table of functions only grows, too.
 *
 * Memory: rsnet copies what it is told at registration, except functions and `user` pointers. What
 * a function of the table returns is valid until the callback ends. The same holds for contexts
 * (rsnet_ctx): a thread of the library's own may use one only while the callback that got it waits.
 *
 * Failure: a callback calls host->fail(ctx, text) and returns a status other than RSNET_OK. rsnet
 * raises the text as an exception that names the operator. A C++ exception that leaves a callback
 * does the same (see rsnet_plugin_guard below).
 */
#ifndef RSNET_PLUGIN_H
#define RSNET_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#define RSNET_ABI_MAJOR 1u
#define RSNET_ABI_MINOR 0u
#define RSNET_ABI ((RSNET_ABI_MAJOR << 16) | RSNET_ABI_MINOR)

#if defined(__GNUC__)
#define RSNET_EXPORT __attribute__((visibility("default")))
#else
#define RSNET_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Status of a callback. */
typedef int32_t rsnet_status;
enum {
  RSNET_OK = 0,
  RSNET_INVALID = 1,     /* a value, shape or dtype that is not acceptable: ValueError */
  RSNET_UNSUPPORTED = 2, /* something that the operator does not offer: NotImplementedError */
  RSNET_INTERNAL = 3,    /* any other failure: MXNetError */
  RSNET_UNKNOWN = 4      /* inference: more must be known before an answer is possible; of any
                          * other callback but `inplace`, a failure */
};

/* ---- Tensors: the layout of DLPack's DLTensor ------------------------------------------------ */

enum { RSNET_CPU = 1, RSNET_GPU = 2 };
typedef struct rsnet_device {
  int32_t device_type; /* RSNET_CPU, RSNET_GPU */
  int32_t device_id;
} rsnet_device;

enum { RSNET_INT = 0, RSNET_UINT = 1, RSNET_FLOAT = 2, RSNET_BFLOAT = 4, RSNET_BOOLEAN = 6 };
typedef struct rsnet_dtype {
  uint8_t code; /* RSNET_INT ... */
  uint8_t bits; /* 0: the dtype is unknown (inference) */
  uint16_t lanes;
} rsnet_dtype;

typedef struct rsnet_tensor {
  void *data; /* the first element, if byte_offset is added; NULL in inference */
  rsnet_device device;
  int32_t ndim; /* -1: unknown (inference) */
  rsnet_dtype dtype;
  int64_t *shape;   /* -1: an unknown extent (inference) */
  int64_t *strides; /* in elements; kernels get row-major blocks */
  uint64_t byte_offset;
} rsnet_tensor;

/* ---- Attributes (parameters of an operator) -------------------------------------------------- */

enum {
  RSNET_NONE = 0, /* the value None of an attribute with RSNET_MAY_BE_NONE */
  RSNET_I32 = 1,
  RSNET_I64 = 2,
  RSNET_BOOL = 3,
  RSNET_F32 = 4,
  RSNET_F64 = 5,
  RSNET_STR = 6,
  RSNET_SHAPE = 7,
  RSNET_DTYPE = 8,
  RSNET_LIST_I32 = 9,
  RSNET_LIST_I64 = 10,
  RSNET_LIST_F32 = 11,
  RSNET_LIST_DTYPE = 12,
  RSNET_LIST_SHAPE = 13,
  RSNET_LIST_STR = 14,
  RSNET_U32 = 15,
  RSNET_U64 = 16,
  RSNET_ENUM = 17, /* one of `choices`; the value is a text */
  RSNET_LIST_F64 = 18,
  RSNET_LIST_MAYBE_I64 = 19 /* integers and None, which is RSNET_NO_NUMBER */
};
#define RSNET_NO_NUMBER INT64_MIN

typedef struct rsnet_extents {
  int32_t n;
  const int64_t *dims;
} rsnet_extents;

typedef struct rsnet_value {
  int32_t kind; /* as declared, or RSNET_NONE */
  int32_t n;    /* items of a shape or list, bytes of a text */
  union {
    int64_t i;               /* I32, I64, U32, BOOL, and U64 up to 2^63 - 1 */
    uint64_t u;              /* U32, U64: the same bits as i */
    double f;                /* F32 (rounded to one), F64 */
    const char *s;           /* STR, ENUM; ends with 0 */
    rsnet_dtype t;           /* DTYPE */
    const int64_t *is;       /* SHAPE, LIST_I32, LIST_I64, LIST_MAYBE_I64 */
    const double *fs;        /* LIST_F32, LIST_F64 */
    const rsnet_dtype *ts;   /* LIST_DTYPE */
    const rsnet_extents *es; /* LIST_SHAPE */
    const char *const *ss;   /* LIST_STR */
  } v;
} rsnet_value;

enum { RSNET_MAY_BE_NONE = 1, RSNET_HAS_LOW = 2, RSNET_HAS_HIGH = 4 };
typedef struct rsnet_attr {
  uint32_t struct_size;
  int32_t kind;
  const char *name;
  const char *doc;
  const char *dflt; /* as Python writes the value: "0.5", "(1, 2)", "True"; NULL: required */
  const char *const *choices; /* of RSNET_ENUM */
  int32_t n_choices;
  uint32_t flags;   /* RSNET_MAY_BE_NONE ... */
  double low, high; /* bounds, both allowed themselves */
} rsnet_attr;

/* ---- Operators ------------------------------------------------------------------------------- */

typedef struct rsnet_host rsnet_host;         /* the functions of rsnet */
typedef struct rsnet_ctx rsnet_ctx;           /* the circumstances of one callback */
typedef struct rsnet_registry rsnet_registry; /* what is being registered */

/* A callback. `user` is what stands beside it in the description. */
typedef rsnet_status (*rsnet_fn)(const rsnet_host *host, rsnet_ctx *ctx, void *user);
/* Makes something: stores a pointer, which the function that destroys it gets. */
typedef rsnet_status (*rsnet_make_fn)(const rsnet_host *host, rsnet_ctx *ctx, void *user,
                                      void **made);
typedef void (*rsnet_free_fn)(void *made);

enum {
  RSNET_OPTIONAL = 1, /* may be absent */
  RSNET_AT_LEAST = 2, /* `count` is a minimum */
  RSNET_STATE = 4,    /* input: an auxiliary state, which kernels modify */
  RSNET_HIDDEN = 8,   /* output: for the gradient only; hidden outputs stand last */
  RSNET_IGNORED = 16, /* input: only shape and dtype matter */
  RSNET_NO_GRAD = 32  /* input: a gradient rule need not bind a gradient, which is then zero */
};
typedef struct rsnet_arg {
  uint32_t struct_size;
  uint32_t flags;
  const char *name;
  const char *doc;
  int32_t count; /* arrays; 0 means 1 */
} rsnet_arg;

enum {
  RSNET_ELEMENTWISE = 1,      /* one shape, one dtype, elements independent of one another */
  RSNET_BACKWARD = 2,         /* a backward operator: outputs are like the forward node's inputs,
                               * attributes that both have are the forward node's; see node_attr */
  RSNET_NOT_DETERMINISTIC = 4, /* equal calls may differ: never merged, never computed again */
  RSNET_RANDOM = 8,           /* draws random numbers by host->random */
  RSNET_LONG = 16             /* a call may take long, or wait for another thread: never run on the
                                 thread that asks for it, nor in one operation with other nodes; as
                                 many run at once as the engine has threads. (Without it that holds
                                 for calls on more than 4,096 elements; in a graph, for those that
                                 can run at the same time as another one.) */
};
typedef struct rsnet_op {
  uint32_t struct_size;
  uint32_t flags;
  const char *name; /* nd.<name>, sym.<name> */
  const char *doc;
  const char *const *aliases;
  int32_t n_aliases;
  int32_t n_inputs, n_outputs, n_attrs;
  const rsnet_arg *inputs, *outputs;
  const rsnet_attr *attrs;
  const char *count_attr; /* NULL, or the attribute that counts the inputs, filled in by calls */
  void *user;
  /* Inference. Either `infer`: sets shape and dtype of every output from complete inputs. (It may
   * be asked about shapes or dtypes alone, the others being unknown, and answers RSNET_UNKNOWN if
   * it needs them.) Or `infer_shape` and `infer_type`, which learn in both directions from whatever
   * is known. None is needed with RSNET_ELEMENTWISE and RSNET_BACKWARD. */
  rsnet_fn infer, infer_shape, infer_type;
  rsnet_fn check;     /* fails if attributes do not go together; tried on the defaults, too */
  rsnet_fn names;     /* lists inputs and outputs by add_name, where they depend on attributes */
  rsnet_fn inplace;   /* proposes pairs by add_inplace */
  /* States temporary space by add_temp, for the memory plan, and random numbers by add_random. (The
   * shapes are known, the dtypes are not.) An operator with it may draw, and counts as one with
   * RSNET_NOT_DETERMINISTIC; `tmp_bytes` of a kernel leaves it deterministic. */
  rsnet_fn resources;
  rsnet_fn sbp;       /* adds signatures by add_sbp */
  /* What the library makes of the attributes, once for every set of them: args->parsed. */
  rsnet_make_fn parse;
  rsnet_free_fn free_parsed;
  /* What one node, or recorded call, keeps from run to run, backward included: args->state. Runs of
   * one node never overlap. */
  rsnet_make_fn create_state;
  rsnet_free_fn destroy_state;
} rsnet_op;

/* ---- Kernels --------------------------------------------------------------------------------- */

/* The condition of a kernel, a program in reverse Polish notation: each leaf pushes a truth value,
 * each connective replaces those on top. No program at all is true. */
enum {
  RSNET_M_TRUE = 1,
  RSNET_M_DEVICE = 2, /* number: RSNET_CPU, RSNET_GPU */
  RSNET_M_DTYPE = 3,  /* of array `index` of argument `name`: dtype */
  RSNET_M_NDIM = 4,   /* of array `index` of argument `name`: compare, number */
  RSNET_M_ATTR = 5,   /* attribute `name`: compare, text */
  RSNET_M_AND = 6,
  RSNET_M_OR = 7,
  RSNET_M_NOT = 8
};
enum { RSNET_EQ = 0, RSNET_NE, RSNET_LT, RSNET_LE, RSNET_GT, RSNET_GE };
typedef struct rsnet_match {
  int32_t op;
  int32_t compare;
  const char *name;
  int32_t index;
  rsnet_dtype dtype;
  int64_t number;
  const char *text;
} rsnet_match;

/* Write requests of outputs. */
enum { RSNET_REQ_NULL = 0, RSNET_REQ_WRITE = 1, RSNET_REQ_INPLACE = 2, RSNET_REQ_ADD = 3 };

enum { RSNET_IS_TRAIN = 1, RSNET_NEEDS_GRAD = 2 };
/* One call of a kernel. All tensors are row-major blocks, in the order of inputs and outputs. */
typedef struct rsnet_args {
  uint32_t struct_size;
  uint32_t flags; /* RSNET_IS_TRAIN ... */
  int32_t n_in, n_out, n_attrs;
  rsnet_device device;
  const rsnet_tensor *in;   /* must not be written, auxiliary states excepted */
  const rsnet_tensor *out;
  const uint8_t *req;       /* one for each output */
  const rsnet_value *attrs; /* in the order of declaration */
  void *tmp;                /* tmp_bytes of the kernel's temporary space; undefined contents */
  uint64_t tmp_bytes;
  void *stream; /* of the device: a cudaStream_t; NULL on the CPU */
  void *parsed, *state, *kernel_state, *user;
  const rsnet_host *host;
  rsnet_ctx *ctx;
} rsnet_args;

enum {
  RSNET_ALWAYS_COMPUTE = 1, /* run although all outputs are empty */
  RSNET_SKIPS_NULL = 2,     /* leaves outputs with RSNET_REQ_NULL alone: they have no memory */
  RSNET_ACCUMULATES = 4     /* handles RSNET_REQ_ADD itself; otherwise it never sees it */
};
typedef struct rsnet_kernel {
  uint32_t struct_size;
  uint32_t flags;
  const char *op;
  const char *name; /* for messages; may be NULL */
  const rsnet_match *match;
  int32_t n_match;
  int32_t priority; /* of all kernels that match the one at the highest runs; two are an error */
  void *user;
  rsnet_status (*compute)(const rsnet_args *args);
  rsnet_make_fn tmp_bytes; /* stores the number of bytes, as (void *)(uintptr_t)n */
  rsnet_fn inplace;        /* proposes pairs; taken where all kernels propose them */
  rsnet_make_fn create_state;
  rsnet_free_fn destroy_state;
} rsnet_kernel;

/* ---- Gradients ------------------------------------------------------------------------------- */

enum {
  RSNET_GRAD_RULE = 0,     /* `rule` composes operators and binds a gradient to every input */
  RSNET_GRAD_BACKWARD = 1, /* operator `backward` over what `deps` lists by add_dep */
  RSNET_GRAD_ZERO = 2      /* all gradients are zero */
};
enum { RSNET_OUT_GRAD = 0, RSNET_IN_DATA = 1, RSNET_OUT_DATA = 2 };
typedef struct rsnet_grad {
  uint32_t struct_size;
  int32_t kind;
  const char *op;
  const char *backward;
  rsnet_fn deps, rule;
  void *user;
} rsnet_grad;

/* Handles of a gradient rule; 0 is none: using it fails for the reason for which there is none. */
typedef uint64_t rsnet_node;
typedef uint64_t rsnet_entry;

/* ---- The functions of rsnet ------------------------------------------------------------------ */

enum { RSNET_INPUT = 0, RSNET_OUTPUT = 1 };
typedef rsnet_status (*rsnet_range_fn)(void *data, int64_t begin, int64_t end);

struct rsnet_host {
  uint32_t struct_size;
  uint32_t abi;

  /* Registration. */
  rsnet_status (*register_op)(rsnet_registry *, const rsnet_op *);
  rsnet_status (*register_kernel)(rsnet_registry *, const rsnet_kernel *);
  rsnet_status (*register_grad)(rsnet_registry *, const rsnet_grad *);
  /* The text of a failure of rsnet_plugin_register itself. */
  void (*refuse)(rsnet_registry *, const char *text);

  /* Any callback. The text of its failure; the last one counts. */
  void (*fail)(rsnet_ctx *, const char *text);
  /* A line on the standard error stream, with the name of the operator. */
  void (*log)(rsnet_ctx *, const char *text);

  /* The operator of the callback. Attributes by number or by name; NULL and a failure text if there
   * is none. */
  const rsnet_value *(*attr)(rsnet_ctx *, int32_t number);
  const rsnet_value *(*attr_by_name)(rsnet_ctx *, const char *name);
  void *(*parsed)(rsnet_ctx *); /* what `parse` of the operator made; NULL without one */
  /* Arrays on a side (RSNET_INPUT, RSNET_OUTPUT); of one argument (0 if it is absent); the number
   * of array i of an argument among all, -1 if there is none. */
  int32_t (*n_arrays)(rsnet_ctx *, int32_t side);
  int32_t (*count)(rsnet_ctx *, int32_t side, const char *arg);
  int32_t (*find)(rsnet_ctx *, int32_t side, const char *arg, int32_t i);

  /* Inference, create_state, tmp_bytes, resources and sbp: what is known of an array; NULL and a
   * failure text if there is no such array. */
  const rsnet_tensor *(*tensor)(rsnet_ctx *, int32_t side, int32_t number);
  /* Inference, and nowhere else: fails if it contradicts what is known. */
  rsnet_status (*set_shape)(rsnet_ctx *, int32_t side, int32_t number, int32_t ndim,
                            const int64_t *dims);
  rsnet_status (*set_dtype)(rsnet_ctx *, int32_t side, int32_t number, rsnet_dtype);

  /* What an operator says of itself, in the callbacks of these names (add_temp and add_random in
   * `resources`). In any other callback they fail. */
  rsnet_status (*add_name)(rsnet_ctx *, int32_t side, const char *name, uint32_t flags);
  rsnet_status (*add_inplace)(rsnet_ctx *, int32_t input, int32_t output, int32_t same_bytes);
  rsnet_status (*add_temp)(rsnet_ctx *, uint64_t bytes);
  rsnet_status (*add_random)(rsnet_ctx *); /* calls of such an operator are never merged */
  rsnet_status (*add_sbp)(rsnet_ctx *, const char *signature); /* "in:S(0) out:S(0)" */

  /* Kernels. Scratch memory, aligned to 64 bytes, until the call ends; NULL and a failure text if
   * there is not so much. */
  void *(*temp)(rsnet_ctx *, uint64_t bytes);
  /* n random words of 64 bits, the numbers `first` and up of this call (RSNET_RANDOM,
   * add_random). */
  rsnet_status (*random)(rsnet_ctx *, uint64_t first, uint64_t n, uint64_t *words);
  /* Calls fn on parts of 0..n, each of `grain` items (the last may have fewer), on the threads of
   * the engine and this one. Returns the first failure. On a thread that is not the engine's, all
   * parts run one after another. */
  rsnet_status (*parallel_for)(rsnet_ctx *, int64_t n, int64_t grain, rsnet_range_fn fn,
                               void *data);

  /* Gradients. The name of the node; may be empty. */
  const char *(*node_name)(rsnet_ctx *);
  /* Is the gradient of an input wanted; does a gradient arrive at an output? */
  int32_t (*wants_grad)(rsnet_ctx *, int32_t input);
  int32_t (*has_out_grad)(rsnet_ctx *, int32_t output);
  /* A value of the node: source is RSNET_OUT_GRAD (zeros if none arrives) ... */
  rsnet_entry (*entry)(rsnet_ctx *, int32_t source, int32_t number);
  /* A new node of the gradient. It is made only if a bound gradient needs it. */
  rsnet_node (*node)(rsnet_ctx *, const char *op, const char *name);
  /* The next array of an input argument. Arrays without one (arg is NULL) are shared out among the
   * arguments that none of the node's arrays names, as in a call. A backward operator takes all in
   * order. */
  rsnet_status (*node_input)(rsnet_ctx *, rsnet_node, const char *arg, rsnet_entry);
  /* An attribute as Python writes it. On a backward operator it stands in place of the forward
   * node's; one that only the forward operator has is ignored there. */
  rsnet_status (*node_attr)(rsnet_ctx *, rsnet_node, const char *name, const char *text);
  /* Array i of an output argument, or output i if arg is NULL. */
  rsnet_entry (*node_output)(rsnet_ctx *, rsnet_node, const char *arg, int32_t i);
  /* The gradient of an input. */
  rsnet_status (*bind_grad)(rsnet_ctx *, int32_t input, rsnet_entry);
  /* RSNET_GRAD_BACKWARD: what the backward operator reads, in the order of its inputs. */
  rsnet_status (*add_dep)(rsnet_ctx *, int32_t source, int32_t number);
};

/* ---- What a library exports ------------------------------------------------------------------ */

extern RSNET_EXPORT const uint32_t rsnet_plugin_abi;
RSNET_EXPORT rsnet_status rsnet_plugin_register(const rsnet_host *host, rsnet_registry *registry);

/* The first byte of a tensor's data. */
static inline void *rsnet_data(const rsnet_tensor *t) {
  return (char *)t->data + t->byte_offset;
}

/* Number of elements. */
static inline int64_t rsnet_size(const rsnet_tensor *t) {
  int64_t n = 1;
  int32_t i;
  for (i = 0; i < t->ndim; ++i) n *= t->shape[i];
  return n;
}

static inline int rsnet_same_dtype(rsnet_dtype a, rsnet_dtype b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

#ifdef __cplusplus
} /* extern "C" */
#endif

/* Every C++ library exports this function, which rsnet finds by its name: it calls every callback
 * through it, so that no exception leaves the library. A library that is linked with libstdc++ or
 * libc++ is refused without it: name it in a version script, and compile with exceptions. */
#if defined(__cplusplus) && (defined(__cpp_exceptions) || defined(__EXCEPTIONS))
#include <exception>
extern "C" __attribute__((weak, used)) RSNET_EXPORT rsnet_status rsnet_plugin_guard(
    rsnet_status (*call)(void *), void *data, void (*fail)(void *, const char *)) {
  try {
    return call(data);
  } catch (const std::exception &e) {
    fail(data, e.what());
  } catch (...) {
    fail(data, "an exception that is not a std::exception");
  }
  return RSNET_INTERNAL;
}
#endif

#endif /* RSNET_PLUGIN_H */
