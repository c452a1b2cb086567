package jobconfig

import (
	"math"
	"strconv"
	"strings"
)

// sizeUnits are the units of ParseSize, longest first.
var sizeUnits = [...]struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1},
}

// ParseSize reads a number of bytes, such as 67108864, 64MiB or 1.5GB: the units are B, KiB, MiB, GiB and the
// decimal KB, MB, GB, in any case. ok is false for anything else, for a fraction of a byte, and for 1 EiB or
// more.
func ParseSize(s string) (bytes int64, ok bool) {
	for _, u := range sizeUnits {
		at := len(s) - len(u.name)
		if at < 0 || !strings.EqualFold(s[at:], u.name) {
			continue
		}
		digits := strings.TrimSpace(s[:at])
		n, err := strconv.ParseFloat(digits, 64)
		n *= float64(u.bytes)
		if err != nil || strings.Trim(digits, "0123456789.") != "" || n != math.Trunc(n) || n >= 1<<60 {
			return 0, false
		}
		return int64(n), true
	}
	return 0, false
}

// ShowSize writes a size in the largest binary unit that is exact: ParseSize
// reads the same number back.
func ShowSize(n int64) string {
	for i := 2; i >= 0; i-- { // GiB, MiB, KiB
		if u := sizeUnits[i]; n > 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
