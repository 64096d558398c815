#include "sim/search/plan.h"

#include "runtime/base/number.h"
#include "runtime/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Changes and conditions that are shown, and the least gain that is. */
enum { SHOWN_CHANGES = 3, WIN_TEXT = 64 };
static const double LEAST_GAIN = 0.005;

static const struct machine *machine_of(const struct plan_answer *a)
{
        return a->answer.best->candidate->machine;
}

/* ---- words ---- */

/* The flags of a plan, as simulate takes them; the caller frees it. NULL: no memory. */
static char *flags_text(const struct options *o)
{
        char *text = NULL;
        size_t size;
        FILE *stream = open_memstream(&text, &size);
        if (!stream)
                return NULL;
        ask_print_plan(o, stream);
        fclose(stream);
        return text;
}

/* Behind a heading, without the blank that it begins with. */
static void print_flags(const struct options *o, FILE *out)
{
        char *text = flags_text(o);
        fputs(text && text[0] ? text + 1 : "?", out);
        free(text);
}

/* What a part of the time is, over which links. */
static void describe_part(const struct answer_shares *shares, enum answer_part part, const struct machine *m,
                          char text[96])
{
        static const char *const names[ANSWER_PARTS] = {"kernels",
                                                        "collectives of shards",
                                                        "collectives of gradients and weights",
                                                        "messages between stages",
                                                        "copies between host and device",
                                                        "launches"};
        const bool linked = part == ANSWER_SHARDS || part == ANSWER_REPLICAS || part == ANSWER_MESSAGES;
        const char *inside = m->local                       ? "between processes"
                             : m->platform.gpu_link_is_pcie ? "over PCI Express"
                                                            : "over the links in a node";
        snprintf(text, 96, "%s%s%s", names[part], linked ? " " : "",
                 !linked             ? ""
                 : shares->far[part] ? "over the network"
                                     : inside);
}

static const char *change_text(enum answer_what what)
{
        static const char *const texts[ANSWER_CHANGES] = {
                "GPUs with twice the memory",   "a network twice as fast",
                "links in nodes twice as fast", "host links twice as fast",
                "batches twice as large",       "linear layers in fp8 (--precision fp8)"};
        return texts[what];
}

/* ---- the training ---- */

struct training {
        double days, gpu_hours, cost, kilowatt_hours; /* 0: not known */
};

static struct training training_of(const struct plan_answer *a, const struct job *job)
{
        const struct machine *m = job->candidate->machine;
        const double days = job->outcome.figures.training_days, hours = 24 * days;
        const int nodes = (m->gpus + m->platform.gpus_per_node - 1) / m->platform.gpus_per_node;
        return (struct training){days, hours * m->gpus, hours * m->gpus * a->price_per_gpu_hour,
                                 hours * nodes * m->platform.node_watts / 1e3};
}

/* ---- as text ---- */

static void print_question(const struct plan_answer *a, FILE *out)
{
        const struct job *best = a->answer.best;
        const struct options *o = &best->candidate->options;
        const struct machine *m = machine_of(a);
        char caveat[MACHINE_CAVEAT], gpu[128];
        const char *sentence;
        machine_caveat(m, best->outcome.shapes_measured, best->outcome.shapes, caveat);
        snprintf(gpu, sizeof gpu, "%s", m->platform.gpu[0] ? m->platform.gpu : m->profile.device.name);
        fprintf(out, "%s on %d x %s (%s), batches of %lld x %d tokens, %s precision%s%s%s\n", o->gpt.name,
                m->gpus, gpu, m->platform.name, (long long)o->batch_size, o->seq_len,
                precision_name(o->dtype, o->format), o->framework ? ", like " : "",
                o->framework ? o->framework->name : "",
                a->search.stopped ? ": interrupted, so of what was seen" : "");
        for (size_t i = 0; i < json_array_size(a->assumed); i++) {
                sentence = json_string_value(json_array_get(a->assumed, i));
                fprintf(out, "%s%s", i ? ", " : "  assumed: ", sentence);
        }
        fputs(json_array_size(a->assumed) ? "\n" : "", out);
        json_t *remarks = machine_remarks(m, &a->ask->space.base);
        for (size_t i = 0; i < json_array_size(remarks); i++)
                fprintf(out, "  note: %s\n", json_string_value(json_array_get(remarks, i)));
        json_decref(remarks);
        if (caveat[0])
                fprintf(out, "  note: %s\n", caveat);
}

