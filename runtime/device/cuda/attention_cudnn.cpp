/* The plugin for cuDNN's attention: see attention_library.h. Graphs are made by NVIDIA's cudnn-frontend, a
 * library of headers, which finds cuDNN when it is called. */
#include "runtime/device/cuda/attention_library.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

namespace fe = cudnn_frontend;

namespace cudnn_frontend
{
void *cudnn_dlhandle = nullptr; /* asked for by the headers */
}

struct attention_library_plan {
        attention_shape shape;
        fe::graph::Graph graph;
        int64_t workspace = 0;
        std::string failure;
};

namespace
{
/* Numbers of tensors in graphs. */
enum uid : int64_t { Q = 1, K, V, Y, LSE, DY, DQ, DK, DV };

cudnnHandle_t handle;

void write(char why[ATTENTION_WHY], const std::string &sentence)
{
        std::snprintf(why, ATTENTION_WHY, "%s", sentence.c_str());
        for (char *c = why; *c; c++)
                if (*c == '\n')
                        *c = ' ';
}

/* ---- graphs ---- */

/* `count` heads of rows of `row` elements. */
fe::graph::Tensor_attributes heads(const attention_shape &of, uid number, int64_t count, int64_t row)
{
        return fe::graph::Tensor_attributes()
                .set_uid(number)
                .set_dim({of.sequences, count, of.T, of.hs})
                .set_stride({of.T * row, of.hs, row, 1});
}

fe::graph::Tensor_attributes logarithms(const attention_shape &of)
{
        return fe::graph::Tensor_attributes()
                .set_uid(LSE)
                .set_dim({of.sequences, of.heads, of.T, 1})
                .set_stride({of.heads * of.T, of.T, 1, 1})
                .set_data_type(fe::DataType_t::FLOAT);
}

void put_out(const std::shared_ptr<fe::graph::Tensor_attributes> &tensor,
             const fe::graph::Tensor_attributes &as)
{
        tensor->set_output(true)
                .set_uid(as.get_uid())
                .set_dim(as.get_dim())
                .set_stride(as.get_stride())
                .set_data_type(as.get_data_type());
}

/* What both directions say: query t sees the keys up to t. */
template <class attributes> attributes causal(const attention_shape &of)
{
        attributes with;
        with.set_attn_scale(of.scale)
                .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                .set_diagonal_band_right_bound(0);
        return with;
}

void describe(fe::graph::Graph &graph, const attention_shape &of)
{
        const int64_t row = (of.heads + 2 * of.kv_heads) * of.hs, narrow = of.heads * of.hs;
        graph.set_io_data_type(of.bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
                .set_intermediate_data_type(fe::DataType_t::FLOAT)
                .set_compute_data_type(fe::DataType_t::FLOAT);
        auto q = graph.tensor(heads(of, Q, of.heads, row)), k = graph.tensor(heads(of, K, of.kv_heads, row)),
             v = graph.tensor(heads(of, V, of.kv_heads, row));
        if (!of.backward) {
                auto with = causal<fe::graph::SDPA_attributes>(of);
                with.set_generate_stats(true);
                auto [y, lse] = graph.sdpa(q, k, v, with);
                put_out(y, heads(of, Y, of.heads, narrow));
                put_out(lse, logarithms(of));
                return;
        }
        auto with = causal<fe::graph::SDPA_backward_attributes>(of);
        with.set_deterministic_algorithm(true);
        auto y = graph.tensor(heads(of, Y, of.heads, narrow)),
             dy = graph.tensor(heads(of, DY, of.heads, narrow)), lse = graph.tensor(logarithms(of));
        auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, y, dy, lse, with);
        put_out(dq, heads(of, DQ, of.heads, row));
        put_out(dk, heads(of, DK, of.kv_heads, row));
        put_out(dv, heads(of, DV, of.kv_heads, row));
}

fe::error_t build(attention_library_plan &plan)
{
        fe::graph::Graph &graph = plan.graph;
        describe(graph, plan.shape);
        fe::error_t error = graph.validate();
        if (error.is_good())
                error = graph.build_operation_graph(handle);
        if (error.is_good())
                error = graph.create_execution_plans({fe::HeurMode_t::A});
        if (error.is_good())
                error = graph.check_support();
        if (error.is_good())
                error = graph.build_plans();
        return error.is_good() ? graph.get_workspace_size(plan.workspace) : error;
}

/* ---- the library's functions ---- */

attention_library_plan *make_plan(const attention_shape *shape, char why[ATTENTION_WHY])
try {
        auto plan = std::make_unique<attention_library_plan>();
        plan->shape = *shape;
        fe::error_t error = build(*plan);
        if (error.is_good())
                return plan.release();
        write(why, error.get_message());
        return nullptr;
} catch (const std::exception &e) {
        write(why, e.what());
        return nullptr;
}

int64_t workspace_bytes(const attention_library_plan *plan)
{
        return plan->workspace;
}

/* Queries, keys and values of rows that have all three. */
void add_parts(std::unordered_map<int64_t, void *> &at, const attention_shape &of, uid q, uid k, uid v,
               void *rows)
{
        uint16_t *first = (uint16_t *)rows;
        at[q] = first;
        at[k] = first + of.heads * of.hs;
        at[v] = first + (of.heads + of.kv_heads) * of.hs;
}

std::unordered_map<int64_t, void *> operands(const attention_shape &of, void *const p[])
{
        std::unordered_map<int64_t, void *> at;
        if (!of.backward) {
                at[Y] = p[0];
                at[LSE] = p[1];
                add_parts(at, of, Q, K, V, p[2]);
                return at;
        }
        add_parts(at, of, DQ, DK, DV, p[0]);
        at[DY] = p[2];
        at[Y] = p[3];
        at[LSE] = p[4];
        add_parts(at, of, Q, K, V, p[5]);
        return at;
}

const char *run(attention_library_plan *plan, cudaStream_t stream, void *const p[], void *workspace)
try {
        auto at = operands(plan->shape, p);
        const cudnnStatus_t status = fe::detail::set_stream(handle, stream);
        if (status != CUDNN_STATUS_SUCCESS)
                return "cuDNN does not take the stream";
        fe::error_t error = plan->graph.execute(handle, at, workspace);
        if (error.is_good())
                return nullptr;
        plan->failure = error.get_message();
        return plan->failure.c_str();
} catch (const std::exception &e) {
        plan->failure = e.what();
        return plan->failure.c_str();
}

void free_plan(attention_library_plan *plan)
{
        delete plan;
}

attention_library library = {"", make_plan, workspace_bytes, run, free_plan};
} // namespace

