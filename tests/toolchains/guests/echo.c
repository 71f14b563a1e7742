/* The same JSON out, and how many bytes it had to the log. */
#include "palyra.h"

static char buffer[65536];

PALYRA_RUN {
    int32_t count = palyra_input_read(buffer, sizeof buffer);
    palyra_log(PALYRA_INFO, "echo", 4);
    return palyra_output(buffer, (uint32_t)count);
}
