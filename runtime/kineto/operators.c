#include "runtime/kineto/operators.h"

#include <string.h>

/* clang-format off */
static const struct operator_row rows[] = {
        {"aten::mm", OPERATOR_PRODUCT, KERNEL_MATMUL, 0, 1},
        {"aten::bmm", OPERATOR_PRODUCT, KERNEL_MATMUL, 0, 1},
        {"aten::addmm", OPERATOR_PRODUCT, KERNEL_MATMUL_BIAS, 1, 2},
        {"aten::addmm_", OPERATOR_PRODUCT, KERNEL_MATMUL, 1, 2},
        {"aten::_addmm_activation", OPERATOR_PRODUCT, KERNEL_MATMUL_BIAS_GELU, 1, 2},
        {"aten::baddbmm", OPERATOR_PRODUCT, KERNEL_MATMUL, 1, 2},
        {"aten::_scaled_mm", OPERATOR_PRODUCT, KERNEL_MATMUL, 0, 1},
        {"aten::_scaled_dot_product_*_backward", OPERATOR_ATTENTION, KERNEL_ATTENTION_BACKWARD, 0, 0},
        {"aten::_scaled_dot_product_*", OPERATOR_ATTENTION, KERNEL_ATTENTION, 0, 0},
        {"aten::_flash_attention_backward", OPERATOR_ATTENTION, KERNEL_ATTENTION_BACKWARD, 0, 0},
        {"aten::_flash_attention_forward", OPERATOR_ATTENTION, KERNEL_ATTENTION, 0, 0},
        {"aten::_efficient_attention_backward", OPERATOR_ATTENTION, KERNEL_ATTENTION_BACKWARD, 0, 0},
        {"aten::_efficient_attention_forward", OPERATOR_ATTENTION, KERNEL_ATTENTION, 0, 0},
        {"flash_attn::_flash_attn_*backward", OPERATOR_ATTENTION, KERNEL_ATTENTION_BACKWARD, 0, 0},
        {"flash_attn::_flash_attn_*", OPERATOR_ATTENTION, KERNEL_ATTENTION, 0, 0},
        {"aten::_softmax", OPERATOR_SOFTMAX, KERNEL_SOFTMAX, 0, 0},
        {"aten::_softmax_backward_data", OPERATOR_SOFTMAX, KERNEL_SOFTMAX_BACKWARD, 0, 0},
        {"aten::_safe_softmax", OPERATOR_SOFTMAX, KERNEL_SOFTMAX, 0, 0},
        {"aten::native_layer_norm", OPERATOR_NORM, KERNEL_LAYERNORM, 0, 0},
        {"aten::native_layer_norm_backward", OPERATOR_NORM, KERNEL_LAYERNORM_BACKWARD, 0, 0},
        {"aten::_fused_rms_norm", OPERATOR_NORM, KERNEL_RMSNORM, 0, 0},
        {"aten::_fused_rms_norm_backward", OPERATOR_NORM, KERNEL_RMSNORM_BACKWARD, 0, 0},
        {"aten::gelu", OPERATOR_ACTIVATION, KERNEL_BIAS_GELU, 0, 0},
        {"aten::gelu_backward", OPERATOR_ACTIVATION, KERNEL_GELU_BACKWARD, 0, 0},
        {"aten::silu", OPERATOR_ACTIVATION, KERNEL_SWIGLU, 0, 0},
        {"aten::silu_backward", OPERATOR_ACTIVATION, KERNEL_SWIGLU_BACKWARD, 0, 0},
        {"aten::relu", OPERATOR_ACTIVATION, KERNEL_SQUARED_RELU, 0, 0},
        {"aten::threshold_backward", OPERATOR_ACTIVATION, KERNEL_SQUARED_RELU_BACKWARD, 0, 0},
        {"aten::tanh", OPERATOR_ACTIVATION, -1, 0, 0},
        {"aten::tanh_backward", OPERATOR_ACTIVATION, -1, 0, 0},
        {"aten::sigmoid", OPERATOR_ACTIVATION, -1, 0, 0},
        {"aten::sigmoid_backward", OPERATOR_ACTIVATION, -1, 0, 0},
        {"aten::embedding", OPERATOR_EMBEDDING, KERNEL_EMBEDDING, 0, 0},
        {"aten::embedding_dense_backward", OPERATOR_EMBEDDING, KERNEL_EMBEDDING_BACKWARD, 0, 0},
        {"aten::_log_softmax", OPERATOR_LOSS, KERNEL_CROSS_ENTROPY, 0, 0},
        {"aten::_log_softmax_backward_data", OPERATOR_LOSS, KERNEL_CROSS_ENTROPY, 0, 0},
        {"aten::nll_loss_forward", OPERATOR_LOSS, KERNEL_CROSS_ENTROPY, 0, 0},
        {"aten::nll_loss_backward", OPERATOR_LOSS, KERNEL_CROSS_ENTROPY, 0, 0},
        {"aten::nll_loss2d_forward", OPERATOR_LOSS, KERNEL_CROSS_ENTROPY, 0, 0},
        {"aten::nll_loss2d_backward", OPERATOR_LOSS, KERNEL_CROSS_ENTROPY, 0, 0},
        {"aten::native_dropout*", OPERATOR_DROPOUT, -1, 0, 0},
        {"aten::_fused_dropout", OPERATOR_DROPOUT, -1, 0, 0},
        {"aten::bernoulli_", OPERATOR_DROPOUT, -1, 0, 0},
        {"aten::add", OPERATOR_ELEMENTWISE, KERNEL_RESIDUAL, 0, 0},
        {"aten::add_", OPERATOR_ELEMENTWISE, KERNEL_RESIDUAL, 0, 0},
        {"aten::mul", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::mul_", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::sub", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::sub_", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::rsub", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::div", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::div_", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::neg", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::pow", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::sqrt", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::rsqrt", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::exp", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::log", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::cos", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::sin", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::reciprocal", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::clamp*", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::where", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::masked_fill_", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::tril*", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::triu*", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::eq", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::ne", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::gt", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::ge", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::lt", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::le", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::lerp_", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::addcmul_", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::addcdiv_", OPERATOR_ELEMENTWISE, -1, 0, 0},
        {"aten::copy_", OPERATOR_COPY, -1, 0, 0},
        {"aten::cat", OPERATOR_COPY, -1, 0, 0},
        {"aten::index", OPERATOR_COPY, -1, 0, 0},
        {"aten::index_select", OPERATOR_COPY, -1, 0, 0},
        {"aten::gather", OPERATOR_COPY, -1, 0, 0},
        {"aten::_index_put_impl_", OPERATOR_COPY, -1, 0, 0},
        {"aten::sum", OPERATOR_REDUCTION, KERNEL_BIAS_BACKWARD, 0, 0},
        {"aten::mean", OPERATOR_REDUCTION, -1, 0, 0},
        {"aten::max", OPERATOR_REDUCTION, -1, 0, 0},
        {"aten::norm", OPERATOR_REDUCTION, KERNEL_SQUARED_NORM, 0, 0},
        {"aten::linalg_vector_norm", OPERATOR_REDUCTION, KERNEL_SQUARED_NORM, 0, 0},
        {"aten::_foreach_norm", OPERATOR_REDUCTION, KERNEL_SQUARED_NORM, 0, 0},
        {"aten::fill_", OPERATOR_FILL, -1, 0, 0},
        {"aten::zero_", OPERATOR_FILL, KERNEL_CLEAR, 0, 0},
        {"aten::arange", OPERATOR_FILL, -1, 0, 0},
        {"aten::random_", OPERATOR_FILL, -1, 0, 0},
        {"aten::normal_", OPERATOR_FILL, -1, 0, 0},
        {"aten::uniform_", OPERATOR_FILL, -1, 0, 0},
        {"aten::_fused_adam*", OPERATOR_OPTIMIZER, KERNEL_ADAMW, 0, 0},
        {"aten::_foreach_*", OPERATOR_OPTIMIZER, KERNEL_ADAMW, 0, 0},
        {"aten::_amp_foreach_*", OPERATOR_OPTIMIZER, KERNEL_UNSCALE, 0, 0},
        {"Optimizer.step#*", OPERATOR_OPTIMIZER, KERNEL_ADAMW, 0, 0},
        {"Optimizer.zero_grad#*", OPERATOR_OPTIMIZER, KERNEL_CLEAR, 0, 0},
        {"c10d::*", OPERATOR_COLLECTIVE, -1, 0, 0},
        {"nccl:*", OPERATOR_COLLECTIVE, -1, 0, 0},
        {"gloo:*", OPERATOR_COLLECTIVE, -1, 0, 0},
        {"record_param_comms", OPERATOR_COLLECTIVE, -1, 0, 0},
        {"torch.distributed.ddp.reducer::*", OPERATOR_COLLECTIVE, -1, 0, 0},
        {"aten::_convolution", OPERATOR_FOREIGN, -1, 0, 0},
        {"aten::cudnn_convolution*", OPERATOR_FOREIGN, -1, 0, 0},
        {"aten::miopen_convolution*", OPERATOR_FOREIGN, -1, 0, 0},
        {"aten::convolution_backward*", OPERATOR_FOREIGN, -1, 0, 0},
        {"aten::*batch_norm*", OPERATOR_FOREIGN, -1, 0, 0},
        {"aten::*pool2d*", OPERATOR_FOREIGN, -1, 0, 0},
        {"aten::_embedding_bag*", OPERATOR_FOREIGN, -1, 0, 0},
        {"fbgemm::*", OPERATOR_FOREIGN, -1, 0, 0},
        {"aten::mse_loss*", OPERATOR_FOREIGN, -1, 0, 0},
        {"aten::binary_cross_entropy*", OPERATOR_FOREIGN, -1, 0, 0},
        {"aten::empty*", OPERATOR_HOST, -1, 0, 0},
        {"aten::as_strided", OPERATOR_HOST, -1, 0, 0},
        {"aten::view*", OPERATOR_HOST, -1, 0, 0},
        {"aten::_unsafe_view", OPERATOR_HOST, -1, 0, 0},
        {"aten::_reshape_alias", OPERATOR_HOST, -1, 0, 0},
        {"aten::resize_", OPERATOR_HOST, -1, 0, 0},
        {"aten::resolve_*", OPERATOR_HOST, -1, 0, 0},
        {"aten::expand", OPERATOR_HOST, -1, 0, 0},
        {"aten::transpose", OPERATOR_HOST, -1, 0, 0},
        {"aten::permute", OPERATOR_HOST, -1, 0, 0},
        {"aten::t", OPERATOR_HOST, -1, 0, 0},
        {"aten::slice", OPERATOR_HOST, -1, 0, 0},
        {"aten::select", OPERATOR_HOST, -1, 0, 0},
        {"aten::split*", OPERATOR_HOST, -1, 0, 0},
        {"aten::narrow", OPERATOR_HOST, -1, 0, 0},
        {"aten::chunk", OPERATOR_HOST, -1, 0, 0},
        {"aten::unsqueeze*", OPERATOR_HOST, -1, 0, 0},
        {"aten::squeeze*", OPERATOR_HOST, -1, 0, 0},
        {"aten::detach*", OPERATOR_HOST, -1, 0, 0},
        {"detach*", OPERATOR_HOST, -1, 0, 0},
        {"aten::alias", OPERATOR_HOST, -1, 0, 0},
        {"aten::set_", OPERATOR_HOST, -1, 0, 0},
        {"aten::_local_scalar_dense", OPERATOR_HOST, -1, 0, 0},
        {"aten::lift_fresh", OPERATOR_HOST, -1, 0, 0},
        {"aten::is_*", OPERATOR_HOST, -1, 0, 0},
        {"torch::autograd::*", OPERATOR_HOST, -1, 0, 0},
};
/* clang-format on */

/* Whether a name is like a row's, in which each star stands for any letters. */
static bool is_like(const char *pattern, const char *name)
{
        while (*pattern && *pattern != '*') {
                if (*pattern++ != *name++)
                        return false;
        }
        if (!*pattern)
                return !*name;
        for (; !is_like(pattern + 1, name); name++)
                if (!*name)
                        return false;
        return true;
}

const struct operator_row *operator_of(const char *name)
{
        static const struct operator_row unknown = {"", OPERATOR_UNKNOWN, -1, 0, 0};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
                if (is_like(rows[i].name, name))
                        return &rows[i];
        return &unknown;
}

enum operator_class operator_class_of(enum kernel_kind kind, bool batched)
{
        if (kind == KERNEL_MATMUL && batched)
                return OPERATOR_ATTENTION;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
                if (rows[i].kernel == (int)kind)
                        return rows[i].class;
        switch (kind) { /* what PyTorch has no operator for */
        case KERNEL_CONTEXT_ATTENTION:
        case KERNEL_CONTEXT_ATTENTION_BACKWARD:
                return OPERATOR_ATTENTION;
        case KERNEL_HEAD_RMSNORM:
        case KERNEL_HEAD_RMSNORM_BACKWARD:
                return OPERATOR_NORM;
        case KERNEL_WEIGHTED_SWIGLU:
        case KERNEL_WEIGHTED_SWIGLU_BACKWARD:
                return OPERATOR_ACTIVATION;
        case KERNEL_CROSS_ENTROPY_LOSS:
                return OPERATOR_LOSS;
        default:
                return kind < KERNEL_KINDS && kernel_descriptor(kind)->products > 0 ? OPERATOR_PRODUCT
                                                                                    : OPERATOR_ELEMENTWISE;
        }
}

const char *operator_class_name(enum operator_class class)
{
        static const char *const names[OPERATOR_CLASSES] = {
                [OPERATOR_PRODUCT] = "products",
                [OPERATOR_ATTENTION] = "attention",
                [OPERATOR_SOFTMAX] = "softmax",
                [OPERATOR_NORM] = "norms",
                [OPERATOR_ACTIVATION] = "activations",
                [OPERATOR_EMBEDDING] = "embeddings",
                [OPERATOR_LOSS] = "loss",
                [OPERATOR_DROPOUT] = "dropout",
                [OPERATOR_ELEMENTWISE] = "elementwise",
                [OPERATOR_COPY] = "copies",
                [OPERATOR_REDUCTION] = "reductions",
                [OPERATOR_FILL] = "fills",
                [OPERATOR_OPTIMIZER] = "optimizer",
                [OPERATOR_COLLECTIVE] = "collectives",
                [OPERATOR_FOREIGN] = "no kernel of ours",
                [OPERATOR_HOST] = "views, allocations",
                [OPERATOR_UNKNOWN] = "not known",
        };
        return names[class];
}

struct kernel operator_product(const struct kineto *trace, const struct kineto_event *event)
{
        const struct operator_row *row = operator_of(event->name);
        const struct kineto_input a = kineto_input(trace, event, row->left),
                                  b = kineto_input(trace, event, row->right);
        struct kernel product = {.kind = KERNEL_MATMUL,
                                 .dtype = (unsigned char)(event->dtype > 0 ? event->dtype : DTYPE_FP32)};
        if (a.axes < 2 || b.axes != a.axes || a.axes > 3)
                return product;
        product.batch = a.axes == 3 ? a.extent[0] : 1;
        product.m = a.extent[a.axes - 2];
        product.k = a.extent[a.axes - 1];
        product.n = b.extent[b.axes - 1];
        return product;
}
