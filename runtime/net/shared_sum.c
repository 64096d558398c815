#include "runtime/net/shared_sum.h"

#include "runtime/base/minmax.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Pieces that stay in a core's cache until they are added, and enough of them that messages never pause; of
 * many members smaller ones. */
enum { UNDER_WAY = 4, PIECE_BYTES = 256 << 10, ROOM_BYTES = 16 << 20 };

int64_t shared_sum_part(int64_t elements, int members, int member, int64_t *offset)
{
        const int64_t each = (elements + members - 1) / members, begin = member * each;
        *offset = begin < elements ? begin : elements;
        return each < elements - *offset ? each : elements - *offset;
}

/* Bytes of a piece of the member's part (0: it has no such piece), and where they are. */
static int64_t piece_of(const struct shared_sum *s, int member, int64_t piece, char **at)
{
        int64_t offset;
        const int64_t elements = shared_sum_part(s->what.elements, s->members, member, &offset);
        const int64_t begin = min_int64(piece * s->piece_elements, elements);
        *at = s->what.buffer + (offset + begin) * s->what.element_bytes;
        return min_int64(s->piece_elements, elements - begin) * s->what.element_bytes;
}

/* Where `member`'s term of a piece of this one's part arrives. */
static char *room_of(const struct shared_sum *s, int member, int64_t piece)
{
        return s->room +
               (piece % UNDER_WAY * s->members + member) * s->piece_elements * s->what.element_bytes;
}

static MPI_Request *requests_of(const struct shared_sum *s, int64_t piece)
{
        return s->requests + piece % UNDER_WAY * 2 * s->members;
}

/* Pieces are begun in order on every member, so messages between two of them need no numbers. */
static void begin_piece(struct shared_sum *s)
{
        const int64_t piece = s->begun++;
        MPI_Request *requests = requests_of(s, piece);
        char *at;
        const int mine = (int)piece_of(s, s->me, piece, &at);
        for (int i = 0; i < 2 * s->members; i++)
                requests[i] = MPI_REQUEST_NULL;
        for (int i = 1; i < s->members; i++) {
                const int from = (s->me + s->members - i) % s->members, to = (s->me + i) % s->members;
                const int theirs = (int)piece_of(s, to, piece, &at);
                if (mine > 0)
                        MPI_Irecv(room_of(s, from, piece), mine, MPI_BYTE, from, 0, s->comm, &requests[from]);
                if (theirs > 0)
                        MPI_Isend(at, theirs, MPI_BYTE, to, 0, s->comm, &requests[s->members + to]);
        }
}

/* Up the tree; of two terms the one that lies in the buffer takes the sum. */
static void sum_piece(struct shared_sum *s)
{
        const int64_t piece = s->summed++;
        char *mine;
        const int64_t bytes = piece_of(s, s->me, piece, &mine), elements = bytes / s->what.element_bytes;
        for (int i = 0; i < s->members; i++)
                s->terms[i] = i == s->me ? mine : room_of(s, i, piece);
        for (int distance = 1; distance < s->members; distance *= 2)
                for (int i = 0; i + distance < s->members; i += 2 * distance) {
                        char *with = s->terms[i + distance];
                        if (with == mine) {
                                with = s->terms[i];
                                s->terms[i] = mine;
                        }
                        s->what.add(s->terms[i], with, elements);
                }
        assert(s->terms[0] == mine);
        if (s->what.own)
                memcpy(s->what.own + piece * s->piece_elements * s->what.element_bytes, mine, (size_t)bytes);
}

static int64_t piece_bytes(int members)
{
        return min_int64(PIECE_BYTES, ROOM_BYTES / UNDER_WAY / members / 64 * 64);
}

static void make_room(struct shared_sum *s)
{
        const size_t members = (size_t)s->members;
        s->room = malloc(UNDER_WAY * members * (size_t)piece_bytes(s->members));
        s->requests = malloc(UNDER_WAY * 2 * members * sizeof(MPI_Request));
        s->terms = malloc(members * sizeof *s->terms);
        if (!s->room || !s->requests || !s->terms)
                abort();
}

void shared_sum_begin(struct shared_sum *s, MPI_Comm comm, const struct shared_sum_terms *what)
{
        int64_t first;
        assert(!s->busy);
        s->what = *what;
        s->comm = comm;
        MPI_Comm_size(comm, &s->members);
        MPI_Comm_rank(comm, &s->me);
        if (!s->room)
                make_room(s);
        s->piece_elements = piece_bytes(s->members) / what->element_bytes;
        s->pieces = (shared_sum_part(what->elements, s->members, 0, &first) + s->piece_elements - 1) /
                    s->piece_elements;
        s->begun = s->summed = 0;
        s->busy = true;
        while (s->begun < s->pieces && s->begun < UNDER_WAY)
                begin_piece(s);
}

/* Whoever computes looks here seldom, and then finds all that were under way. */
bool shared_sum_test(struct shared_sum *s)
{
        if (!s->busy)
                return false;
        for (int i = 0; i < UNDER_WAY && s->summed < s->pieces; i++) {
                int arrived = 0;
                MPI_Testall(2 * s->members, requests_of(s, s->summed), &arrived, MPI_STATUSES_IGNORE);
                if (!arrived)
                        return false;
                sum_piece(s);
                if (s->begun < s->pieces)
                        begin_piece(s);
        }
        s->busy = s->summed < s->pieces;
        return !s->busy;
}

void shared_sum_free(struct shared_sum *s)
{
        assert(!s->busy);
        free(s->room);
        free(s->requests);
        free(s->terms);
        *s = (struct shared_sum){0};
}
