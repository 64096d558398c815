/* NCCL among processes of one machine: what the members of a group bring and take goes through memory that
 * they share, piece by piece. A collective is work on its stream that waits for the other members and not for
 * the host, as NCCL's kernels do. Sums are made in fp32 (double in double) over the members in order, and
 * rounded once. */
#include "tests/emulated/nccl.h"
#include "tests/emulated/bf16.hpp"
#include "tests/emulated/fp16.hpp"
#include "tests/emulated/runtime.hpp"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace
{

enum { PIECE_BYTES = 1 << 16, MAX_MEMBERS = 16 };

/* Pieces are counted from the group's beginning: how many each member has brought, and has taken of all. */
struct shared {
        std::atomic<int> joined;
        std::atomic<long> brought[MAX_MEMBERS], taken[MAX_MEMBERS];
        std::atomic<long> sent[MAX_MEMBERS][MAX_MEMBERS], received[MAX_MEMBERS][MAX_MEMBERS];
        /* [members] of collectives, then [members x members] from the one to the other */
        alignas(64) unsigned char pieces[][PIECE_BYTES];
};

} // namespace

struct ncclComm {
        shared *memory;
        size_t bytes;
        int members, index;
        long pieces; /* that the collectives so far consist of */
};

static size_t shared_bytes(int members)
{
        return sizeof(shared) + (size_t)(members + members * members) * PIECE_BYTES;
}

