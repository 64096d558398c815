#include "runtime/doctor/gpus.h"

#include "runtime/base/plugin.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* ---- the driver ---- */

/* CUDA's driver interface, as NVIDIA documents it: a function returns 0, or what is wrong. */
struct driver {
        int (*init)(unsigned flags);
        int (*version)(int *version);
        int (*count)(int *count);
        int (*get)(int *device, int ordinal);
        int (*name)(char *name, int size, int device);
        int (*memory)(size_t *bytes, int device);
};

static bool load_driver(struct driver *driver)
{
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        const struct {
                const char *name;
                void *to;
        } functions[] = {
                {"cuInit", &driver->init},
                {"cuDriverGetVersion", &driver->version},
                {"cuDeviceGetCount", &driver->count},
                {"cuDeviceGet", &driver->get},
                {"cuDeviceGetName", &driver->name},
                {"cuDeviceTotalMem_v2", &driver->memory},
        };
        for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
                void *function = library ? dlsym(library, functions[i].name) : NULL;
                if (!function)
                        return false;
                memcpy(functions[i].to, &function, sizeof function);
        }
        return true;
}

static void read_word(const char *path, char *word, int size)
{
        FILE *stream = fopen(path, "r");
        if (stream && fgets(word, size, stream))
                word[strcspn(word, "\n")] = 0;
        if (stream)
                fclose(stream);
}

/* The GPUs into the machine's list, and their names into `text`. Returns how many there are. */
static int list_gpus(const struct driver *driver, json_t *gpus, char *text, size_t size)
{
        int count = 0;
        if (driver->count(&count))
                return 0;
        text[0] = 0;
        for (int i = 0; i < count; i++) {
                int device;
                size_t bytes = 0, used = strlen(text);
                char name[128] = "";
                if (driver->get(&device, i) || driver->name(name, sizeof name, device) ||
                    driver->memory(&bytes, device))
                        continue;
                json_array_append_new(
                        gpus, json_pack("{s:s, s:I}", "name", name, "memory_bytes", (json_int_t)bytes));
                snprintf(text + used, size - used, "%s%s, %.1f GiB", used ? "; " : "", name,
                         (double)bytes / 1073741824.0);
        }
        return (int)json_array_size(gpus);
}

/* Whether the PCI bus has a display controller of NVIDIA's, driver or not. */
static bool on_bus(void)
{
        glob_t found;
        bool any = false;
        if (glob("/sys/bus/pci/devices/*/vendor", 0, NULL, &found))
                return false;
        for (size_t i = 0; i < found.gl_pathc && !any; i++) {
                char path[512], vendor[16] = "", class[16] = "";
                const int folder = (int)strlen(found.gl_pathv[i]) - (int)strlen("vendor");
                read_word(found.gl_pathv[i], vendor, sizeof vendor);
                snprintf(path, sizeof path, "%.*sclass", folder, found.gl_pathv[i]);
                read_word(path, class, sizeof class);
                any = strcmp(vendor, "0x10de") == 0 && strncmp(class, "0x03", 4) == 0;
        }
        globfree(&found);
        return any;
}

static void add_no_driver(struct findings *findings, const char *use)
{
        struct finding *row =
                on_bus() ? finding_add(findings, "GPUs", use, false,
                                       "an NVIDIA GPU is there, but not its driver (libcuda.so.1)")
                         : finding_add(findings, "GPUs", use, false, "none of NVIDIA's");
        if (on_bus())
                snprintf(row->install, sizeof row->install, "nvidia-driver");
}

static void examine_driver(struct findings *findings)
{
        static const char use[] = "for --device cuda";
        struct driver driver;
        json_t *gpus = json_array();
        char text[480];
        int version = 0;
        json_object_set_new(findings->machine, "gpus", gpus);
        if (!load_driver(&driver)) {
                add_no_driver(findings, use);
                return;
        }
        const int rc = driver.init(0);
        driver.version(&version);
        if (rc)
                finding_add(findings, "GPUs", use, false,
                            "none: the NVIDIA driver, for CUDA %d.%d, finds none (error %d)", version / 1000,
                            version % 1000 / 10, rc);
        else if (list_gpus(&driver, gpus, text, sizeof text) == 0)
                finding_add(findings, "GPUs", use, false, "none: the driver knows of no GPU");
        else
                finding_add(findings, "GPUs", use, true, "%s; the driver is for CUDA %d.%d", text,
                            version / 1000, version % 1000 / 10);
}

/* ---- plugins ---- */

/* A version that a function of a plugin's libraries tells; 0: none does. */
static int version_of(void *plugin, const char *library, const char *symbol, bool by_pointer)
{
        void *from = library ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : plugin;
        void *found = from ? dlsym(from, symbol) : NULL;
        int (*tell)(int *version);
        size_t (*say)(void);
        int version = 0;
        if (!found)
                return 0;
        if (!by_pointer) {
                memcpy(&say, &found, sizeof found);
                return (int)say();
        }
        memcpy(&tell, &found, sizeof found);
        return tell(&version) ? 0 : version;
}

/* A plugin and the library whose version says most of it: CUDA's by cuBLASLt, NCCL's, cuDNN's. The versions
 * are numbers such as 13000, 22809 and 91501: major, minor, patch. */
static const struct part {
        const char *name, *use, *file, *variable, *how;
        const char *needs;           /* what it loads when it is asked for; NULL: with itself */
        const char *symbol, *called; /* tells the version of `called` */
        bool by_pointer;
        int major, minor; /* what the number is divided by */
} parts[] = {
        {"CUDA", "for --device cuda", "device_cuda.so", "RANVIER_DEVICE_CUDA",
         "where CUDA's nvcc is, make builds it", NULL, "cublasLtGetCudartVersion", "CUDA", false, 1000, 10},
        {"NCCL", "for --device cuda on several GPUs without copies through the host", "net_nccl.so",
         "RANVIER_NET_NCCL", "where CUDA's nvcc and NCCL are, make builds it", NULL, "ncclGetVersion", "NCCL",
         true, 10000, 100},
        {"cuDNN", "for --attention cudnn", "attention_cudnn.so", "RANVIER_ATTENTION_CUDNN",
         "make CUDNN_FRONTEND=FOLDER builds it", "libcudnn.so.9", "cudnnGetVersion", "cuDNN", false, 10000,
         100},
};

static void examine_part(struct findings *findings, const struct part *part)
{
        struct rv_error_info err;
        void *plugin = plugin_open(part->file, part->variable, "the plugin", part->how, &err);
        if (!plugin) {
                struct finding *row = finding_add(findings, part->name, part->use, false, "%s", err.sentence);
                if (!strstr(err.sentence, "not built"))
                        finding_install_library(row, err.sentence);
                return;
        }
        const int version = version_of(plugin, part->needs, part->symbol, part->by_pointer);
        if (version)
                finding_add(findings, part->name, part->use, true, "%s %d.%d, by %s", part->called,
                            version / part->major, version % part->major / part->minor, part->file);
        else if (part->needs) {
                struct finding *row = finding_add(findings, part->name, part->use, false,
                                                  "%s is here, and %s is not", part->file, part->needs);
                finding_install_library(row, part->needs);
        } else
                finding_add(findings, part->name, part->use, true, "%s loads", part->file);
}

void gpus_examine(struct findings *findings)
{
        examine_driver(findings);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
                examine_part(findings, &parts[i]);
}
