/* The driver's other side: a libnvidia-ml.so.1 for the real nvidia-ml-py, whose answers stand in a file.
 *
 * The file named by NVML_SHIM_STATE is read again at every call, so that a machine can change while it is
 * watched. Its lines: PLACE FUNCTION ANSWER. PLACE is "-" for the driver, "0" for a GPU, "0.2" for a MIG
 * instance, "*" for every place; an ANSWER that begins with "!" is the return code. What is not in the file
 * is NOT_SUPPORTED. "- lost_after N": after N questions about devices every further one finds the GPU lost.
 * The file named by NVML_SHIM_LOG gets the name of each function that is called.
 *
 * Structures and numbers are those of NVIDIA's nvml.h.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };
enum { MAX_GPUS = 16, MAX_SLICES = 8, ANSWER = 4096, LINE = 8192 };

typedef struct { char place[16]; } Device;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { unsigned version; int margin; } Margin;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;
typedef struct {
    unsigned field, scope;
    int64_t timestamp, latency;
    unsigned type;
    int result;
    union { double d; unsigned long long ull; } value;
} FieldValue;

static Device devices[MAX_GPUS][MAX_SLICES + 1];
static long device_questions;

static void note(const char *function) {
    const char *path = getenv("NVML_SHIM_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%s\n", function);
        fclose(log);
    }
}

/* Find the answer of one place, without any rule about failing. */
static int find(const char *place, const char *function, char *answer) {
    const char *path = getenv("NVML_SHIM_STATE");
    FILE *state = path ? fopen(path, "r") : NULL;
    char line[LINE], at[16], name[128];
    int rest, found = 0;
    if (!state)
        return 0;
    while (!found && fgets(line, sizeof line, state)) {
        if (sscanf(line, "%15s %127s %n", at, name, &rest) != 2 || strcmp(at, place) || strcmp(name, function))
            continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(answer, ANSWER, "%.*s", ANSWER - 1, line + rest);
        found = 1;
    }
    fclose(state);
    return found;
}

/* The answer to a question, or a return code. */
static int ask(const char *place, const char *function, char *answer) {
    char limit[ANSWER];
    note(function);
    if (place[0] != '-' && find("-", "lost_after", limit) && ++device_questions > atol(limit))
        return GPU_IS_LOST;
    if (!find("*", function, answer) && !find(place, function, answer))
        return NOT_SUPPORTED;
    return answer[0] == '!' ? atoi(answer + 1) : SUCCESS;
}

/* SUCCESS unless the file refuses: for questions whose answer the shim knows by itself. */
static int allowed(const char *place, const char *function) {
    char answer[ANSWER];
    int result = ask(place, function, answer);
    int told = find("*", function, answer) || find(place, function, answer);
    return told || result == GPU_IS_LOST ? result : SUCCESS;
}

static int ask_number(const char *place, const char *function, unsigned long long *number) {
    char answer[ANSWER];
    int result = ask(place, function, answer);
    if (result == SUCCESS)
        *number = strtoull(answer, NULL, 0);
    return result;
}

static int ask_unsigned(const char *place, const char *function, unsigned *number) {
    unsigned long long wide = 0;
    int result = ask_number(place, function, &wide);
    if (result == SUCCESS)
        *number = (unsigned)wide;
    return result;
}

static int ask_text(const char *place, const char *function, char *text, unsigned length) {
    char answer[ANSWER];
    int result = ask(place, function, answer);
    if (result == SUCCESS)
        snprintf(text, length, "%s", answer);
    return result;
}

const char *nvmlErrorString(int result) { return result == NOT_SUPPORTED ? "Not Supported" : "Error"; }

int nvmlInitWithFlags(unsigned flags) {
    char answer[ANSWER];
    (void)flags;
    device_questions = 0;
    return ask("-", __func__, answer);
}

int nvmlShutdown(void) {
    note(__func__);
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *text, unsigned length) { return ask_text("-", __func__, text, length); }

/* The driver has a line for each name: "- process:4242 NAME". */
int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned length) {
    char answer[ANSWER], key[64];
    int result = allowed("-", __func__);
    if (result != SUCCESS)
        return result;
    snprintf(key, sizeof key, "process:%u", pid);
    if (!find("-", key, answer))
        return NOT_FOUND;
    snprintf(text, length, "%s", answer);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) { return ask_unsigned("-", __func__, count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    char place[16];
    int result;
    snprintf(place, sizeof place, "%u", index);
    result = allowed(place, __func__);
    if (result != SUCCESS)
        return result;
    *device = &devices[index % MAX_GPUS][0];
    strcpy((*device)->place, place);
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *gpu, unsigned index, Device **slice) {
    char answer[ANSWER], place[32];
    int result = allowed(gpu->place, __func__);
    if (result != SUCCESS)
        return result;
    snprintf(place, sizeof place, "%.8s.%u", gpu->place, index);
    if (index >= MAX_SLICES || !find(place, "nvmlDeviceGetUUID", answer))
        return NOT_FOUND;
    *slice = &devices[atoi(gpu->place) % MAX_GPUS][index + 1];
    snprintf((*slice)->place, sizeof (*slice)->place, "%.15s", place);
    return SUCCESS;
}

int nvmlDeviceGetName(Device *device, char *text, unsigned length) {
    return ask_text(device->place, __func__, text, length);
}

int nvmlDeviceGetUUID(Device *device, char *text, unsigned length) {
    return ask_text(device->place, __func__, text, length);
}

/* "TOTAL USED" stands under the name of the first version. */
static int ask_memory(const char *place, const char *function, unsigned long long *total, unsigned long long *used) {
    char answer[ANSWER];
    int result = ask(place, function, answer);
    if (result == NOT_SUPPORTED && !find("*", function, answer) && find(place, "nvmlDeviceGetMemoryInfo", answer))
        result = answer[0] == '!' ? atoi(answer + 1) : SUCCESS;
    if (result == SUCCESS && sscanf(answer, "%llu %llu", total, used) != 2)
        return NOT_SUPPORTED;
    return result;
}

int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *memory) {
    int result = ask_memory(device->place, __func__, &memory->total, &memory->used);
    memory->free = result == SUCCESS ? memory->total - memory->used : 0;
    return result;
}