extern "C" __attribute__((visibility("default"))) const attention_library *
attention_library_open(char why[ATTENTION_WHY])
try {
        if (handle)
                return &library;
        /* The runtime of the toolkit that this was built with, where there are several; and, where cuDNN has
         * one (9.25, Hopper), the backward that needs less memory for what does not fit ours. */
        setenv("CUDNN_FRONTEND_CUDART_LIB_NAME",
               ("libcudart.so." + std::to_string(CUDART_VERSION / 1000)).c_str(), 0);
        setenv("CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT", std::to_string(ATTENTION_WORKSPACE_BYTES).c_str(),
               0);
        int gpu;
        if (fe::detail::cuda_get_device(&gpu) != cudaSuccess) { /* throws where the runtime is not there */
                write(why, "the CUDA runtime does not say which GPU is current");
                return nullptr;
        }
        fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
        if (!fe::cudnn_dlhandle) {
                write(why, std::string("cuDNN 9 does not load: ") + dlerror());
                return nullptr;
        }
        const cudnnStatus_t status = fe::detail::create_handle(&handle);
        if (status != CUDNN_STATUS_SUCCESS) {
                handle = nullptr;
                write(why, std::string("cuDNN does not start: ") + fe::detail::get_error_string(status));
                return nullptr;
        }
        const size_t version = fe::detail::get_backend_version();
        std::snprintf(library.name, sizeof library.name, "cuDNN %zu.%zu.%zu", version / 10000,
                      version / 100 % 100, version % 100);
        return &library;
} catch (const std::exception &e) {
        handle = nullptr;
        write(why, e.what());
        return nullptr;
}