static void print_memory(const struct job *job, FILE *out)
{
        const struct machine *m = job->candidate->machine;
        const struct capacity capacity = machine_capacity(m, &job->candidate->options);
        char needs[NUMBER_TEXT], has[NUMBER_TEXT], host[NUMBER_TEXT];
        fprintf(out, "  memory       %s a GPU",
                number_bytes(needs, (double)job->outcome.figures.device_peak_bytes));
        if (capacity.bytes[MEMORY_DEVICE])
                fprintf(out, " of %s (%.0f %%)", number_bytes(has, (double)capacity.bytes[MEMORY_DEVICE]),
                        100 * (double)job->outcome.figures.device_peak_bytes /
                                (double)capacity.bytes[MEMORY_DEVICE]);
        fprintf(out, "; %s of the host\n", number_bytes(host, (double)job->outcome.host_bytes));
}

static void print_shares(const struct plan_answer *a, FILE *out)
{
        const struct answer_shares *shares = &a->answer.shares;
        const struct figures *f = &a->answer.best->outcome.figures;
        bool shown[ANSWER_PARTS] = {false};
        const char *before = "  bound by     ";
        for (int count = 0; count < ANSWER_PARTS; count++) {
                int most = -1;
                char text[96];
                for (int part = 0; part < ANSWER_PARTS; part++)
                        if (!shown[part] && (most < 0 || shares->share[part] > shares->share[most]))
                                most = part;
                shown[most] = true;
                if (shares->share[most] < LEAST_GAIN)
                        break;
                describe_part(shares, (enum answer_part)most, machine_of(a), text);
                fprintf(out, "%s%s %.0f %%", before, text, 100 * shares->share[most]);
                before = ", ";
        }
        if (f->bubble_fraction > 0.001)
                fprintf(out, "; stages wait for each other %.1f %% of the pipeline",
                        100 * f->bubble_fraction);
        putc('\n', out);
}

static void print_training(const struct plan_answer *a, FILE *out)
{
        const struct job *best = a->answer.best;
        const struct training t = training_of(a, best);
        const struct platform *p = &machine_of(a)->platform;
        char tokens[NUMBER_TEXT], hours[NUMBER_TEXT], cost[NUMBER_TEXT];
        fprintf(out, "  training     %s tokens in %.1f days, %s GPU hours",
                number_tokens(tokens, (double)best->outcome.figures.training_tokens), t.days,
                number_count(hours, t.gpu_hours));
        if (t.cost > 0)
                fprintf(out, ", %s at %g an hour", number_count(cost, t.cost), a->price_per_gpu_hour);
        if (t.kilowatt_hours > 0)
                fprintf(out, ", at most %s kWh (%g kW a node: %s)\n", number_count(hours, t.kilowatt_hours),
                        p->node_watts / 1e3, p->node_power_source);
        else
                fprintf(out, "; what %s draws is not known\n", p->name);
}

static void print_days(const struct plan_answer *a, FILE *out)
{
        const double days = a->answer.best->outcome.figures.training_days;
        if (a->days_wanted == 0)
                return;
        if (days <= a->days_wanted)
                fprintf(out, "  in time      within the %g days that it may take\n", a->days_wanted);
        else if (a->enough.gpus) {
                fprintf(out,
                        "  too long     for the %g days that it may take; %d GPUs would do, on paper in %.1f "
                        "days with ",
                        a->days_wanted, a->enough.gpus, a->enough.days);
                print_flags(&a->enough.options, out);
                putc('\n', out);
        } else
                fprintf(out,
                        "  too long     for the %g days that it may take; no number of GPUs that was tried "
                        "would do with this batch\n",
                        a->days_wanted);
}

/* What an engineer would want to know before it is run. */
static void print_sums(const struct options *o, FILE *out)
{
        const struct plan plan = options_plan(o, false);
        if (o->dtype == DTYPE_BF16 && !plan_keeps_fp32(&plan) && plan.micro_batches > 1)
                fprintf(out,
                        "  gradients    of %d micro-batches are added up in bf16, not in fp32 as %s does\n",
                        plan.micro_batches, options_exact_sums(o));
}

/* What more or fewer replicas would bring. */
static void print_scales(const struct plan_answer *a, FILE *out)
{
        const double seconds = a->answer.best->outcome.figures.median;
        int shown = 0;
        for (int i = 0; i < a->scale_count; i++) {
                const struct plan_scale *scale = &a->scales[i];
                if (scale->gpus == machine_of(a)->gpus)
                        continue;
                fprintf(out, "%s%d GPUs %.2f",
                        shown++ ? ", " : "  replicas     more or fewer, the same batch: ", scale->gpus,
                        seconds / scale->seconds);
        }
        if (shown)
                fputs(" times the throughput\n", out);
}

