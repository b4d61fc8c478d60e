/* The patterns of benches/engine.rs with libgomp's `task depend`. The bench compiles and runs this
 * program, so both are measured in one run. One thread creates tasks and waits after every WINDOW
 * of them (without windows libgomp takes several times as long); `workers` others run them. Prints
 * the nanoseconds per task, median of RUNS runs, after a check of the order with the same update.
 */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TASKS = 20000, RUNS = 15, WINDOW = 1000 };

typedef struct { int reads[2], n_reads, write; } access_t;

static access_t tasks[TASKS];
static uint64_t cells[TASKS], expected[TASKS];
static char vars[TASKS];

static uint64_t seed;

static int next64(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % 64);
}

static void random64(int n, uint64_t from) {
    seed = from;
    for (int i = 0; i < n; i++) {
        int a = next64(), b = next64(), c = next64();
        while (b == a) b = next64();
        while (c == a || c == b) c = next64();
        tasks[i] = (access_t){{a, b}, 2, c};
    }
}

static void make(const char *name) {
    for (int i = 0; i < TASKS; i++) tasks[i] = (access_t){{0, 0}, 0, 0};
    if (!strcmp(name, "indep")) {
        for (int i = 0; i < TASKS; i++) tasks[i].write = i;
    } else if (!strcmp(name, "random64")) {
        random64(TASKS, 1);
    } else if (!strcmp(name, "graph1000")) {
        random64(1000, 7);
        for (int i = 1000; i < TASKS; i++) tasks[i] = tasks[i % 1000];
    } else if (!strcmp(name, "forkjoin16")) {
        for (int i = 0; i < TASKS; i++)
            if (i % 17) tasks[i] = (access_t){{0, 0}, 1, i % 17};
    } /* chain: all write 0 */
}

static void update(uint64_t *at, const access_t *t, uint64_t i) {
    uint64_t sum = i;
    for (int r = 0; r < t->n_reads; r++) sum = sum * 7 + at[t->reads[r]];
    at[t->write] = at[t->write] * 31 + sum;
}

static void run(int work) {
    for (int i = 0; i < TASKS; i++) {
        const access_t *t = &tasks[i];
        char *w = &vars[t->write], *a = &vars[t->reads[0]], *b = &vars[t->reads[1]];
        switch (t->n_reads) {
        case 0:
#pragma omp task depend(inout : w[0]) firstprivate(t, i)
            if (work) update(cells, t, i);
            break;
        case 1:
#pragma omp task depend(in : a[0]) depend(inout : w[0]) firstprivate(t, i)
            if (work) update(cells, t, i);
            break;
        default:
#pragma omp task depend(in : a[0], b[0]) depend(inout : w[0]) firstprivate(t, i)
            if (work) update(cells, t, i);
        }
        if (i % WINDOW == WINDOW - 1) {
#pragma omp taskwait
        }
    }
#pragma omp taskwait
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    double times[RUNS];
    int ok = 1;
    make(argv[1]);
    omp_set_num_threads(atoi(argv[2]) + 1);
#pragma omp parallel
#pragma omp single
    {
        for (int i = 0; i < TASKS; i++) update(expected, &tasks[i], i);
        run(1);
        ok = !memcmp(cells, expected, sizeof cells);
        for (int r = 0; r < RUNS; r++) {
            double start = omp_get_wtime();
            run(0);
            times[r] = (omp_get_wtime() - start) * 1e9 / TASKS;
        }
    }
    if (!ok) {
        fprintf(stderr, "%s: order not kept\n", argv[1]);
        return 1;
    }
    qsort(times, RUNS, sizeof *times, by_value);
    printf("%.1f\n", times[RUNS / 2]);
    return 0;
}
