package wasm

import (
	"fmt"
	"unicode/utf8"
)

// cursor reads the WebAssembly binary format. The first mistake sticks: every
// later read returns zero, so that a reader checks err once per loop. It
// allocates nothing but error texts and the names that it is asked for.
type cursor struct {
	b   []byte // up to the end of the current section
	off int    // in the file
	err error
}

func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("at byte %d: %s", c.off, fmt.Sprintf(format, args...))
	}
}

func (c *cursor) left() int {
	if c.err != nil {
		return 0
	}
	return len(c.b) - c.off
}

func (c *cursor) byte() byte {
	if c.left() < 1 {
		c.fail("unexpected end")
		return 0
	}
	v := c.b[c.off]
	c.off++
	return v
}

// u32 reads an unsigned LEB128 number of at most 32 bits.
func (c *cursor) u32() uint32 {
	var v uint32
	for i := 0; i < 5; i++ {
		d := c.byte()
		if c.err != nil {
			return 0
		}
		if i == 4 && d > 0x0f {
			break
		}
		v |= uint32(d&0x7f) << (7 * i)
		if d < 0x80 {
			return v
		}
	}
	c.fail("number is longer than 32 bits")
	return 0
}

// signed reads a signed LEB128 number of at most the given bits (32 or 64).
func (c *cursor) signed(bits int) int64 {
	n := (bits + 6) / 7
	var v int64
	for i := 0; i < n; i++ {
		d := c.byte()
		if c.err != nil {
			return 0
		}
		v |= int64(d&0x7f) << (7 * i)
		if i == n-1 {
			// The last byte holds the remaining bits; those above them
			// must repeat the sign.
			used := uint(bits - 7*(n-1))
			sign := d >> (used - 1) & 1
			high := d >> used
			if d >= 0x80 || (sign == 0 && high != 0) || (sign == 1 && high != 0x7f>>used) {
				break
			}
			return v << (64 - bits) >> (64 - bits)
		}
		if d < 0x80 {
			shift := 64 - 7*(i+1)
			return v << shift >> shift
		}
	}
	c.fail("number is longer than %d bits", bits)
	return 0
}

func (c *cursor) skip(n int) { c.bytes(uint32(n)) }

func (c *cursor) bytes(n uint32) []byte {
	if uint64(c.left()) < uint64(n) {
		c.fail("unexpected end")
		return nil
	}
	v := c.b[c.off : c.off+int(n)]
	c.off += int(n)
	return v
}

// count reads the length of a vector whose elements take at least one byte
// each, and refuses one over the limit.
func (c *cursor) count(what string, limit int) int {
	n := c.u32()
	if c.err != nil {
		return 0
	}
	if int64(n) > int64(limit) {
		c.fail("%d %s, the limit is %d", n, what, limit)
		return 0
	}
	if int64(n) > int64(c.left()) {
		c.fail("%d %s do not fit into the %d bytes that are left", n, what, c.left())
		return 0
	}
	return int(n)
}

// each reads the elements of a vector, and returns how many there are.
func (c *cursor) each(what string, limit int, element func()) int {
	n := c.count(what, limit)
	for i := 0; i < n && c.err == nil; i++ {
		element()
	}
	return n
}

func (c *cursor) name(what string) string {
	n := c.u32()
	if c.err == nil && n > maxName {
		c.fail("%s is %d bytes long, the limit is %d", what, n, maxName)
		return ""
	}
	b := c.bytes(n)
	if c.err == nil && !utf8.Valid(b) {
		c.fail("%s is not UTF-8", what)
		return ""
	}
	return string(b)
}

// constant reads a constant expression of WebAssembly 2.0 and appends it to out, with
// what function and global make of the numbers in it.
func (c *cursor) constant(out []byte, function, global func(uint32) uint32) []byte {
	for n := 0; c.err == nil; n++ {
		if n > 16 {
			c.fail("constant expression of more than 16 instructions")
			return out
		}
		op := c.byte()
		out = append(out, op)
		switch op {
		case 0x0b: // end
			return out
		case 0x41: // i32.const
			out = appendI64(out, c.signed(32))
		case 0x42: // i64.const
			out = appendI64(out, c.signed(64))
		case 0x43: // f32.const
			out = append(out, c.bytes(4)...)
		case 0x44: // f64.const
			out = append(out, c.bytes(8)...)
		case 0x23: // global.get
			out = appendU32(out, global(c.u32()))
		case 0xd2: // ref.func
			out = appendU32(out, function(c.u32()))
		case 0xd0: // ref.null
			out = append(out, refType(c))
		case 0xfd: // v128.const
			if s := c.byte(); c.err == nil && s != 0x0c {
				c.fail("vector instruction 0x%02x in a constant expression", s)
			}
			out = append(append(out, 0x0c), c.bytes(16)...)
		default:
			if c.err == nil {
				c.fail("instruction 0x%02x in a constant expression is not of WebAssembly 2.0", op)
			}
		}
	}
	return out
}

// same leaves a number as it is.
func same(n uint32) uint32 { return n }

// skipConstant reads a constant expression.
func (c *cursor) skipConstant() {
	var room [32]byte
	c.constant(room[:0], same, same)
}
