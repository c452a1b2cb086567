// Compresses and decompresses text, n times over.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bzlib.h"

enum { size = 200000 };
static char text[size], packed[size + size / 100 + 600], back[size];

void bz_internal_error(int code) { exit(code); }

int main(int argc, char **argv) {
	int n = argc > 1 ? atoi(argv[1]) : 1;
	unsigned seed = 1;
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < size; k++) {
			if (k % 13 == 0) seed = seed * 1664525u + 1013904223u;
			text[k] = "etaoin shrdlu cmfwyp vbgkjq xz"[(seed >> (k % 13)) % 30];
		}
		unsigned length = sizeof packed, unpacked = sizeof back;
		if (BZ2_bzBuffToBuffCompress(packed, &length, text, size, 9, 0, 30) != BZ_OK) return 1;
		if (BZ2_bzBuffToBuffDecompress(back, &unpacked, packed, length, 0, 0) != BZ_OK || unpacked != size || memcmp(back, text, size)) return 2;
		unsigned sum = 0;
		for (unsigned k = 0; k < length; k++) sum = sum * 31 + (unsigned char)packed[k];
		printf("%u %x\n", length, sum);
	}
	return 0;
}