namespace
{

struct collective {
        ncclComm_t comm = nullptr;
        const unsigned char *from = nullptr; /* this member brings nothing */
        unsigned char *to = nullptr;         /* it takes nothing */
        size_t bytes = 0;                    /* that a member brings */
        ncclDataType_t type = ncclFloat32;
        int of = -1;               /* the only member whose bytes are taken; -1: those of all */
        bool sums = false;         /* all are added up; else each has a place of its own in `to` */
        size_t keep = 0, kept = 0; /* sums: of the result `kept` bytes from `keep` on go to `to` */
        size_t at = 0;             /* how far it is */
        long piece = 0;            /* the number of the next one */
        bool brought = false;      /* that one */
};

template <class T, class sum> void add_up(unsigned char *to, const shared *memory, int members, size_t bytes)
{
        for (size_t i = 0; i < bytes / sizeof(T); i++) {
                sum all = 0;
                for (int m = 0; m < members; m++)
                        all += (sum)((const T *)memory->pieces[m])[i];
                ((T *)to)[i] = T(all);
        }
}

size_t size_of(ncclDataType_t type)
{
        return type == ncclFloat64                        ? 8
               : type == ncclFloat32 || type == ncclInt32 ? 4
               : type == ncclChar                         ? 1
                                                          : 2;
}

struct half_of_float : __half {
        half_of_float(float x) : __half(__float2half(x))
        {
        }
};
struct bf16_of_float : __nv_bfloat16 {
        bf16_of_float(float x) : __nv_bfloat16(__float2bfloat16(x))
        {
        }
};

void take_sums(const collective &c, size_t bytes)
{
        alignas(64) static unsigned char sums[PIECE_BYTES];
        const shared *memory = c.comm->memory;
        const int members = c.comm->members;
        switch (c.type) {
        case ncclFloat64:
                add_up<double, double>(sums, memory, members, bytes);
                break;
        case ncclFloat32:
                add_up<float, float>(sums, memory, members, bytes);
                break;
        case ncclFloat16:
                add_up<half_of_float, float>(sums, memory, members, bytes);
                break;
        default:
                add_up<bf16_of_float, float>(sums, memory, members, bytes);
        }
        const size_t begin = std::max(c.at, c.keep), end = std::min(c.at + bytes, c.keep + c.kept);
        if (begin < end)
                memcpy(c.to + (begin - c.keep), sums + (begin - c.at), end - begin);
}

void take_places(const collective &c, size_t bytes)
{
        for (int m = 0; m < c.comm->members; m++)
                if (c.of < 0)
                        memcpy(c.to + m * c.bytes + c.at, c.comm->memory->pieces[m], bytes);
                else if (c.of == m)
                        memcpy(c.to + c.at, c.comm->memory->pieces[m], bytes);
}

bool have_all(const std::atomic<long> *counts, int members, long count)
{
        for (int m = 0; m < members; m++)
                if (counts[m] < count)
                        return false;
        return true;
}

/* One more piece, or as much of it as the other members allow. */
bool step(collective &c)
{
        shared *memory = c.comm->memory;
        const size_t bytes = std::min(c.bytes - c.at, (size_t)PIECE_BYTES);
        if (!c.brought) {
                if (!have_all(memory->taken, c.comm->members, c.piece))
                        return false;
                if (c.from)
                        memcpy(memory->pieces[c.comm->index], c.from + c.at, bytes);
                memory->brought[c.comm->index] = c.piece + 1;
                c.brought = true;
        }
        if (!have_all(memory->brought, c.comm->members, c.piece + 1))
                return false;
        if (c.to && c.sums)
                take_sums(c, bytes);
        else if (c.to)
                take_places(c, bytes);
        memory->taken[c.comm->index] = ++c.piece;
        c.brought = false;
        c.at += bytes;
        return true;
}

/* What goes to another member, or comes from it. */
struct transfer {
        int peer;
        const unsigned char *from;
        unsigned char *to;
        size_t bytes, at;
};

/* Moves what there is room for, or what has come; false if that was nothing. */
bool move(ncclComm_t comm, transfer &t)
{
        shared *memory = comm->memory;
        const int from = t.from ? comm->index : t.peer, to = t.from ? t.peer : comm->index;
        std::atomic<long> &sent = memory->sent[from][to], &received = memory->received[from][to];
        unsigned char *piece = memory->pieces[comm->members + from * comm->members + to];
        const size_t bytes = std::min(t.bytes - t.at, (size_t)PIECE_BYTES);
        if (t.from ? sent > received : sent == received)
                return false;
        if (t.from)
                memcpy(piece, t.from + t.at, bytes);
        else
                memcpy(t.to + t.at, piece, bytes);
        (t.from ? sent : received)++;
        t.at += bytes;
        return true;
}

/* All at once, but one after another between two members in the same direction. */
bool move_all(ncclComm_t comm, std::vector<transfer> &transfers)
{
        bool over = true;
        for (size_t i = 0; i < transfers.size(); i++) {
                transfer &t = transfers[i];
                bool first = true;
                for (size_t j = 0; j < i; j++)
                        first &= transfers[j].peer != t.peer || !transfers[j].from != !t.from ||
                                 transfers[j].at == transfers[j].bytes;
                while (first && t.at < t.bytes && move(comm, t))
                        continue;
                over &= t.at == t.bytes;
        }
        return over;
}

bool in_device_memory(const void *pointer)
{
        return !pointer || emulated::memory_of(pointer) == emulated::memory::device;
}

/* Members post the same ones in the same order, so that pieces have the same numbers everywhere. */
ncclResult_t post(collective &&c, cudaStream_t stream)
{
        emulated::entered enter("nccl");
        if (enter.error || !in_device_memory(c.from) || !in_device_memory(c.to))
                return ncclUnhandledCudaError;
        c.piece = c.comm->pieces;
        c.comm->pieces += (long)((c.bytes + PIECE_BYTES - 1) / PIECE_BYTES);
        auto kept = std::make_shared<collective>(c);
        const auto run = [kept] {
                while (kept->at < kept->bytes)
                        if (!step(*kept))
                                return emulated::WAITS_FOR_OTHERS;
                return cudaSuccess;
        };
        return emulated::queue(stream, {run, nullptr, nullptr}) ? ncclUnhandledCudaError : ncclSuccess;
}

/* Of the group of calls that is open. */
std::vector<transfer> grouped;
ncclComm_t grouped_comm;
cudaStream_t grouped_stream;

ncclResult_t add_transfer(transfer &&t, ncclComm_t comm, cudaStream_t stream)
{
        if (!in_device_memory(t.from) || !in_device_memory(t.to))
                return ncclUnhandledCudaError;
        grouped_comm = comm;
        grouped_stream = stream;
        grouped.push_back(t);
        return ncclSuccess;
}

} // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
        static int made;
        *id = {};
        snprintf(id->internal, sizeof id->internal, "/ranvier-emulated-nccl-%d-%d", (int)getpid(), made++);
        return ncclSuccess;
}

