package hostile

import (
	"bytes"
	"encoding/binary"
)

// Job is a SIMPLE job with 64 pages of memory, a table of 8 functions and a
// passive segment of each kind. job_execute calls function 2 with 60, which
// function 3, if there is one, may help. All bodies, which begin with their
// locals, are of type (i32)->(), and are exported as "f", and "g".
func Job(bodies ...[]byte) []byte {
	section := func(b []byte, id byte, body ...byte) []byte { return AppendSection(b, id, body) }
	wasm := []byte("\x00asm\x01\x00\x00\x00")
	wasm = section(wasm, 1, 3, 0x60, 0, 0, 0x60, 0, 1, 0x7f, 0x60, 1, 0x7f, 0)
	wasm = section(wasm, 3, append([]byte{byte(2 + len(bodies)), 0, 1}, bytes.Repeat([]byte{2}, len(bodies))...)...)
	wasm = section(wasm, 4, 1, 0x70, 0, 8)
	wasm = section(wasm, 5, 1, 1, 64, 64)
	exports := append([]byte{byte(3 + len(bodies))}, "\x06memory\x02\x00\x0ajob_abi_v1\x00\x00\x0bjob_execute\x00\x01"...)
	for i := range bodies {
		exports = append(exports, 1, "fghijklm"[i], 0, byte(2+i))
	}
	wasm = section(wasm, 7, exports...)
	wasm = section(wasm, 9, 2, 0, 0x41, 0, 0x0b, 1, 2, 1, 0, 1, 2) // table[0] = f, and a passive one
	wasm = section(wasm, 12, 1)
	code := []byte{byte(2 + len(bodies)), 2, 0, 0x0b, 8, 0, 0x41, 60, 0x10, 2, 0x41, 0, 0x0b}
	for _, b := range bodies {
		code = append(binary.AppendUvarint(code, uint64(len(b))), b...)
	}
	wasm = section(wasm, 10, code...)
	return section(wasm, 11, 1, 1, 4, 'd', 'a', 't', 'a')
}

// Body is a function without locals.
func Body(parts ...[]byte) []byte {
	return append(append([]byte{0}, bytes.Join(parts, nil)...), 0x0b)
}

// AtZero returns if the parameter is 0.
func AtZero() []byte { return []byte{0x20, 0, 0x45, 0x04, 0x40, 0x0f, 0x0b} }

// Less is the parameter less one.
func Less() []byte { return []byte{0x20, 0, 0x41, 1, 0x6b} }

// Twice is a body that calls itself and calls itself again.
func Twice() []byte {
	return Body(AtZero(), Less(), []byte{0x10, 2}, Less(), []byte{0x10, 2})
}

// AppendSection appends a section to a module.
func AppendSection(b []byte, id byte, body []byte) []byte {
	return append(binary.AppendUvarint(append(b, id), uint64(len(body))), body...)
}

// AppendName appends a name with its length.
func AppendName(b []byte, name string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(name))), name...)
}
