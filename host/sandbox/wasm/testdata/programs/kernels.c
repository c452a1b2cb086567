// Small kernels, n times over: sorting, matrices, primes, a hash, recursion.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t seed = 1;
static uint32_t next(void) { return seed = seed * 1664525u + 1013904223u; }

static int less(const void *a, const void *b) {
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

static uint32_t sorting(void) {
	static uint32_t v[20000];
	for (int i = 0; i < 20000; i++) v[i] = next();
	qsort(v, 20000, sizeof v[0], less);
	return v[10000];
}

static double matrices(void) {
	enum { n = 80 };
	static double a[n][n], b[n][n], c[n][n];
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++) a[i][j] = next() % 100, b[i][j] = next() % 100;
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++) {
			double s = 0;
			for (int k = 0; k < n; k++) s += a[i][k] * b[k][j];
			c[i][j] = s;
		}
	return c[7][11];
}

static int primes(void) {
	static char composite[200000];
	int count = 0;
	memset(composite, 0, sizeof composite);
	for (int i = 2; i < 200000; i++) {
		if (composite[i]) continue;
		count++;
		for (int j = 2 * i; j < 200000; j += i) composite[j] = 1;
	}
	return count;
}

static uint32_t hash(void) {
	static unsigned char text[100000];
	uint32_t h = 2166136261u;
	for (int i = 0; i < 100000; i++) text[i] = next() >> 24;
	for (int i = 0; i < 100000; i++) h = (h ^ text[i]) * 16777619u;
	return h;
}

static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

int main(int argc, char **argv) {
	int n = argc > 1 ? atoi(argv[1]) : 1;
	for (int i = 0; i < n; i++)
		printf("%u %g %d %u %d\n", sorting(), matrices(), primes(), hash(), fib(24));
	return 0;
}
