#include "sim/world/flow.h"

#include <cassert>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <typeinfo>

namespace s4u = simgrid::s4u;

using simgrid::kernel::timer::Timer;

static struct flow_listener told;
static Timer *pending; /* nullptr: none */

/* SimGrid still works on a communication after it has told of its end, so it is kept until the next one's. */
static s4u::CommPtr ended_last;

/* The communications of actors end here too; they carry nothing. Other activities than communications there
 * are none. */
static void hear(s4u::Activity const &activity)
{
        assert(typeid(activity) == typeid(s4u::Comm));
        auto *comm = static_cast<s4u::Comm const *>(&activity);
        void *what = comm->get_data<void>();
        if (!what)
                return;
        ended_last = s4u::CommPtr(const_cast<s4u::Comm *>(comm), false); /* what flow_start holds */
        told.ended(told.context, what);
}

void flow_listen(struct flow_listener listener)
{
        static bool listening;
        told = listener;
        if (!listening)
                s4u::Activity::on_completion_cb(hear);
        listening = true;
}

void flow_start(sg_host_t from, sg_host_t to, double bytes, void *what)
{
        s4u::CommPtr comm = s4u::Comm::sendto_init(from, to);
        comm->set_payload_size(static_cast<uint64_t>(bytes));
        comm->set_data(what);
        comm->vetoable_start();
        comm.detach(); /* its reference passes to hear() */
}

/* Who waits gives the reference back. */
sg_comm_t flow_start_in_actor(sg_host_t from, sg_host_t to, double bytes)
{
        return s4u::Comm::sendto_async(from, to, static_cast<uint64_t>(bytes)).detach();
}

void flow_alarm(double seconds)
{
        if (pending)
                pending->remove();
        pending = Timer::set(seconds, [] {
                pending = nullptr;
                told.alarm(told.context);
        });
}

double flow_now(void)
{
        return s4u::Engine::get_clock();
}
