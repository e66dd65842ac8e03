/* A stand-in for libnvidia-ml.so.1. What the GPUs hold is in a file that tests write, one process a line: GPU, number,
   bytes. Every question is noted in a second file, so that a test knows when it was asked. Compiled with -DGPUS=how many
   there are, -DLIST=the name of the function that lists processes, and -DINIT= or -DANSWER=an error code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned int uint;

int nvmlInit_v2(void) { return INIT; }

int nvmlDeviceGetCount_v2(uint *count) { *count = GPUS; return 0; }

int nvmlDeviceGetHandleByIndex_v2(uint index, void **device) {
    if (index >= GPUS) return 2;
    *device = (void *)(long)(index + 1);
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    uint index;
    if (sscanf(uuid, "GPU-%u", &index) != 1 || index >= GPUS) return 6;
    *device = (void *)(long)(index + 1);
    return 0;
}

/* Every GPU has used 1 kJ times its number, counted from 1. */
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    if (ANSWER) return ANSWER;
    *millijoules = 1000000ull * (unsigned long long)(long)device;
    return 0;
}

const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "Unknown Error"; }

int LIST(void *device, uint *count, unsigned char *entries) {
    uint room = *count, found = 0, gpu, pid;
    unsigned long long bytes;
    FILE *asked = fopen(getenv("NVML_STAND_IN_ASKED"), "a");
    fputs("?", asked);
    fclose(asked);
    if (ANSWER) return ANSWER;
    FILE *file = fopen(getenv("NVML_STAND_IN"), "r");
    while (file && fscanf(file, "%u %u %llu", &gpu, &pid, &bytes) == 3) {
        if (gpu + 1 != (uint)(long)device) continue;
        if (found < room) {
            unsigned char *entry = entries + (size_t)found * 16;
            memcpy(entry, &pid, 4);
            memcpy(entry + 8, &bytes, 8);
        }
        found++;
    }
    if (file) fclose(file);
    *count = found;
    return found > room ? 7 : 0;
}

/* The state of every GPU is the same, and is in a file of numbers: SM MHz, memory MHz, milliwatts, degrees, reasons,
   kB/s sent and received over PCIe, KiB sent and received over NVLink. A number below 0 is not supported. */
static long long state(int which) {
    long long values[9] = {1980, 2619, 650000, 61, 4, 1000, 2000, 5000, 6000};
    char *path = getenv("NVML_STAND_IN_STATE");
    FILE *file = path ? fopen(path, "r") : 0;
    for (int i = 0; file && i < 9; i++)
        if (fscanf(file, "%lld", &values[i]) != 1) break;
    if (file) fclose(file);
    return values[which];
}

static int number(long long value, uint *answer) { *answer = (uint)value; return value < 0 ? 3 : ANSWER; }

int nvmlDeviceGetClockInfo(void *device, uint kind, uint *mhz) { return number(state(kind == 2), mhz); }

int nvmlDeviceGetMaxClockInfo(void *device, uint kind, uint *mhz) { return number(kind == 2 ? 3201 : 1980, mhz); }

int nvmlDeviceGetPowerUsage(void *device, uint *milliwatts) { return number(state(2), milliwatts); }

int nvmlDeviceGetEnforcedPowerLimit(void *device, uint *milliwatts) { return number(700000, milliwatts); }

int nvmlDeviceGetTemperature(void *device, uint sensor, uint *degrees) { return number(state(3), degrees); }

int nvmlDeviceGetPcieThroughput(void *device, uint counter, uint *kilobytes) {
    return number(state(5 + counter), kilobytes);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *bits) { *bits = (unsigned long long)state(4); return state(4) < 0 ? 3 : ANSWER; }

struct field {
    uint id, scope;
    long long timestamp, latency;
    int kind, code;
    unsigned long long value;
};

int nvmlDeviceGetFieldValues(void *device, int count, struct field *fields) {
    for (int i = 0; i < count; i++) {
        long long value = state(fields[i].id == 138 ? 7 : 8);
        fields[i].kind = 3;
        fields[i].code = fields[i].scope != 0xffffffff ? 2 : value < 0 ? 3 : 0;
        fields[i].value = (unsigned long long)value;
    }
    return ANSWER;
}