/* Waits for all members, as NCCL's does. */
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int members, ncclUniqueId id, int index)
{
        const size_t bytes = shared_bytes(members);
        const int file = shm_open(id.internal, O_CREAT | O_RDWR, 0600);
        if (members > MAX_MEMBERS || file < 0 || ftruncate(file, (off_t)bytes))
                return ncclUnhandledCudaError;
        void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (memory == MAP_FAILED)
                return ncclUnhandledCudaError;
        *comm = new ncclComm{(shared *)memory, bytes, members, index, 0};
        (*comm)->memory->joined++;
        while ((*comm)->memory->joined < members)
                emulated::nap();
        if (index == 0)
                shm_unlink(id.internal);
        return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
        munmap(comm->memory, comm->bytes);
        delete comm;
        return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *status)
{
        *status = ncclSuccess;
        return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream)
{
        const size_t bytes = count * size_of(type);
        return post({.comm = comm,
                     .from = (const unsigned char *)from,
                     .to = (unsigned char *)to,
                     .bytes = bytes,
                     .type = type,
                     .of = -1,
                     .sums = true,
                     .keep = 0,
                     .kept = bytes},
                    stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream)
{
        const size_t part = count * size_of(type);
        return post({.comm = comm,
                     .from = (const unsigned char *)from,
                     .to = (unsigned char *)to,
                     .bytes = part * (size_t)comm->members,
                     .type = type,
                     .of = -1,
                     .sums = true,
                     .keep = part * (size_t)comm->index,
                     .kept = part},
                    stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
        return post({.comm = comm,
                     .from = (const unsigned char *)from,
                     .to = (unsigned char *)to,
                     .bytes = count * size_of(type),
                     .type = type,
                     .of = -1},
                    stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
        return ncclAllReduce(from, comm->index == root ? to : nullptr, count, type, op, comm, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
        return post({.comm = comm,
                     .from = comm->index == root ? (const unsigned char *)from : nullptr,
                     .to = (unsigned char *)to,
                     .bytes = count * size_of(type),
                     .type = type,
                     .of = root},
                    stream);
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
        return add_transfer({peer, (const unsigned char *)from, nullptr, count * size_of(type), 0}, comm,
                            stream);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
        return add_transfer({peer, nullptr, (unsigned char *)to, count * size_of(type), 0}, comm, stream);
}

/* Collectives of a group run one after another: they have one stream, and the same order everywhere. What its
 * members send and receive, only groups do here. */
ncclResult_t ncclGroupStart(void)
{
        return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
        if (grouped.empty())
                return ncclSuccess;
        emulated::entered enter("nccl");
        ncclComm_t comm = grouped_comm;
        auto kept = std::make_shared<std::vector<transfer>>(std::move(grouped));
        grouped.clear();
        const auto run = [kept, comm] {
                return move_all(comm, *kept) ? cudaSuccess : emulated::WAITS_FOR_OTHERS;
        };
        return enter.error || emulated::queue(grouped_stream, {run, nullptr, nullptr})
                       ? ncclUnhandledCudaError
                       : ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t status)
{
        return status == ncclSuccess ? "no error"
                                     : "an error of CUDA, or a buffer that is not in device memory";
}
}