static void print_best(const struct plan_answer *a, FILE *out)
{
        const struct job *best = a->answer.best;
        const struct figures *f = &best->outcome.figures;
        char seconds[NUMBER_TEXT], low[NUMBER_TEXT], high[NUMBER_TEXT], tokens[NUMBER_TEXT];
        fputs("\nthe best plan  ", out);
        print_flags(&best->candidate->options, out);
        fprintf(out, "\n  a batch      %s", number_seconds(seconds, f->median));
        if (f->high > 0)
                fprintf(out, ", nine times in ten %s to %s", number_seconds(low, f->low),
                        number_seconds(high, f->high));
        if (a->ask->checkpoints.text)
                fprintf(out, "\n               with its part of a checkpoint, one every %s%s",
                        a->ask->checkpoints.text, a->ask->checkpoints.steps ? " batches" : "");
        fprintf(out, "\n  throughput   %s tokens/s", number_count(tokens, f->tokens_per_second));
        if (f->percent_of_peak > 0)
                fprintf(out, ", %.1f %% of peak%s", f->percent_of_peak,
                        best->candidate->options.recompute ? ", recomputation counted" : "");
        putc('\n', out);
        print_memory(best, out);
        print_sums(&best->candidate->options, out);
        print_shares(a, out);
        print_scales(a, out);
        print_training(a, out);
        print_days(a, out);
}

/* Where the next plan wins. Returns `text`. */
static char *win_text(const struct answer_win *win, const struct plan_answer *a, char text[WIN_TEXT])
{
        const struct options *o = &a->answer.best->candidate->options;
        if (win->what == ANSWER_BATCH)
                snprintf(text, WIN_TEXT, "batches have %.0f sequences", win->factor * (double)o->batch_size);
        else
                snprintf(text, WIN_TEXT, "%s %.2f times as fast",
                         win->what == ANSWER_NETWORK ? "the network is" : "links in nodes are", win->factor);
        return text;
}

static void print_second(const struct plan_answer *a, FILE *out)
{
        const struct job *best = a->answer.best, *second = a->answer.second;
        char seconds[NUMBER_TEXT], bytes[NUMBER_TEXT], text[WIN_TEXT];
        if (!second)
                return;
        const int64_t needs = second->outcome.figures.device_peak_bytes;
        fputs("\nthe next, which divides the work in another way  ", out);
        print_flags(&second->candidate->options, out);
        fprintf(out, "\n  a batch      %s, %.1f %% more; memory %s a GPU\n",
                number_seconds(seconds, second->outcome.figures.median),
                100 * (second->outcome.figures.median / best->outcome.figures.median - 1),
                number_bytes(bytes, (double)needs));
        for (int i = 0; i < a->answer.win_count; i++)
                fprintf(out, "%s%s", i == 0 ? "  it wins where " : ", or ",
                        win_text(&a->answer.wins[i], a, text));
        if (needs < best->outcome.figures.device_peak_bytes)
                fprintf(out, "%sGPUs have less than %s", a->answer.win_count ? ", or " : "  it wins where ",
                        number_bytes(bytes, (double)best->outcome.figures.device_peak_bytes));
        else if (a->answer.win_count == 0)
                fputs("  it wins nowhere near: not with links 16 times slower or faster, nor with other "
                      "batches",
                      out);
        putc('\n', out);
}

static const char *own_failure(const struct plan_answer *a)
{
        return a->own_failure[0] ? a->own_failure : "it was interrupted";
}

/* The plan that the file says, beside the best. */
static void print_own(const struct plan_answer *a, FILE *out)
{
        char seconds[NUMBER_TEXT], bytes[NUMBER_TEXT];
        if (!a->file)
                return;
        fprintf(out, "\nthe plan of %s", a->file->path);
        if (!a->own) {
                fprintf(out, " was not simulated: %s\n", own_failure(a));
                return;
        }
        fputs("  ", out);
        print_flags(&a->own->candidate->options, out);
        fprintf(out, "\n  a batch      %s; memory %s a GPU; the best plan has %.1f %% more throughput\n",
                number_seconds(seconds, a->own->outcome.figures.median),
                number_bytes(bytes, (double)a->own->outcome.figures.device_peak_bytes),
                100 * (a->own->outcome.figures.median / a->answer.best->outcome.figures.median - 1));
}

