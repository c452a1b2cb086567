package wasm

import (
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
)

// What is not in the table of instructions, or not in its shortest form, is
// refused by name and place.
func TestMeterRefuses(t *testing.T) {
	t.Parallel()
	vector := []byte{0xfd, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	for _, c := range []struct {
		name string
		body []byte
		want string
	}{
		{"a vector instruction in a longer form", body(vector, []byte{0x41, 0, 0xfd, 0x8c, 0, 0x1a}), "instruction 0xfd 12 is not of WebAssembly 2.0, or not in its shortest form"},
		{"relaxed vectors", body(vector, vector, []byte{0xfd, 0x80, 0x02, 0x1a}), "instruction 0xfd 256"},
		{"a hole in the table of vectors", body(vector, []byte{0xfd, 0x9a, 0x01, 0x1a}), "instruction 0xfd 154"},
		{"misc in a longer form", body([]byte{0x43, 0, 0, 0, 0, 0xfc, 0x80, 0, 0x1a}), "instruction 0xfc 0"},
		{"misc that is not known", body([]byte{0xfc, 18}), "instruction 0xfc 18"},
		{"a block of typed references", body([]byte{0x02, 0x63, 0x70, 0x0b, 0x1a}), "block type 0x63"},
		{"a loop of typed references", body([]byte{0x03, 0x64, 0x70, 0x0b, 0x1a}), "block type 0x64"},
		{"select of two types", body([]byte{0x1c, 2, 0x7f, 0x7f}), "select with 0x02 types"},
		{"select with a longer number", body([]byte{0x1c, 0x81, 0, 0x7f}), "select with 0x81 types"},
		{"select of a typed reference", body([]byte{0x1c, 1, 0x63, 0x70}), "value type 0x63"},
		{"a tail call", body([]byte{0x12, 0}), "instruction 0x12 (a tail call)"},
		{"try", body([]byte{0x06, 0x40, 0x0b}), "instruction 0x06 (of exception handling)"},
		{"try_table", body([]byte{0x1f, 0x40, 0, 0x0b}), "instruction 0x1f (of exception handling)"},
		{"atomics", body([]byte{0xfe, 0x03, 0}), "instruction 0xfe (of threads)"},
		{"garbage collection", body([]byte{0xfb, 0, 0}), "instruction 0xfb (of garbage collection)"},
		{"a second memory", body([]byte{0x3f, 1, 0x1a}), "reserved byte 0x01"},
		{"code behind the end", append(body(), 0x01), "1 bytes follow the end of the function"},
		{"no end", []byte{0, 0x01}, "unexpected end"},
		{"an end too few", body([]byte{0x02, 0x40}), "unexpected end"},
	} {
		_, err := meter(nasty(c.body))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "function 2: at byte ") {
			t.Errorf("%s: %v, expected function 2 and %q", c.name, err, c.want)
		}
	}
}

// Large copies are done in pieces, and leave what one copy leaves.
func TestCopiesInPieces(t *testing.T) {
	t.Parallel()
	const pages = 64
	i32 := func(v uint32) []byte { return appendI32([]byte{0x41}, int32(v)) }
	for _, c := range []struct{ to, from, n uint32 }{
		{0, 1 << 20, 3 << 20}, {1 << 20, 0, 3 << 20}, {100, 0, 4<<20 - 100}, {0, 100, 4<<20 - 100}, {7, 7, 2 << 20},
		{0, 0, copyPiece}, {5, 0, copyPiece + 1}, {0, 5, copyPiece + 1}, {0, 0, 0}, {4 << 20, 0, 0},
		{1, 0, 4 << 20}, {0, 1, 4 << 20}, {0, 0, 4<<20 + 1}, {4 << 20, 0, 1}, {1<<32 - 1, 0, 1<<32 - 1}, {0, 0, 1<<32 - 1},
	} {
		copies := body(i32(c.to), i32(c.from), i32(c.n), []byte{0xfc, 10, 0, 0})
		fills := body(i32(c.to), i32(c.from), i32(c.n), []byte{0xfc, 11, 0})
		wasm := nasty(copies, fills)
		for name, f := range map[string]string{"copy": "f", "fill": "g"} {
			run := func(wasm []byte) ([]byte, error) {
				p := start(t, wazero.NewRuntimeConfig(), wasm)
				m, _ := p.Memory().Read(0, pages*PageSize)
				for i := range m {
					m[i] = byte(i * 7 >> 3)
				}
				_, err := p.call(f, 0)
				return append([]byte(nil), m...), err
			}
			want, errWant := run(wasm)
			got, err := run(metered(t, wasm))
			if (err == nil) != (errWant == nil) || string(got) != string(want) {
				t.Errorf("%s %+v: memory is the same: %t; %v, expected %v", name, c, string(got) == string(want), err, errWant)
			}
		}
	}
}
