// Compresses and decompresses text, n times over.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zlib.h"

enum { size = 300000 };
static unsigned char text[size], packed[size + 4096], back[size];

int main(int argc, char **argv) {
	int n = argc > 1 ? atoi(argv[1]) : 1;
	unsigned seed = 1;
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < size; k++) {
			if (k % 13 == 0) seed = seed * 1664525u + 1013904223u;
			text[k] = "etaoin shrdlu cmfwyp vbgkjq xz"[(seed >> (k % 13)) % 30];
		}
		uLongf length = sizeof packed, unpacked = sizeof back;
		if (compress2(packed, &length, text, size, 6) != Z_OK) return 1;
		if (uncompress(back, &unpacked, packed, length) != Z_OK || unpacked != size || memcmp(back, text, size)) return 2;
		printf("%lu %lx\n", (unsigned long)length, (unsigned long)crc32(0, packed, length));
	}
	return 0;
}
