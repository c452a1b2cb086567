package wasm

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/tetratelabs/wazero"
)

// withData is a module with one page of memory and the given segments.
func withData(count int, segment func(i int) (offset int32, content []byte)) []byte {
	body := appendU32(nil, uint32(count))
	for i := range count {
		offset, content := segment(i)
		body = append(appendI32(append(body, 0, 0x41), offset), 0x0b)
		body = append(appendU32(body, uint32(len(content))), content...)
	}
	wasm := []byte("\x00asm\x01\x00\x00\x00\x05\x03\x01\x00\x01\x07\x0a\x01\x06memory\x02\x00")
	return appendSection(wasm, 11, body)
}

// memoryOf is the memory of a module as it is instantiated, nil if it is not.
func memoryOf(t *testing.T, wasm []byte) []byte {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer rt.Close(ctx)
	if err := offerTurns(ctx, rt); err != nil {
		t.Fatal(err)
	}
	c, err := rt.CompileModule(ctx, wasm)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := rt.InstantiateModule(ctx, c, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil
	}
	b, _ := mod.Memory().Read(0, mod.Memory().Size())
	return bytes.Clone(b)
}

// Joined data segments leave the same memory as the ones in the file.
func TestJoinData(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	content := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.UintN(256))
		}
		return b
	}
	next := int32(0)
	for _, c := range []struct {
		name string
		join bool
		wasm []byte
	}{
		{"close", true, withData(500, func(int) (int32, []byte) {
			b := content(random.IntN(40))
			next += int32(random.IntN(60))
			defer func() { next += int32(len(b)) }()
			return next, b
		})},
		{"backwards", true, withData(200, func(i int) (int32, []byte) { return int32(60000 - 100*i), content(i % 100) })},
		{"far apart", false, withData(100, func(i int) (int32, []byte) { return int32(600 * i), content(10) })},
		{"few", false, withData(joinFrom-1, func(i int) (int32, []byte) { return int32(20 * i), content(10) })},
		{"overlapping", false, withData(100, func(i int) (int32, []byte) { return int32(10 * i), content(11) })},
		{"past the end", true, withData(100, func(i int) (int32, []byte) { return int32(65000 + 10*i), content(10) })},
		{"no address", true, withData(100, func(i int) (int32, []byte) { return int32(-2000 + 10*i), content(10) })},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := scanModule(c.wasm)
			if err != nil {
				t.Fatal(err)
			}
			if joined := s.joinData() != nil; joined != c.join {
				t.Errorf("joined: %t, want %t", joined, c.join)
			}
			out := metered(t, c.wasm)
			again, err := scanModule(out)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d segments became %d, %d bytes %d", len(s.data), len(again.data), len(c.wasm), len(out))
			if !bytes.Equal(memoryOf(t, c.wasm), memoryOf(t, out)) {
				t.Error("the memories differ")
			}
		})
	}
}

// The same for a real program, which takes wazero too long.
func TestJoinGo(t *testing.T) {
	t.Parallel()
	wasm := goGuest(t, "goguest")
	filled := func(s *scan) []byte {
		b := make([]byte, int(s.minPages)*PageSize)
		for _, d := range s.data {
			copy(b[d.offset:], s.wasm[d.bytes.start:d.bytes.end])
		}
		return b
	}
	before, err := scanModule(wasm)
	if err != nil {
		t.Fatal(err)
	}
	after, err := scanModule(metered(t, wasm))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d segments became %d, %d bytes %d", len(before.data), len(after.data), len(wasm), len(after.wasm))
	if len(after.data) > len(before.data)/10 {
		t.Error("the data of a Go program is not joined")
	}
	if !bytes.Equal(filled(before), filled(after)) {
		t.Error("the memories differ")
	}
}

func TestI32Const(t *testing.T) {
	t.Parallel()
	for _, v := range []int32{0, 1, -1, 63, 64, -64, -65, 8191, 8192, 1 << 30, -1 << 31, 1<<31 - 1} {
		got, ok := i32Const(append(appendI32([]byte{0x41}, v), 0x0b))
		if !ok || int32(got) != v {
			t.Errorf("%d became %d, %t", v, int32(got), ok)
		}
	}
	for _, e := range [][]byte{{0x23, 0, 0x0b}, {0x41, 1, 0x41, 2, 0x0b}, {0x0b}} {
		if v, ok := i32Const(e); ok {
			t.Errorf("% x is %d", e, v)
		}
	}
}
