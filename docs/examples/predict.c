/* What a batch of Llama 3 8B would take on a node of H100, and one product of it.
 *     cc predict.c $(pkg-config --cflags --libs ranvier) -o predict && ./predict */
#include <ranvier.h>

#include <stdio.h>

int main(void)
{
        static const char *const plan[] = {"llama3-8b", "--tp",         "2",  "--dp",
                                           "4",         "--zero",       "1",  "--micro-batch-size",
                                           "1",         "--batch-size", "64", NULL};
        const struct ranvier_kernel product = {
                .kind = RANVIER_GEMM, .dtype = RANVIER_BF16, .m = 8192, .n = 14336, .k = 4096};
        struct ranvier_prediction batch;
        struct ranvier_price price;
        char message[RANVIER_MESSAGE];
        struct ranvier_machine *machine =
                ranvier_machine_open("8xh100", NULL, NULL, 8, message, sizeof message);
        if (!machine || ranvier_predict(machine, plan, &batch, message, sizeof message) ||
            ranvier_price(machine, &product, 1, &price, message, sizeof message)) {
                fprintf(stderr, "predict: %s\n", message);
                ranvier_machine_close(machine);
                return 1;
        }
        printf("a batch takes %.3f s [%.3f s, %.3f s], %.1f %% of peak, and %.1f GiB a GPU\n",
               batch.batch_seconds, batch.low_seconds, batch.high_seconds, batch.percent_of_peak,
               (double)batch.device_bytes / (1 << 30));
        printf("the product takes %.1f us\n", 1e6 * price.seconds);
        ranvier_machine_close(machine);
        return 0;
}