int nvmlDeviceGetMarginTemperature(Device *device, Margin *margin) {
    unsigned degrees = 0;
    int result = ask_unsigned(device->place, __func__, &degrees);
    margin->margin = (int)degrees;
    return result;
}

int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *bits) {
    return ask_number(device->place, __func__, bits);
}

int nvmlDeviceGetUtilizationRates(Device *device, Utilization *rates) {
    rates->memory = 0;
    return ask_unsigned(device->place, __func__, &rates->gpu);
}

int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *degrees) {
    return sensor ? NOT_SUPPORTED : ask_unsigned(device->place, __func__, degrees);
}

int nvmlDeviceGetTemperatureThreshold(Device *device, int threshold, unsigned *degrees) {
    return threshold == 1 ? ask_unsigned(device->place, __func__, degrees) : NOT_SUPPORTED;
}

int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
    return ask_unsigned(device->place, __func__, milliwatts);
}

int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *milliwatts) {
    return ask_unsigned(device->place, __func__, milliwatts);
}

int nvmlDeviceGetPowerManagementLimit(Device *device, unsigned *milliwatts) {
    return ask_unsigned(device->place, __func__, milliwatts);
}

int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *millijoules) {
    return ask_number(device->place, __func__, millijoules);
}

/* Clocks: "SM" or "SM MEMORY". */
static int ask_clock(const char *place, const char *function, int type, unsigned *megahertz) {
    char answer[ANSWER];
    unsigned sm, memory;
    int count, result = ask(place, function, answer);
    if (result != SUCCESS)
        return result;
    count = sscanf(answer, "%u %u", &sm, &memory);
    if (type == 1 && count >= 1)
        *megahertz = sm;
    else if (type == 2 && count == 2)
        *megahertz = memory;
    else
        return NOT_SUPPORTED;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(Device *device, int type, unsigned *megahertz) {
    return ask_clock(device->place, __func__, type, megahertz);
}

int nvmlDeviceGetMaxClockInfo(Device *device, int type, unsigned *megahertz) {
    return ask_clock(device->place, __func__, type, megahertz);
}

/* "FIELD=NUMBER ...": 64-bit counters. */
int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *values) {
    char answer[ANSWER], key[32];
    int result = ask(device->place, __func__, answer);
    if (result != SUCCESS)
        return result;
    memmove(answer + 1, answer, ANSWER - 1);
    answer[0] = ' ';
    answer[ANSWER - 1] = 0;
    for (int place = 0; place < count; place++) {
        char *found;
        snprintf(key, sizeof key, " %u=", values[place].field);
        found = strstr(answer, key);
        values[place].result = found ? SUCCESS : NOT_SUPPORTED;
        values[place].type = 3;
        values[place].value.ull = found ? strtoull(found + strlen(key), NULL, 10) : 0;
    }
    return SUCCESS;
}

/* "PID:BYTES:GPU_INSTANCE:COMPUTE_INSTANCE ..."; "none" is an empty list. */
static int ask_processes(const char *place, const char *function, unsigned *room, Process *processes) {
    char answer[ANSWER], *next = NULL;
    unsigned count = 0;
    int result = ask(place, function, answer);
    if (result != SUCCESS)
        return result;
    for (char *word = strtok_r(answer, " ", &next); word; word = strtok_r(NULL, " ", &next)) {
        Process one = {0};
        if (sscanf(word, "%u:%llu:%u:%u", &one.pid, &one.used, &one.gpu_instance, &one.compute_instance) != 4)
            continue;
        if (processes && count < *room)
            processes[count] = one;
        count++;
    }
    result = count && (!processes || count > *room) ? INSUFFICIENT_SIZE : SUCCESS;
    *room = count;
    return result;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *room, Process *processes) {
    return ask_processes(device->place, __func__, room, processes);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *device, unsigned *room, Process *processes) {
    return ask_processes(device->place, __func__, room, processes);
}

/* "CURRENT PENDING". */
int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    char answer[ANSWER];
    int result = ask(device->place, __func__, answer);
    if (result == SUCCESS && sscanf(answer, "%u %u", current, pending) != 2)
        return NOT_SUPPORTED;
    return result;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    return ask_unsigned(device->place, __func__, count);
}

int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) {
    return ask_unsigned(device->place, __func__, id);
}

int nvmlDeviceGetComputeInstanceId(Device *device, unsigned *id) {
    return ask_unsigned(device->place, __func__, id);
}