static void print_changes(const struct plan_answer *a, FILE *out)
{
        int shown = 0;
        for (int i = 0; i < a->answer.change_count && shown < SHOWN_CHANGES; i++) {
                const struct answer_change *change = &a->answer.changes[i];
                if (change->gain < LEAST_GAIN)
                        break;
                if (shown++ == 0)
                        fputs("\nwhat would help most\n", out);
                fprintf(out, "  %+6.1f %%     %s, with ", 100 * change->gain, change_text(change->what));
                print_flags(&change->options, out);
                putc('\n', out);
        }
        if (shown == 0)
                fputs("\nno change that was tried gains half a percent: more memory, faster links, larger "
                      "batches\n",
                      out);
}

struct counts {
        int considered, fitting, simulated;
};

static struct counts count_plans(const struct plan_answer *a)
{
        struct counts counts = {0};
        for (int i = 0; i < a->groups->count; i++) {
                counts.considered += a->groups->groups[i].considered;
                counts.fitting += a->groups->groups[i].fitting;
        }
        for (int i = 0; i < a->jobs->count; i++)
                counts.simulated += a->jobs->list[i].outcome.state == OUTCOME_DONE;
        return counts;
}

static void print_basis(const struct plan_answer *a, FILE *out)
{
        const struct machine *m = machine_of(a);
        const struct counts counts = count_plans(a);
        char considered[NUMBER_TEXT], rate[NUMBER_TEXT], fitting[NUMBER_TEXT], seconds[NUMBER_TEXT];
        fprintf(out,
                "\nsearched       %s plans weighed in %s by %d process%s (%s a second); %s fit; the best %d "
                "simulated\n",
                number_count(considered, counts.considered), number_seconds(seconds, a->search.seconds),
                a->search.processes, a->search.processes == 1 ? "" : "es",
                number_count(rate, counts.considered / a->search.seconds),
                number_count(fitting, counts.fitting), counts.simulated);
        fprintf(out, "profile        %s: %s%s\n", m->profile.path, profile_caution(&m->profile),
                m->profile.source);
        fprintf(out, "platform       %s: %s\n", m->platform.name, m->platform.source);
        if (m->platform.note[0])
                fprintf(out, "note           %s\n", m->platform.note);
        fputs("again          ", out);
        ask_print_command(a->ask, &a->answer.best->candidate->options, out);
}

void plan_print(const struct plan_answer *a, FILE *out)
{
        print_question(a, out);
        print_best(a, out);
        print_own(a, out);
        print_second(a, out);
        print_changes(a, out);
        print_basis(a, out);
}

/* ---- as JSON ---- */

static json_t *flags_json(const struct options *o)
{
        char *text = flags_text(o);
        json_t *json = text && text[0] ? json_string(text + 1) : NULL;
        free(text);
        return json;
}

/* What simulates a plan again, without the line's end. */
static json_t *again_json(const struct plan_answer *a, const struct job *job)
{
        char *text = NULL;
        size_t size;
        FILE *stream = open_memstream(&text, &size);
        if (!stream)
                return NULL;
        ask_print_command(a->ask, &job->candidate->options, stream);
        fclose(stream);
        json_t *json = text ? json_stringn(text, strcspn(text, "\n")) : NULL;
        free(text);
        return json;
}

static json_t *job_json(const struct plan_answer *a, const struct job *job)
{
        const struct training t = training_of(a, job);
        const struct capacity capacity = machine_capacity(job->candidate->machine, &job->candidate->options);
        json_t *json = json_object();
        json_object_set_new(json, "flags", flags_json(&job->candidate->options));
        json_object_set_new(json, "again", again_json(a, job));
        json_object_set_new(json, "plan", report_plan_json(&job->candidate->options));
        figures_write(&job->outcome.figures, json);
        json_object_set_new(json, "host_bytes", json_integer(job->outcome.host_bytes));
        json_object_set_new(json, "device_memory_bytes",
                            capacity.bytes[MEMORY_DEVICE] ? json_integer(capacity.bytes[MEMORY_DEVICE])
                                                          : json_null());
        json_object_set_new(json, "paper_seconds", json_real(job->candidate->paper_seconds));
        json_object_set_new(json, "gpu_hours", json_real(t.gpu_hours));
        json_object_set_new(json, "cost", t.cost > 0 ? json_real(t.cost) : json_null());
        json_object_set_new(json, "kilowatt_hours_at_most",
                            t.kilowatt_hours > 0 ? json_real(t.kilowatt_hours) : json_null());
        return json;
}

static json_t *shares_json(const struct plan_answer *a)
{
        json_t *list = json_array();
        for (int part = 0; part < ANSWER_PARTS; part++) {
                char text[96];
                describe_part(&a->answer.shares, (enum answer_part)part, machine_of(a), text);
                json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:b}", "part",
                                                      answer_part_name((enum answer_part)part), "what", text,
                                                      "share", a->answer.shares.share[part], "network",
                                                      a->answer.shares.far[part]));
        }
        return list;
}

