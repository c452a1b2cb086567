package border

// Whole reads a value of any length by a function that answers with the length, and
// with the value only if there is room. first is the room that most values need. The
// code is 0, or what was answered instead of a length.
func Whole(first int, read func(buf []byte) int32) (value []byte, code int32) {
	value = make([]byte, first)
	for {
		n := read(value)
		if n < 0 {
			return nil, n
		}
		if int(n) <= len(value) {
			return value[:n], 0
		}
		value = make([]byte, n)
	}
}
