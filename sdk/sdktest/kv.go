package sdktest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/abi"
)

// state is the key/value state as the run has left it: what is committed, until the run
// changes something. It is called with the host's lock held.
func (h *Host) state() map[string][]byte {
	if h.stagedKV != nil {
		return h.stagedKV
	}
	return h.KV
}

// stage makes a change; it is committed with the offset.
func (h *Host) stage(change func(state map[string][]byte)) {
	if h.stagedKV == nil {
		h.stagedKV = maps.Clone(h.KV)
	}
	change(h.stagedKV)
}

// kv checks what all functions of the state do, and carries one out with the lock held:
// do returns a result, and the reason if that is a code.
func (i imports) kv(key string, writes bool, do func(h *Host) (int64, string)) int64 {
	n, reason := i.h.kv(key, writes, do)
	if n < 0 && reason != "" {
		i.out().refuse(abi.Code(n), "kv: %s", reason)
	}
	return n
}

func (h *Host) kv(key string, writes bool, do func(h *Host) (int64, string)) (int64, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.KV == nil:
		return int64(abi.ErrDenied), fmt.Sprintf("state is not granted to job %q", h.context.JobName)
	case writes && h.cancel == abi.CancelLost:
		return int64(abi.ErrCancelled), "ownership of the item is lost"
	case key == "":
		return int64(abi.ErrInvalid), "the key is empty"
	case len(key) > abi.MaxKey:
		return int64(abi.ErrInvalid), fmt.Sprintf("the key has %d bytes, expected at most %d", len(key), abi.MaxKey)
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		return int64(abi.ErrInvalid), fmt.Sprintf("the key %q is not UTF-8 without NUL", key)
	}
	return do(h)
}

func (i imports) KVGet(key string, buf []byte) int32 {
	return int32(i.kv(key, false, func(h *Host) (int64, string) {
		value, ok := h.state()[key]
		if !ok {
			return int64(abi.ErrNotFound), ""
		}
		return int64(give(buf, value)), ""
	}))
}

func (i imports) KVSet(key string, value []byte) int32 {
	value = append([]byte{}, value...)
	return int32(i.kv(key, true, func(h *Host) (int64, string) { return h.set(key, value, int64(abi.OK)) }))
}

// set stages a value and returns the result, if the state has room for it.
func (h *Host) set(key string, value []byte, result int64) (int64, string) {
	state := h.state()
	had, known := state[key]
	size := len(value) - len(had)
	if !known {
		size += len(key)
	}
	for k, v := range state {
		size += len(k) + len(v)
	}
	switch {
	case size > abi.MaxValue:
		return int64(abi.ErrTooLarge), fmt.Sprintf("the keys and values of an item have at most %d bytes together", abi.MaxValue)
	case !known && len(state) >= abi.MaxKeys:
		return int64(abi.ErrQuota), fmt.Sprintf("an item has at most %d keys", abi.MaxKeys)
	}
	h.stage(func(state map[string][]byte) { state[key] = value })
	return result, ""
}

func (i imports) KVDelete(key string) int32 {
	return int32(i.kv(key, true, func(h *Host) (int64, string) {
		if _, ok := h.state()[key]; !ok {
			return int64(abi.ErrNotFound), ""
		}
		h.stage(func(state map[string][]byte) { delete(state, key) })
		return int64(abi.OK), ""
	}))
}

func (i imports) KVList(prefix string, buf []byte) int32 {
	// A prefix may be empty, unlike a key.
	return int32(i.kv(cmp.Or(prefix, "any"), false, func(h *Host) (int64, string) {
		var keys []string
		for _, key := range sorted(h.state()) {
			if strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
		return int64(give(buf, abi.AppendList(nil, keys...))), ""
	}))
}

func (i imports) KVIncrement(key string, by int64) int64 {
	return i.kv(key, true, func(h *Host) (int64, string) {
		var n int64
		if value, ok := h.state()[key]; ok {
			var err error
			if n, err = strconv.ParseInt(string(value), 10, 64); err != nil || n < 0 {
				return int64(abi.ErrInvalid), fmt.Sprintf("the value of %q is no counter, which is decimal digits", key)
			}
		}
		if by > math.MaxInt64-n || n+by < 0 {
			return int64(abi.ErrInvalid), fmt.Sprintf("%d and %d are together not in 0 to 2^63-1", n, by)
		}
		return h.set(key, strconv.AppendInt(nil, n+by, 10), n+by)
	})
}