static json_t *changes_json(const struct plan_answer *a)
{
        json_t *list = json_array();
        for (int i = 0; i < a->answer.change_count; i++) {
                const struct answer_change *change = &a->answer.changes[i];
                json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:o?}", "change",
                                                      answer_change_name(change->what), "what",
                                                      change_text(change->what), "gain", change->gain,
                                                      "flags", flags_json(&change->options)));
        }
        return list;
}

static json_t *scales_json(const struct plan_answer *a)
{
        const struct figures *f = &a->answer.best->outcome.figures;
        json_t *list = json_array();
        for (int i = 0; i < a->scale_count; i++) {
                const struct plan_scale *scale = &a->scales[i];
                json_array_append_new(list, json_pack("{s:i, s:f, s:f}", "gpus", scale->gpus, "batch_seconds",
                                                      scale->seconds, "tokens_per_second",
                                                      f->tokens_per_second * f->median / scale->seconds));
        }
        return list;
}

static json_t *wins_json(const struct plan_answer *a)
{
        json_t *list = json_array();
        char text[WIN_TEXT];
        for (int i = 0; i < a->answer.win_count; i++)
                json_array_append_new(list, json_pack("{s:s, s:s, s:f}", "change",
                                                      answer_change_name(a->answer.wins[i].what), "what",
                                                      win_text(&a->answer.wins[i], a, text), "times",
                                                      a->answer.wins[i].factor));
        return list;
}

static json_t *question_json(const struct plan_answer *a)
{
        const struct options *o = &a->answer.best->candidate->options;
        const struct machine *m = machine_of(a);
        return json_pack(
                "{s:s, s:i, s:s, s:s, s:s, s:I, s:i, s:s, s:s?, s:f, s:O}", "model", o->gpt.name, "gpus",
                m->gpus, "gpu", m->platform.gpu[0] ? m->platform.gpu : m->profile.device.name, "platform",
                m->platform.name, "profile", m->profile.path, "batch_size", (json_int_t)o->batch_size,
                "seq_len", o->seq_len, "precision", precision_name(o->dtype, o->format), "like",
                o->framework ? o->framework->name : NULL, "price_per_gpu_hour", a->price_per_gpu_hour,
                "assumed", a->assumed);
}

static json_t *sources_json(const struct plan_answer *a)
{
        const struct machine *m = machine_of(a);
        json_t *sources =
                json_pack("{s:s, s:s}", "profile", m->profile.source, "platform", m->platform.source);
        if (m->platform.node_watts > 0)
                json_object_set_new(sources, "power", json_string(m->platform.node_power_source));
        return sources;
}

json_t *plan_json(const struct plan_answer *a)
{
        const struct counts counts = count_plans(a);
        json_t *json = json_pack("{s:s, s:s, s:s}", "ranvier", RANVIER_VERSION, "kind", "plan", "command",
                                 a->command);
        if (!json)
                return NULL;
        json_object_set_new(json, "question", question_json(a));
        json_object_set_new(json, "best", job_json(a, a->answer.best));
        json_object_set_new(json, "bound_by", shares_json(a));
        json_object_set_new(json, "second", a->answer.second ? job_json(a, a->answer.second) : json_null());
        json_object_set_new(json, "second_wins", wins_json(a));
        json_object_set_new(json, "changes", changes_json(a));
        json_object_set_new(json, "replicas", scales_json(a));
        if (a->file) {
                json_object_set_new(json, "from", launch_json(a->file));
                json_object_set_new(json, "own", a->own ? job_json(a, a->own) : json_string(own_failure(a)));
        }
        if (a->days_wanted > 0)
                json_object_set_new(json, "days_wanted", json_real(a->days_wanted));
        if (a->enough.gpus)
                json_object_set_new(json, "enough",
                                    json_pack("{s:i, s:f, s:o?}", "gpus", a->enough.gpus, "days",
                                              a->enough.days, "flags", flags_json(&a->enough.options)));
        json_object_set_new(json, "search",
                            json_pack("{s:i, s:i, s:i, s:f, s:i, s:b}", "weighed", counts.considered, "fit",
                                      counts.fitting, "simulated", counts.simulated, "seconds",
                                      a->search.seconds, "processes", a->search.processes, "stopped",
                                      a->search.stopped));
        json_object_set_new(json, "sources", sources_json(a));
        json_object_set_new(json, "again", again_json(a, a->answer.best));
        return json;
}
